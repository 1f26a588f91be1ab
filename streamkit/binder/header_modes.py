"""The setting ``header-mode``: how a binding's headers are transferred.

::

    headers             as the messaging system's own headers; the default
    embeddedHeaders     also in front of the payload, for readers of systems without headers
    none                not at all; only the headers that control the send, such as key and delay, reach the system
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
    RECEIPT,
    TAGS,
    MessageHeaders,
)
from streamkit.messaging.message import Message

__all__ = ["reading_in", "writing_in"]

Target = Callable[[Message[object]], Awaitable[object]]

# The headers that control the send; they are for the messaging system and not for the receiver.
_STEERING: Final = frozenset(
    {KEY, TAGS, DELAY, DELIVER_AT, DELAY_LEVEL, PARTITION, PARTITION_OVERRIDE, RECEIPT, "KEYS", "TAGS"}
)


def writing_in(mode: HeaderMode | None, write: Writer) -> Writer:
    """Return a writer that writes a message with ``write`` and applies the header mode; None is ``headers``."""
    if mode is HeaderMode.NONE:
        return lambda message: _bare(write(message))
    if mode is HeaderMode.EMBEDDED_HEADERS:
        return lambda message: _embedded(write(message))
    return write


def reading_in(mode: HeaderMode | None, target: Target) -> Target:
    """Return a target that reads the headers of that mode and calls ``target``; None is ``headers``."""
    if mode is not HeaderMode.EMBEDDED_HEADERS:
        return target
    return lambda message: target(_extracted(message))


def _bare(message: Message[bytes]) -> Message[bytes]:
    headers = message.headers
    return Message(message.payload, {name: headers[name] for name in _STEERING if name in headers})


def _embedded(message: Message[bytes]) -> Message[bytes]:
    embedded = {name: value for name, value in message.headers.user_values().items() if name not in _STEERING}
    try:
        return Message(embed_headers(message.payload, embedded), message.headers)
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
    # The system's own headers, and the framework's headers of this call, override embedded headers.
    return Message(payload, MessageHeaders.adopt({**headers, **message.headers}), message.conversions)
