"""CloudEvents 1.0: the attributes are headers ``ce-type``, ``ce-source`` …, the data is the payload.

An event can arrive in any of these forms::

    binary, by Spring, over HTTP    ce-type: order.paid      payload: data
    binary, on Kafka                ce_type: order.paid      payload: data
    binary, AMQP                    cloudEvents:type         payload: data
    binary, Apache's RocketMQ SDK   CE_type                  payload: data, CE_contenttype: its type
    structured                      contentType: application/cloudevents+json
                                    payload: {"specversion": "1.0", "type": "order.paid", …, "data": …}

:func:`cloud_event` creates a message of the first form. :class:`CloudEvents`, an interceptor of an input's channel,
converts every form to the first.
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
"""The most attributes of a structured event. Each becomes a header, and a payload can embed this many headers."""


def cloud_event(
    data: object,
    *,
    type: str,  # noqa: A002  # the name of the attribute in CloudEvents
    source: str,
    id: str | None = None,  # noqa: A002  # likewise
    subject: str | None = None,
    time: datetime | None = None,
    prefix: str = PREFIX,
    **extensions: str,
) -> Message[object]:
    """Return an event as a message, to be sent or returned.

    Args:
        data: The event's data; the payload of the message, converted like any other.
        type: The kind of event, such as ``com.example.order.paid``.
        source: The context of the event, a URI reference; `source` and `id` together identify the event.
        id: The event's id; a new UUID if not given.
        subject: The subject of the event within the source.
        time: When the event happened, with a time zone.
        prefix: The prefix of the headers that readers of the destination expect: ``ce_`` on Kafka.
        extensions: Extension attributes.

    Returns:
        The message.

    Raises:
        ValueError: The time has no time zone.
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
    """Converts CloudEvents of every form to headers ``ce-…`` and data; other messages pass unchanged.

    ::

        app.add_interceptor(CloudEvents(), "orders")

        @app.stream_listener("orders", condition="headers['ce-type'] == 'order.paid'")
        async def paid(order: Order, source: Annotated[str, Header("ce-source")]) -> None: ...
    """

    def pre_send(self, message: Message[object], channel: "MessageChannel") -> Message[object]:
        """Return the message with the attributes of its event as headers ``ce-…``.

        Of a batch, each message is converted.

        Raises:
            MessageConversionError: The content type announces a structured event that the payload is not, or a batch
                of CloudEvents.
        """
        batch = message.payload
        if isinstance(batch, Batch):
            batch.change(_in_one_form)
            return message
        return _in_one_form(message)

    def __repr__(self) -> str:
        return "CloudEvents()"


class _Envelope(msgspec.Struct):
    """The required attributes of a structured event; the others are decoded separately."""

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
        return _decoded_event(message, message.payload)
    attributes = dict(_attributes(headers))
    if "specversion" not in attributes:
        return message
    added: dict[str, object] = {PREFIX + name: value for name, value in attributes.items()}
    data_type = attributes.get("datacontenttype") or headers.get(_ROCKETMQ_CONTENT_TYPE)
    if data_type is not None and headers.content_type is None:
        added[CONTENT_TYPE] = data_type
    return Message(message.payload, MessageHeaders.adopt({**headers, **added}))


def _attributes(headers: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in headers.items():
        for prefix in _PREFIXES:
            if name.startswith(prefix) and name != _ROCKETMQ_CONTENT_TYPE:
                yield name.removeprefix(prefix), value
                break


def _decoded_event(message: Message[object], envelope: bytes) -> Message[object]:
    """Return the message of a structured event: the event's data as payload, its attributes as headers.

    Raises:
        MessageConversionError: The payload is not a CloudEvent, or exceeds the limits of this module.
    """
    try:
        require_readable_json(envelope)
        _decode_envelope(envelope)
        members = _decode_members(envelope)
        data = _data(members)
        added: dict[str, object] = {CONTENT_TYPE: _JSON, **dict(_attribute_headers(members))}
    except (ValueError, LookupError, RecursionError) as error:
        raise MessageConversionError(f"this is not a CloudEvent in JSON: {error}", message) from error
    if PREFIX + "datacontenttype" in added:
        added[CONTENT_TYPE] = added[PREFIX + "datacontenttype"]
    return Message(data, MessageHeaders.adopt({**message.headers, **added}))


def _attribute_headers(members: Mapping[str, msgspec.Raw]) -> Iterator[tuple[str, object]]:
    """Yield the attributes as headers; attributes that are null are skipped.

    Raises:
        ValueError: There are more than `MAX_ATTRIBUTES`, or an attribute is neither text nor a number nor a boolean.
    """
    if len(members) > MAX_ATTRIBUTES:
        raise ValueError(f"it has {len(members)} attributes, more than the limit of {MAX_ATTRIBUTES}")
    for name, raw in members.items():
        value = _decode_attribute(raw)
        if value is not None:
            yield PREFIX + name, value


def _data(members: dict[str, msgspec.Raw]) -> bytes:
    """Remove the data from an event's members, and return the bytes that the payload consists of."""
    encoded, data = members.pop("data_base64", None), members.pop("data", None)
    if encoded is not None:
        return base64.b64decode(_decode_text(encoded), validate=True)
    if data is None:
        return b""
    # A JSON string becomes its text without quotes, also under a JSON content type, like every text payload here.
    return _text(_decode_text(data), members) if memoryview(data)[:1].tobytes() == b'"' else bytes(data)


def _text(text: str, members: Mapping[str, msgspec.Raw]) -> bytes:
    """Return the text, encoded by the character set of the event's content type."""
    declared = members.get("datacontenttype")
    mime = MimeType.parse(_decode_text(declared)) if declared is not None else None
    if mime is None or mime.is_json:
        return text.encode()
    return text_codec(mime.charset).encode(text)[0]
