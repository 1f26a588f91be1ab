"""Trace records of listener calls: one when the call begins, one when it has ended, for each message."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from rocket_client.consuming.listener import ConsumeContext, Success
from rocket_client.namespace import Namespace
from rocket_client.tracing.trace_writer import TraceWriter
from rocket_remoting.clock import Clock
from rocket_remoting.wire.message import MessageExt
from rocket_remoting.wire.message_id import UniqueIdGenerator
from rocket_remoting.wire.message_trace import DEFAULT_REGION, ConsumeCode, TraceRecord, TraceType
from rocket_remoting.wire.properties import PROPERTY_MSG_REGION, PROPERTY_TRACE_SWITCH

__all__ = ["codes_of", "traced"]

O = TypeVar("O")  # noqa: E741 - an outcome


def traced(
    listener: Callable[[list[MessageExt], ConsumeContext], Awaitable[O]],
    writer: TraceWriter,
    namespace: Namespace,
    clock: Clock,
    unique_ids: UniqueIdGenerator,
) -> Callable[[list[MessageExt], ConsumeContext], Awaitable[O]]:
    """Return a listener that calls another one and writes its calls.

    Args:
        listener: The application's listener.
        writer: Writes the records.
        namespace: The namespace, which records do not have.
        clock: The clock of timestamps.
        unique_ids: Makes the id that the records of a call share.
    """

    async def call(messages: list[MessageExt], context: ConsumeContext) -> O:
        seen = [
            (number, message.topic, message.msg_id, message.keys, message.reconsume_times,
             message.properties.get(PROPERTY_MSG_REGION, DEFAULT_REGION))
            for number, message in enumerate(messages)
            if message.properties.get(PROPERTY_TRACE_SWITCH) != "false" and message.topic != writer.topic
        ]  # fmt: skip
        if not seen:
            return await listener(messages, context)
        request_id, group, began_ms = unique_ids.create(), namespace.unwrap(context.group), clock.now_ms()
        writer.add(
            lambda: [
                TraceRecord(
                    type=TraceType.SUB_BEFORE, time_ms=began_ms, region=region, group=group, topic=topic, msg_id=msg_id,
                    keys=keys, request_id=request_id, retry_times=times,
                )
                for _, topic, msg_id, keys, times, region in seen
            ]
        )  # fmt: skip

        def ended(codes: Sequence[ConsumeCode]) -> None:
            now_ms = clock.now_ms()
            writer.add(
                lambda: [
                    TraceRecord(
                        type=TraceType.SUB_AFTER, time_ms=now_ms, group=group, topic=topic, msg_id=msg_id, keys=keys,
                        request_id=request_id, cost_ms=(now_ms - began_ms) // len(messages), code=codes[number],
                        success=codes[number] is ConsumeCode.SUCCESS,
                    )
                    for number, topic, msg_id, keys, _, _ in seen
                ]
            )  # fmt: skip

        try:
            outcome = await listener(messages, context)
        except BaseException:
            ended([ConsumeCode.EXCEPTION] * len(messages))
            raise
        ended(codes_of(outcome, len(messages)))
        return outcome

    return call


def codes_of(outcome: object, count: int) -> list[ConsumeCode]:
    """Return how the call ended for each message."""
    if isinstance(outcome, Success) and outcome.ack_index is not None:
        done = min(max(outcome.ack_index + 1, 0), count)
        return [ConsumeCode.SUCCESS] * done + [ConsumeCode.FAILED] * (count - done)
    outcomes = list(outcome) if isinstance(outcome, Sequence) and len(outcome) == count else [outcome] * count
    return [
        ConsumeCode.SUCCESS if each is None or isinstance(each, Success) else ConsumeCode.FAILED for each in outcomes
    ]
