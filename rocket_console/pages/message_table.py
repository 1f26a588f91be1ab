"""The table of messages, wherever messages are listed: each row leads to the page of its message."""

from collections.abc import Iterable
from typing import Final

from rocket_admin.messages import StoredMessage
from rocket_console.rendering.addresses import address
from rocket_console.rendering.formats import Format
from rocket_console.tables.table import Column, Table
from rocket_remoting.wire.message import MessageExt

__all__ = ["MESSAGES", "stored"]

MESSAGES: Final[Table[StoredMessage]] = Table(
    name="messages",
    caption="Messages",
    empty="There is no message here. Send one with the tab Send, or with `streamkit message send`.",
    columns=(
        Column(
            name="message_id",
            title="Message",
            value=lambda message: message.message_id,
            link=lambda message: address("messages", message.offset_message_id),
        ),
        Column(name="stored_at", title="Stored (UTC)", value=lambda message: message.stored_at, format=Format.TIME),
        Column(name="broker", title="Broker", value=lambda message: message.broker),
        Column(name="queue", title="Queue", value=lambda message: message.queue, format=Format.NUMBER),
        Column(name="offset", title="Offset", value=lambda message: message.offset, format=Format.NUMBER),
        Column(name="tags", title="Tag", value=lambda message: message.tags),
        Column(name="keys", title="Keys", value=lambda message: message.keys),
        Column(name="size", title="Size", value=lambda message: message.body_size, format=Format.SIZE),
        Column(name="body", title="Body", value=lambda message: message.body),
    ),
)


def stored(messages: Iterable[MessageExt]) -> list[StoredMessage]:
    """Return messages as rows of the table."""
    return [StoredMessage.of(message) for message in messages]
