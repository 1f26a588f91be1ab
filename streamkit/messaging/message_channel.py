"""What takes messages, as those see it who only send."""

from typing import Protocol

from streamkit.messaging.message import Message

__all__ = ["MessageChannel"]


class MessageChannel(Protocol):
    """Takes messages."""

    @property
    def name(self) -> str:
        """The name errors and settings know it by."""
        ...

    def send(self, message: Message[object], timeout: float | None = None) -> bool:
        """True when the message was accepted, False when it was stopped or not within `timeout` seconds."""
        ...

    async def asend(self, message: Message[object], timeout: float | None = None) -> bool:
        """True when the message was accepted, False when it was stopped or not within `timeout` seconds."""
        ...
