"""Trace records of sends and of the ends of transactions."""

from collections.abc import Sequence

from rocket_client.core.send_result import SendResult, SendStatus
from rocket_client.namespace import Namespace
from rocket_client.tracing.trace_writer import TraceWriter
from rocket_remoting.clock import Clock
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.message import Message
from rocket_remoting.wire.message_id import parse_offset_id
from rocket_remoting.wire.message_trace import DEFAULT_REGION, MessageType, TraceRecord, TraceType
from rocket_remoting.wire.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_MSG_REGION,
    PROPERTY_TRANSACTION_PREPARED,
    TIMER_PROPERTIES,
)

__all__ = ["SendTraces"]


class SendTraces:
    """Writes what one producer sends.

    Args:
        writer: Writes the records.
        group: The group, with its namespace.
        namespace: The namespace, which records do not have.
        clock: The clock of timestamps.
    """

    def __init__(self, writer: TraceWriter, group: str, namespace: Namespace, clock: Clock) -> None:
        self._writer = writer
        self._group = namespace.unwrap(group)
        self._namespace = namespace
        self._clock = clock

    def __repr__(self) -> str:
        return f"SendTraces({self._group!r}, {self._writer!r})"

    def now_ms(self) -> int:
        """Return the present time, for `sent`."""
        return self._clock.now_ms()

    async def close(self) -> None:
        """Write what waits."""
        await self._writer.close()

    def sent(self, messages: Sequence[Message], result: SendResult, began_ms: int) -> None:
        """Write that a broker has stored a message, or the messages of a batch.

        Args:
            messages: The messages.
            result: The result of the send.
            began_ms: The time when the send began, in milliseconds since 1970.
        """
        region = result.region
        if region is None or messages[0].topic == self._writer.topic:
            return
        cost = self._clock.now_ms() - began_ms
        # What the application may change afterwards is read now; records are made when they are written.
        sent = [(message.topic, message.tags, message.keys, len(message.body), _type(message)) for message in messages]
        self._writer.add(lambda: self._records(sent, result, region, began_ms, cost))

    def ended(self, message: Message, result: SendResult, state: str) -> None:
        """Write that a transaction was ended, with its state in Apache's words."""
        region = result.region or DEFAULT_REGION
        self._end(message, result.msg_id, result.transaction_id, result.offset_msg_id, region, state, from_check=False)

    def ended_by_check(self, message: Message, msg_id: str, transaction_id: str | None, state: str) -> None:
        """Write that the answer to a check has ended a transaction."""
        region = message.properties.get(PROPERTY_MSG_REGION, DEFAULT_REGION)
        self._end(message, msg_id, transaction_id, None, region, state, from_check=True)

    def _end(  # noqa: PLR0917
        self,
        message: Message,
        msg_id: str,
        transaction_id: str | None,
        offset_id: str | None,
        region: str,
        state: str,
        *,
        from_check: bool,
    ) -> None:
        record = TraceRecord(
            type=TraceType.END_TRANSACTION, time_ms=self._clock.now_ms(), region=region, group=self._group,
            topic=self._namespace.unwrap(message.topic), msg_id=msg_id, tags=message.tags, keys=message.keys,
            store_host=_host(offset_id), message_type=MessageType.TRANSACTION_COMMIT, transaction_id=transaction_id,
            transaction_state=state, from_check=from_check,
        )  # fmt: skip
        self._writer.add(lambda: [record])

    def _records(
        self,
        sent: list[tuple[str, str | None, str | None, int, MessageType]],
        result: SendResult,
        region: str,
        began_ms: int,
        cost_ms: int,
    ) -> list[TraceRecord]:
        ids, offset_ids = result.msg_id.split(","), result.offset_msg_id.split(",")
        if len(offset_ids) != len(ids):  # a broker may give a batch one id
            offset_ids = [result.offset_msg_id] * len(ids)
        return [
            TraceRecord(
                type=TraceType.PUB, time_ms=began_ms, region=region, group=self._group,
                topic=self._namespace.unwrap(topic), msg_id=msg_id, tags=tags, keys=keys, store_host=_host(offset_id),
                body_length=length, cost_ms=cost_ms, message_type=kind, offset_msg_id=offset_id,
                success=result.status is SendStatus.SEND_OK,
            )
            for (topic, tags, keys, length, kind), msg_id, offset_id in zip(sent, ids, offset_ids, strict=False)
        ]  # fmt: skip


def _type(message: Message) -> MessageType:
    properties = message.properties
    if PROPERTY_TRANSACTION_PREPARED in properties:
        return MessageType.TRANSACTION_HALF
    if PROPERTY_DELAY_TIME_LEVEL in properties or not TIMER_PROPERTIES.isdisjoint(properties):
        return MessageType.DELAY
    return MessageType.NORMAL


def _host(offset_id: str | None) -> str | None:
    """Return the broker's address, which an offset id has."""
    try:
        host, port, _ = parse_offset_id(offset_id or "")
    except (ValueError, RemotingError):
        return None
    return f"{host}:{port}"
