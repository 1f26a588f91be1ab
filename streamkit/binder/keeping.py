"""Keeping messages on the sender's side while their messaging system is away.

::

    SendingHandler ─▶ KeepingProducer.send ─┬─▶ producer.send                 stored by the messaging system
                        (of a plugin)       └─▶ keep, then raise MessageKept  kept here, and sent later by the keeper

A plugin makes a keeper for each output binding that is to have one (the hook `streamkit_message_keeper`). For a sender
a kept message is accepted: `send` returns True. The signal `message_kept`, in place of `message_sent`, and a
:class:`~streamkit.messaging.receipt.SendReceipt` tell one from the other.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from streamkit.binder.binder import FailureListener, Health, ProducerBinding
from streamkit.binder.named_objects import NamedObjects
from streamkit.config.environment import Environment
from streamkit.errors import BinderError
from streamkit.messaging.headers import RECEIPT
from streamkit.messaging.message import Message
from streamkit.messaging.receipt import SendReceipt

__all__ = [
    "KeptOutput",
    "MakeKeeper",
    "MessageKeeper",
    "MessageKept",
    "UnboundProducer",
    "note_kept",
]


class MessageKept(Exception):  # noqa: N818 - not an error: the message will be sent later
    """Raised by a producer in place of returning: the message is kept, and not sent yet.

    Attributes:
        reason: Why it was not sent.
    """

    def __init__(self, reason: BinderError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class KeptOutput(msgspec.Struct, frozen=True):
    """An output binding, as a keeper sees it.

    Attributes:
        binding: The binding's name.
        destination: The name of its destination.
        is_local: Whether the messages of its binder exist in this process only.
        on_failure: To be awaited with a message that is given up, and the reason; it reports to the error channels.
        environment: All settings.
        named: The registered objects, which settings name.
    """

    binding: str
    destination: str
    is_local: bool
    on_failure: FailureListener
    environment: Environment
    named: NamedObjects


class MessageKeeper(ABC):
    """Keeps the messages of one output binding, and sends them later.

    It is a feeder of the binding: started when the binding is bound, and stopped before it is unbound.
    """

    @abstractmethod
    def producer(self, producer: ProducerBinding) -> ProducerBinding:
        """Return a producer that sends through ``producer``, or keeps a message and raises `MessageKept`."""

    @abstractmethod
    async def keep(self, message: Message[bytes], reason: BinderError) -> bool:
        """Keep a message that could not be sent; return False if it may not or cannot be kept."""

    @abstractmethod
    async def start(self) -> None:
        """Begin to send what is kept, through the last producer given to :meth:`producer`."""

    @abstractmethod
    async def stop(self, timeout: float) -> None:
        """Stop sending within ``timeout`` seconds; what is kept stays kept."""

    @abstractmethod
    def health(self) -> Health:
        """Return the keeper's health, with the number of messages that are kept."""


MakeKeeper: TypeAlias = Callable[[object, KeptOutput], MessageKeeper | None]
"""Returns the keeper of an output binding of an application, or None."""


def note_kept(message: Message[bytes]) -> None:
    """Set the status of the message's receipt to KEPT, if the message has a receipt."""
    receipt = message.headers.get(RECEIPT)
    if isinstance(receipt, SendReceipt):
        receipt.is_kept = True


class UnboundProducer(ProducerBinding):
    """Stands for the producer of a binding that is not bound: each send fails with the reason."""

    def __init__(self, reason: BinderError) -> None:
        self._reason = reason

    async def send(self, message: Message[bytes]) -> None:
        """Raise the reason.

        Raises:
            BinderError: Always.
        """
        raise self._reason

    async def send_all(self, messages: Sequence[Message[bytes]]) -> "Sequence[Exception | None]":
        """Return the reason for each message."""
        return [self._reason] * len(messages)

    async def stop(self) -> None:
        """Do nothing."""
