"""What chooses the function of a message before its headers do: Spring's `MessageRoutingCallback`."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from streamkit.messaging.message import Message

__all__ = ["RoutingCallback"]

RoutingCallback: TypeAlias = Callable[[Message[bytes]], str | Awaitable[str | None] | None]
"""Returns the name of the function a message goes to, or None to leave it to the headers and settings."""
