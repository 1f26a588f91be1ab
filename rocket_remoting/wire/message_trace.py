"""Records of a message trace, as Apache's TraceDataEncoder writes them. This module does no I/O.

The body of a message of the trace topic has one record after the other; the fields of a record are texts::

    Pub            time region group topic id tags keys store-host body-length cost type offset-id success
    SubBefore      time region group request id retries keys
    SubAfter       request id cost success keys code time group
    EndTransaction time region group topic id tags keys store-host type transaction state from-check
    Recall         time region group topic id success

    field \\x01 field \\x01 … field \\x02                                 time and cost in milliseconds

Its property KEYS has the ids and keys of the traced messages, by which tools find it. Fields that are missing are
written as ``null``, as in Java.
"""

from collections.abc import Iterable
from enum import IntEnum, StrEnum

import msgspec

__all__ = [
    "DEFAULT_REGION",
    "ConsumeCode",
    "MessageType",
    "TraceRecord",
    "TraceType",
    "decode_trace",
    "encode_trace",
]

DEFAULT_REGION = "DefaultRegion"
"""The region of a message whose broker stored none."""

_FIELD, _RECORD = "\x01", "\x02"


class TraceType(StrEnum):
    """The event that a record describes."""

    PUB = "Pub"
    """A message was sent."""
    SUB_BEFORE = "SubBefore"
    """A listener is called."""
    SUB_AFTER = "SubAfter"
    """The call has ended."""
    END_TRANSACTION = "EndTransaction"
    """A transaction was ended."""
    RECALL = "Recall"
    """A timed message was recalled."""


class MessageType(IntEnum):
    """The kind of a sent message."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3
    ORDER = 4


class ConsumeCode(IntEnum):
    """How a listener call ended."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURN_NULL = 3
    FAILED = 4


class TraceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One record; only the fields of its type have a meaning.

    Attributes:
        type: The event that the record describes.
        msg_id: Unique id of the message.
        time_ms: When it was sent, the call began or ended, or the transaction ended, in milliseconds since 1970.
        region: Region of the broker.
        group: The producer's or consumer's group, without its namespace.
        topic: Topic of the message, without its namespace. Records of consumption have none.
        tags: Tags of the message.
        keys: Keys of the message, separated by blanks.
        store_host: Address of the broker.
        body_length: Bytes of the body.
        cost_ms: How long the send or the call took, in milliseconds.
        message_type: The kind of the sent message.
        offset_msg_id: The broker's id of the message.
        success: Whether the send or the call succeeded.
        request_id: Id that the records of one call share.
        retry_times: Number of redeliveries before this call.
        code: How the call ended.
        transaction_id: Id of the transaction.
        transaction_state: ``COMMIT_MESSAGE``, ``ROLLBACK_MESSAGE`` or ``UNKNOW``.
        from_check: Whether the transaction was ended by the answer to a check.
        client_host: Address of the client that wrote the record, which the stored message has; unset before.
    """

    type: TraceType
    msg_id: str
    time_ms: int = 0
    region: str = ""
    group: str = ""
    topic: str = ""
    tags: str | None = None
    keys: str | None = None
    store_host: str | None = None
    body_length: int = 0
    cost_ms: int = 0
    message_type: MessageType = MessageType.NORMAL
    offset_msg_id: str | None = None
    success: bool = True
    request_id: str = ""
    retry_times: int = 0
    code: int = ConsumeCode.SUCCESS
    transaction_id: str | None = None
    transaction_state: str | None = None
    from_check: bool = False
    client_host: str | None = None

    @property
    def search_keys(self) -> set[str]:
        """The keys by which tools find the record: the message's id and its own keys."""
        return {self.msg_id, *(self.keys or "").split()}


def encode_trace(records: Iterable[TraceRecord]) -> str:
    """Return the body of a message of the trace topic, as text."""
    return "".join([_FIELD.join(map(_text, _fields(record))) + _RECORD for record in records])


def decode_trace(text: str) -> list[TraceRecord]:
    """Return the records in the body of a message of the trace topic; those that cannot be read are left out."""
    records = []
    for line in text.split(_RECORD):
        fields = line.split(_FIELD)
        try:
            records.append(_record(TraceType(fields[0]), fields[1:]))
        except (ValueError, IndexError):
            continue
    return records


def _fields(r: TraceRecord) -> tuple[object, ...]:
    match r.type:
        case TraceType.PUB:
            return (
                r.type, r.time_ms, r.region, r.group, r.topic, r.msg_id, r.tags, r.keys, r.store_host, r.body_length,
                r.cost_ms, r.message_type, r.offset_msg_id, r.success,
            )  # fmt: skip
        case TraceType.SUB_BEFORE:
            return r.type, r.time_ms, r.region, r.group, r.request_id, r.msg_id, r.retry_times, r.keys
        case TraceType.SUB_AFTER:
            return r.type, r.request_id, r.msg_id, r.cost_ms, r.success, r.keys, r.code, r.time_ms, r.group
        case TraceType.END_TRANSACTION:
            return (
                r.type, r.time_ms, r.region, r.group, r.topic, r.msg_id, r.tags, r.keys, r.store_host, r.message_type,
                r.transaction_id, r.transaction_state, r.from_check,
            )  # fmt: skip
        case TraceType.RECALL:
            return r.type, r.time_ms, r.region, r.group, r.topic, r.msg_id, r.success


def _text(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, IntEnum):
        return str(int(value))
    # A separator inside of a field would end it.
    return str(value).replace(_FIELD, " ").replace(_RECORD, " ")


def _record(type_: TraceType, f: list[str]) -> TraceRecord:
    match type_:
        case TraceType.PUB:
            # Clients before 4.3 wrote no offset id.
            offset_id, success = (None, f[11]) if len(f) == 12 else (_optional(f[11]), f[12])
            return TraceRecord(
                type=type_, time_ms=int(f[0]), region=f[1], group=f[2], topic=f[3], msg_id=f[4], tags=_optional(f[5]),
                keys=_optional(f[6]), store_host=_optional(f[7]), body_length=int(f[8]), cost_ms=int(f[9]),
                message_type=MessageType(int(f[10])), offset_msg_id=offset_id, success=success == "true",
            )  # fmt: skip
        case TraceType.SUB_BEFORE:
            return TraceRecord(
                type=type_, time_ms=int(f[0]), region=f[1], group=f[2], request_id=f[3], msg_id=f[4],
                retry_times=int(f[5]), keys=_optional(f[6]),
            )  # fmt: skip
        case TraceType.SUB_AFTER:
            return TraceRecord(
                type=type_, request_id=f[0], msg_id=f[1], cost_ms=int(f[2]), success=f[3] == "true",
                keys=_optional(f[4]), code=int(f[5]) if len(f) > 5 and f[5] else 0,
                time_ms=int(f[6]) if len(f) > 7 else 0, group=f[7] if len(f) > 7 else "",
            )  # fmt: skip
        case TraceType.END_TRANSACTION:
            return TraceRecord(
                type=type_, time_ms=int(f[0]), region=f[1], group=f[2], topic=f[3], msg_id=f[4], tags=_optional(f[5]),
                keys=_optional(f[6]), store_host=_optional(f[7]), message_type=MessageType(int(f[8])),
                transaction_id=_optional(f[9]), transaction_state=f[10], from_check=f[11] == "true",
            )  # fmt: skip
        case TraceType.RECALL:
            return TraceRecord(
                type=type_, time_ms=int(f[0]), region=f[1], group=f[2], topic=f[3], msg_id=f[4], success=f[5] == "true"
            )


def _optional(text: str) -> str | None:
    return None if text in ("null", "") else text
