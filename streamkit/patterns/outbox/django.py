"""The outbox in transactions of Django's ORM; the row goes into the same table."""

from collections.abc import Mapping

from django.db import connections, transaction

from streamkit.listeners.listener import BindingName, name_of
from streamkit.patterns.outbox.errors import OutboxError
from streamkit.patterns.outbox.listening import CHANNEL
from streamkit.patterns.outbox.outbox import Outbox
from streamkit.patterns.outbox.tables import PRODUCER_TABLES

__all__ = ["django_send"]

_TABLE = PRODUCER_TABLES[0]
_COLUMNS = [column.name for column in _TABLE.columns if column.name != "id"]


def django_send(
    outbox: Outbox,
    output: BindingName,
    payload: object,
    headers: Mapping[str, object] | None = None,
    *,
    key: str | None = None,
    id: str | None = None,  # noqa: A002
    using: str | None = None,
) -> str:
    """Add a message to the transaction of Django that is open; it is sent if that commits, and never otherwise.

    The arguments are those of :meth:`streamkit.patterns.outbox.Outbox.send`.

    Args:
        outbox: The outbox; its engine names the database of the connection.
        using: The alias of Django's connection; the default one if not given.

    Returns:
        The id.

    Raises:
        OutboxError: No transaction is open, or the message cannot be kept.
        MessageConversionError: The payload cannot be converted.
    """
    alias = using or "default"
    connection = connections[alias]
    if not connection.in_atomic_block:
        raise OutboxError("no transaction is open here: send inside `with transaction.atomic():`")
    row = outbox.row(output, payload, headers, key=key, id=id)
    names = ", ".join(map(connection.ops.quote_name, _COLUMNS))
    places = ", ".join(["%s"] * len(_COLUMNS))
    with connection.cursor() as cursor:
        values = [getattr(row, name) for name in _COLUMNS]
        cursor.execute(f"INSERT INTO {_TABLE.name} ({names}) VALUES ({places})", values)
        if connection.vendor == "postgresql" and outbox.notifies:
            cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, row.topic])
    transaction.on_commit(lambda: outbox.wake(name_of(output)), using=alias)
    return row.msgid
