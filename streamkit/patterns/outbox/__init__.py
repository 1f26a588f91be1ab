"""The outbox: messages are sent if, and only if, the transaction of the sender's own changes commits.

    outbox = Outbox(app, engine, "orders")

    async with outbox.transaction() as session:
        session.add(OrderRow(order))
        outbox.send("orders", order, id=order.number)

It needs the extra `patterns`: `pip install 'streamkit-messaging[patterns]'`. Each name is imported on first access
(PEP 562): the list of commands imports this package, and needs no SQLAlchemy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for type checkers; `_MODULES` says the same at run time
    from streamkit.patterns.outbox.consumptions import Consumptions as Consumptions
    from streamkit.patterns.outbox.enlistment import Enlistment as Enlistment
    from streamkit.patterns.outbox.errors import OutboxError as OutboxError
    from streamkit.patterns.outbox.message_row import OUTBOX_ID as OUTBOX_ID
    from streamkit.patterns.outbox.outbox import Outbox as Outbox
    from streamkit.patterns.outbox.outbox import OutboxTransaction as OutboxTransaction
    from streamkit.patterns.outbox.status import MessageStatus as MessageStatus

_MODULES = {
    "OUTBOX_ID": "streamkit.patterns.outbox.message_row",
    "Consumptions": "streamkit.patterns.outbox.consumptions",
    "Enlistment": "streamkit.patterns.outbox.enlistment",
    "MessageStatus": "streamkit.patterns.outbox.status",
    "Outbox": "streamkit.patterns.outbox.outbox",
    "OutboxError": "streamkit.patterns.outbox.errors",
    "OutboxTransaction": "streamkit.patterns.outbox.outbox",
}

__all__ = [
    "OUTBOX_ID",
    "Consumptions",
    "Enlistment",
    "MessageStatus",
    "Outbox",
    "OutboxError",
    "OutboxTransaction",
]


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
