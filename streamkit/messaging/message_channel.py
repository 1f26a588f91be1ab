"""The protocol of channels, for code that only sends."""

from typing import Protocol

from streamkit.messaging.message import Message

__all__ = ["MessageChannel"]


class MessageChannel(Protocol):
    """A channel to which messages are sent."""

    @property
    def name(self) -> str:
        """The name in settings and errors."""
        ...

    def send(self, message: Message[object], timeout: float | None = None) -> bool:
        """Return True if the message was accepted, False if it was stopped or not accepted within `timeout` seconds."""
        ...

    async def asend(self, message: Message[object], timeout: float | None = None) -> bool:
        """Return True if the message was accepted, False if it was stopped or not accepted within `timeout` seconds."""
        ...
