"""Idempotent consumption: a listener handles messages of the same key once.

    @app.stream_listener("orders", idempotent_by="payload.id")
    async def book(order: Order, session: Annotated[AsyncSession, InboxSession()]) -> None: ...

Each name is imported on first access (PEP 562): `SqlMarks` needs SQLAlchemy, `DjangoMarks` Django, `RedisMarks`
a client of Redis.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for type checkers; `_MODULES` says the same at run time
    from streamkit.patterns.inbox.django_marks import DjangoMarks as DjangoMarks
    from streamkit.patterns.inbox.inbox import InboxSession as InboxSession
    from streamkit.patterns.inbox.marks import Claim as Claim
    from streamkit.patterns.inbox.marks import Mark as Mark
    from streamkit.patterns.inbox.marks import MarkStore as MarkStore
    from streamkit.patterns.inbox.memory_marks import MemoryMarks as MemoryMarks
    from streamkit.patterns.inbox.message_key import MESSAGE_ID as MESSAGE_ID
    from streamkit.patterns.inbox.redis_marks import RedisMarks as RedisMarks
    from streamkit.patterns.inbox.sql_marks import SqlMarks as SqlMarks
    from streamkit.patterns.inbox.sql_marks import inbox_table as inbox_table

_MODULES = {
    "MESSAGE_ID": "streamkit.patterns.inbox.message_key",
    "Claim": "streamkit.patterns.inbox.marks",
    "DjangoMarks": "streamkit.patterns.inbox.django_marks",
    "InboxSession": "streamkit.patterns.inbox.inbox",
    "Mark": "streamkit.patterns.inbox.marks",
    "MarkStore": "streamkit.patterns.inbox.marks",
    "MemoryMarks": "streamkit.patterns.inbox.memory_marks",
    "RedisMarks": "streamkit.patterns.inbox.redis_marks",
    "SqlMarks": "streamkit.patterns.inbox.sql_marks",
    "inbox_table": "streamkit.patterns.inbox.sql_marks",
}

__all__ = [
    "MESSAGE_ID",
    "Claim",
    "DjangoMarks",
    "InboxSession",
    "Mark",
    "MarkStore",
    "MemoryMarks",
    "RedisMarks",
    "SqlMarks",
    "inbox_table",
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
