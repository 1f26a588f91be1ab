"""The requests that carry rows to a broker."""

from pyspark_rocketmq.options import SinkOptions
from rocket_client.blocking import MessageQueue, Request
from rocket_remoting.clock import SystemClock
from rocket_remoting.wire.batch import decode_batch
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.deduplication import SEND_DEDUPLICATED
from rocket_remoting.wire.headers import SendDeduplicatedRequestHeader, SendMessageRequestHeaderV2
from rocket_remoting.wire.topics import AUTO_CREATE_TOPIC

DEFAULT_QUEUES = 4
"""The number of queues of a topic that is created because a row names it."""

_clock = SystemClock()


def batch_request(options: SinkOptions, queue: MessageQueue, body: memoryview) -> Request:
    """Return the request that sends a batch."""
    return Request(RequestCode.SEND_BATCH_MESSAGE, _header(options, queue, batch=True), body)


def single_request(
    options: SinkOptions,
    queue: MessageQueue,
    body: bytes | memoryview,
    properties: str | None = None,
    flag: int = 0,
) -> Request:
    """Return the request for one message: its body or, without properties, a batch of this message alone."""
    if properties is None:
        (entry,) = decode_batch(body)
        flag, body, properties = entry.flag, entry.body, entry.properties.decode()
    header = _header(options, queue, properties=properties, flag=flag)
    return Request(RequestCode.SEND_MESSAGE_V2, header, body)


def deduplicated_request(
    options: SinkOptions,
    queue: MessageQueue,
    body: bytes | memoryview,
    *,
    writer: str,
    epoch: int,
    sequence: int,
) -> Request:
    """Return the request for a batch that is stored once; without a body it asks whether the broker supports that."""
    header = SendDeduplicatedRequestHeader(
        producer_group=options.cluster.group,
        topic=queue.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=DEFAULT_QUEUES,
        queue_id=queue.queue_id,
        sys_flag=0,
        born_timestamp=_clock.now_ms(),
        flag=0,
        properties="",
        batch=True,
        writer=writer,
        epoch=epoch,
        sequence=sequence,
    )
    return Request(SEND_DEDUPLICATED, header, body)


def _header(
    options: SinkOptions, queue: MessageQueue, *, properties: str = "", flag: int = 0, batch: bool = False
) -> SendMessageRequestHeaderV2:
    return SendMessageRequestHeaderV2(
        producer_group=options.cluster.group,
        topic=queue.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=DEFAULT_QUEUES,
        queue_id=queue.queue_id,
        sys_flag=0,
        born_timestamp=_clock.now_ms(),
        flag=flag,
        properties=properties,
        reconsume_times=0,
        batch=batch,
        broker_name=queue.broker_name,
    )
