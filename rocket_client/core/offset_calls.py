"""The calls to a queue's broker about offsets. This module does no I/O."""

from rocket_client.core.call import Call
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocket_remoting.wire.message import MessageQueue

_FOUND_OR_NOT = frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.QUERY_NOT_FOUND)})


def min_offset(queue: MessageQueue) -> Call[int]:
    """Return the call for the offset of the queue's oldest message."""
    header = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
    return Call(RequestCode.GET_MIN_OFFSET, header, lambda answer: answer.header(GetMinOffsetResponseHeader).offset)


def max_offset(queue: MessageQueue) -> Call[int]:
    """Return the call for the offset that the queue's next message will get."""
    header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
    return Call(RequestCode.GET_MAX_OFFSET, header, lambda answer: answer.header(GetMaxOffsetResponseHeader).offset)


def search_offset(queue: MessageQueue, timestamp_ms: int) -> Call[int]:
    """Return the call for the offset of the message stored at a time, in milliseconds since the epoch.

    Apache's brokers return the nearest message on 4.9, the next one on 5.x.
    """
    header = SearchOffsetRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms, broker_name=queue.broker_name
    )
    return Call(
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        header,
        lambda answer: answer.header(SearchOffsetResponseHeader).offset,
    )


def committed_offset(queue: MessageQueue, group: str, *, zero_if_young: bool = True) -> Call[int | None]:
    """Return the call for the group's committed offset; the result is None if the group has committed none.

    Args:
        queue: The queue.
        group: The group.
        zero_if_young: Whether the broker may answer 0 if the group has committed none, but the queue still has its
            first message and is young. Apache's brokers of 4.9 do so in any case.
    """
    header = QueryConsumerOffsetRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        broker_name=queue.broker_name,
        set_zero_if_not_found=None if zero_if_young else False,
    )
    return Call(RequestCode.QUERY_CONSUMER_OFFSET, header, _committed, _FOUND_OR_NOT)


def _committed(answer: RemotingCommand) -> int | None:
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    return answer.header(QueryConsumerOffsetResponseHeader).offset


def commit_offset(queue: MessageQueue, group: str, offset: int) -> Call[None]:
    """Return the call that commits an offset of the group."""
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=offset,
        broker_name=queue.broker_name,
    )
    return Call(RequestCode.UPDATE_CONSUMER_OFFSET, header, lambda _: None)
