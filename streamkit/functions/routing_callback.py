"""The routing callback, which selects a function before headers and settings do: Spring's `MessageRoutingCallback`."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from streamkit.messaging.message import Message

__all__ = ["RoutingCallback"]

RoutingCallback: TypeAlias = Callable[[Message[bytes]], str | Awaitable[str | None] | None]
"""Takes a message; returns the name of the function for it, or None to let the headers and settings select one."""
