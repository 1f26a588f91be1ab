"""How a binding's headers travel: ``header-mode``.

::

    headers             as the messaging system's own; also when nothing is set
    embeddedHeaders     in front of the payload too, for readers of systems that carry none
    none                not at all: of what the application set only what steers the send reaches the system
"""

from collections.abc import Awaitable, Callable
from typing import Final

from streamkit.binder.batch import Batch
from streamkit.binder.embedded_headers import embed_headers, extract_headers
from streamkit.binder.sending import Writer
from streamkit.config.settings import HeaderMode
from streamkit.errors import MessageConversionError
from streamkit.messaging.headers import (
    DELAY,
    DELAY_LEVEL,
    DELIVER_AT,
    KEY,
    PARTITION,
    PARTITION_OVERRIDE,
    TAGS,
    MessageHeaders,
)
from streamkit.messaging.message import Message

__all__ = ["reading_in", "writing_in"]

Target = Callable[[Message[object]], Awaitable[object]]

# What is said to the messaging system and not to the receiver.
_STEERING: Final = frozenset(
    {KEY, TAGS, DELAY, DELIVER_AT, DELAY_LEVEL, PARTITION, PARTITION_OVERRIDE, "KEYS", "TAGS"}
)


def writing_in(mode: HeaderMode | None, write: Writer) -> Writer:
    """Return what writes messages whose headers travel in that mode."""
    if mode is HeaderMode.NONE:
        return lambda message: _bare(write(message))
    if mode is HeaderMode.EMBEDDED_HEADERS:
        return lambda message: _embedded(write(message))
    return write


def reading_in(mode: HeaderMode | None, target: Target) -> Target:
    """Return what gives ``target`` the messages with the headers that travelled in that mode."""
    if mode is not HeaderMode.EMBEDDED_HEADERS:
        return target
    return lambda message: target(_extracted(message))


def _bare(message: Message[bytes]) -> Message[bytes]:
    headers = message.headers
    return Message(message.payload, {name: headers[name] for name in _STEERING if name in headers})


def _embedded(message: Message[bytes]) -> Message[bytes]:
    told = {name: value for name, value in message.headers.user_values().items() if name not in _STEERING}
    try:
        return Message(embed_headers(message.payload, told), message.headers)
    except ValueError as error:
        raise MessageConversionError(str(error), message) from error


def _extracted(message: Message[object]) -> Message[object]:
    data = message.payload
    if isinstance(data, Batch):
        data.change(_extracted)
    if not isinstance(data, bytes):
        return message
    payload, headers = extract_headers(data)
    if not headers:
        return message
    # What the system carries itself, and what belongs to this call, wins.
    return Message(payload, MessageHeaders.adopt({**headers, **message.headers}))
