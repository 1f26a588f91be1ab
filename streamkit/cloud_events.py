"""CloudEvents 1.0: attributes are headers ``ce-type``, ``ce-source`` …, the data is the payload.

::

    binary, by Spring, over HTTP    ce-type: order.paid      payload: data
    binary, on Kafka                ce_type: order.paid      payload: data
    binary, AMQP                    cloudEvents:type         payload: data
    binary, Apache's RocketMQ SDK   CE_type                  payload: data, CE_contenttype: its type
    structured                      contentType: application/cloudevents+json
                                    payload: {"specversion": "1.0", "type": "order.paid", …, "data": …}

:func:`cloud_event` makes a message of the first form. :class:`CloudEvents`, on the channel of an input, turns what
comes in any of them into it.
"""

import base64
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from streamkit.binder.batch import Batch
from streamkit.errors import MessageConversionError
from streamkit.messaging.charset import text_codec
from streamkit.messaging.document_limits import require_readable_json
from streamkit.messaging.headers import CONTENT_TYPE, MessageHeaders, new_id
from streamkit.messaging.interceptor import ChannelInterceptor
from streamkit.messaging.message import Message
from streamkit.messaging.mime import MimeType

if TYPE_CHECKING:
    from streamkit.messaging.message_channel import MessageChannel

__all__ = ["CloudEvents", "cloud_event"]

PREFIX: Final = "ce-"
_PREFIXES: Final = (PREFIX, "ce_", "CE_", "cloudEvents:", "cloudEvents_")
_ROCKETMQ_CONTENT_TYPE: Final = "CE_contenttype"
_STRUCTURED: Final = "application/cloudevents+json"
_BATCHED: Final = "application/cloudevents-batch"
_JSON: Final = "application/json"

MAX_ATTRIBUTES: Final = 255
"""Attributes of a structured event: each becomes a header, and as many headers can be embedded in a payload."""


def cloud_event(
    data: object,
    *,
    type: str,  # noqa: A002  # the attribute's name
    source: str,
    id: str | None = None,  # noqa: A002  # likewise
    subject: str | None = None,
    time: datetime | None = None,
    prefix: str = PREFIX,
    **extensions: str,
) -> Message[object]:
    """Return an event as a message to send, to return or to give `StreamBridge`.

    Args:
        data: Its payload, converted as any other.
        type: What happened, such as ``com.example.order.paid``.
        source: Where it happened, a URI reference; with `id` it tells the event from all others.
        id: A new UUID, if not given.
        subject: Whom it happened to.
        time: When it happened, with a time zone.
        prefix: What readers of the destination look for: ``ce_`` on Kafka.
        extensions: Further attributes.

    Raises:
        ValueError: The time has no zone.
    """
    if time is not None and time.tzinfo is None:
        raise ValueError(f"the time of a CloudEvent needs a zone, and {time} has none")
    attributes = {
        "specversion": "1.0",
        "id": id or new_id(),
        "source": source,
        "type": type,
        "subject": subject,
        "time": None if time is None else time.isoformat(),
        **extensions,
    }
    return Message(data, {prefix + name: value for name, value in attributes.items() if value is not None})


class CloudEvents(ChannelInterceptor):
    """Lets listeners see events in one form, whatever form they were sent in; other messages pass as they are.

    ::

        app.add_interceptor(CloudEvents(), "orders")

        @app.stream_listener("orders", condition="headers['ce-type'] == 'order.paid'")
        async def paid(order: Order, source: Annotated[str, Header("ce-source")]) -> None: ...
    """

    def pre_send(self, message: Message[object], channel: "MessageChannel") -> Message[object]:
        """Return the event with its attributes as headers ``ce-…``.

        Raises:
            MessageConversionError: The content type says that it is a structured event, and the payload is none.
        """
        batch = message.payload
        if isinstance(batch, Batch):
            batch.change(_in_one_form)
            return message
        return _in_one_form(message)

    def __repr__(self) -> str:
        return "CloudEvents()"


class _Envelope(msgspec.Struct):
    """What a structured event must have; its other attributes are read with it."""

    specversion: Annotated[str, msgspec.Meta(min_length=1)]
    id: Annotated[str, msgspec.Meta(min_length=1)]
    source: Annotated[str, msgspec.Meta(min_length=1)]
    type: Annotated[str, msgspec.Meta(min_length=1)]


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_attribute = msgspec.json.Decoder(str | int | float | bool | None).decode
_decode_text = msgspec.json.Decoder(str).decode


def _in_one_form(message: Message[object]) -> Message[object]:
    headers = message.headers
    content_type = str(headers.get(_ROCKETMQ_CONTENT_TYPE) or headers.content_type or "").lower()
    if content_type.startswith(_BATCHED):
        raise MessageConversionError("a batch of CloudEvents in one message cannot be read", message)
    if content_type.startswith(_STRUCTURED) and isinstance(message.payload, bytes):
        return _opened(message, message.payload)
    attributes = dict(_attributes(headers))
    if "specversion" not in attributes:
        return message
    told: dict[str, object] = {PREFIX + name: value for name, value in attributes.items()}
    data_type = attributes.get("datacontenttype") or headers.get(_ROCKETMQ_CONTENT_TYPE)
    if data_type is not None and headers.content_type is None:
        told[CONTENT_TYPE] = data_type
    return Message(message.payload, MessageHeaders.adopt({**headers, **told}))


def _attributes(headers: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in headers.items():
        for prefix in _PREFIXES:
            if name.startswith(prefix) and name != _ROCKETMQ_CONTENT_TYPE:
                yield name.removeprefix(prefix), value
                break


def _opened(message: Message[object], envelope: bytes) -> Message[object]:
    """Return the message of a structured event: its data as payload, its attributes as headers.

    Raises:
        MessageConversionError: The payload is no CloudEvent, or is beyond the limits of this module.
    """
    try:
        require_readable_json(envelope)
        _decode_envelope(envelope)
        members = _decode_members(envelope)
        data = _data(members)
        told: dict[str, object] = {CONTENT_TYPE: _JSON, **dict(_told(members))}
    except (ValueError, LookupError, RecursionError) as error:
        raise MessageConversionError(f"this is no CloudEvent as JSON: {error}", message) from error
    if PREFIX + "datacontenttype" in told:
        told[CONTENT_TYPE] = told[PREFIX + "datacontenttype"]
    return Message(data, MessageHeaders.adopt({**message.headers, **told}))


def _told(members: Mapping[str, msgspec.Raw]) -> Iterator[tuple[str, object]]:
    """Yield the attributes as headers; an attribute that is null is none.

    Raises:
        ValueError: There are too many, or an attribute is neither text nor a number nor a boolean.
    """
    if len(members) > MAX_ATTRIBUTES:
        raise ValueError(f"it has {len(members)} attributes, more than the limit of {MAX_ATTRIBUTES}")
    for name, raw in members.items():
        value = _decode_attribute(raw)
        if value is not None:
            yield PREFIX + name, value


def _data(members: dict[str, msgspec.Raw]) -> bytes:
    """Take the data out of an event's members: as it would travel by itself."""
    encoded, data = members.pop("data_base64", None), members.pop("data", None)
    if encoded is not None:
        return base64.b64decode(_decode_text(encoded), validate=True)
    if data is None:
        return b""
    # Text goes without quotes, under JSON too, as everywhere here.
    return _text(_decode_text(data), members) if memoryview(data)[:1].tobytes() == b'"' else bytes(data)


def _text(text: str, members: Mapping[str, msgspec.Raw]) -> bytes:
    """Return the text as the event's content type says it is written."""
    declared = members.get("datacontenttype")
    mime = MimeType.parse(_decode_text(declared)) if declared is not None else None
    if mime is None or mime.is_json:
        return text.encode()
    return text_codec(mime.charset).encode(text)[0]
