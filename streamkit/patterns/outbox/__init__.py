"""The outbox: messages are sent if, and only if, the transaction of the sender's own changes commits.

    outbox = Outbox(app, engine, "orders")

    async with outbox.transaction() as session:
        session.add(OrderRow(order))
        outbox.send("orders", order, id=order.number)

It needs the extra `patterns`: `pip install 'streamkit-messaging[patterns]'`.
"""

from streamkit.patterns.outbox.consumptions import Consumptions
from streamkit.patterns.outbox.enlistment import Enlistment
from streamkit.patterns.outbox.errors import OutboxError
from streamkit.patterns.outbox.message_row import OUTBOX_ID
from streamkit.patterns.outbox.outbox import Outbox, OutboxTransaction
from streamkit.patterns.outbox.status import MessageStatus

__all__ = [
    "OUTBOX_ID",
    "Consumptions",
    "Enlistment",
    "MessageStatus",
    "Outbox",
    "OutboxError",
    "OutboxTransaction",
]
