"""Receipts: what became of one message that was sent.

::

    receipt = SendReceipt()
    await app.bridge.asend("orders", order, {RECEIPT: receipt})
    if receipt.status is SendStatus.KEPT: ...
"""

from enum import Enum

__all__ = ["SendReceipt", "SendStatus"]


class SendStatus(Enum):
    """Where an accepted message is."""

    STORED = "stored"
    """The messaging system has accepted it, in the sense of the binding's settings."""
    KEPT = "kept"
    """It is kept on the sender's side, and not sent yet."""


class SendReceipt:
    """Goes with one message in the header `RECEIPT`, which is not sent.

    Attributes:
        is_kept: Whether the message was kept on the sender's side.
    """

    __slots__ = ("is_kept",)

    def __init__(self) -> None:
        self.is_kept = False

    @property
    def status(self) -> SendStatus:
        """Where the message is, once its `send` has returned True."""
        return SendStatus.KEPT if self.is_kept else SendStatus.STORED

    def __repr__(self) -> str:
        return f"<SendReceipt {'kept' if self.is_kept else 'not kept'}>"
