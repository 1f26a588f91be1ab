"""Headers of requests that bring messages to a broker, and of their answers."""

import msgspec

from rocket_remoting.wire.ext_fields import Header, Int, Long
from rocket_remoting.wire.headers.rpc import RpcRequestHeader, TopicRequestHeader


class SendMessageRequestHeader(TopicRequestHeader, kw_only=True):
    """SEND_MESSAGE (10) and SEND_REPLY_MESSAGE (324); the message's body is the command's."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool = False
    batch: bool = False
    max_reconsume_times: Int | None = None


class SendMessageRequestHeaderV2(SendMessageRequestHeader, kw_only=True):
    """SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320), SEND_REPLY_MESSAGE_V2 (325): short names."""

    producer_group: str = msgspec.field(name="a")
    topic: str = msgspec.field(name="b")
    default_topic: str = msgspec.field(name="c")
    default_topic_queue_nums: Int = msgspec.field(name="d")
    queue_id: Int = msgspec.field(name="e")
    sys_flag: Int = msgspec.field(name="f")
    born_timestamp: Long = msgspec.field(name="g")
    flag: Int = msgspec.field(name="h")
    properties: str | None = msgspec.field(name="i", default=None)
    reconsume_times: Int | None = msgspec.field(name="j", default=None)
    unit_mode: bool = msgspec.field(name="k", default=False)
    max_reconsume_times: Int | None = msgspec.field(name="l", default=None)
    batch: bool = msgspec.field(name="m", default=False)
    broker_name: str | None = msgspec.field(name="n", default=None)


class SendDeduplicatedRequestHeader(SendMessageRequestHeader, kw_only=True):
    """SEND_DEDUPLICATED, served by the bundled broker alone; see `rocket_remoting.wire.deduplication`.

    Attributes:
        writer: Who writes to this queue, as 16 hexadecimal digits.
        epoch: The writer's batch.
        sequence: The first message's place in what the writer sends to this queue in this epoch, from 0.
    """

    writer: str
    epoch: Long
    sequence: Long


class SendMessageResponseHeader(Header, kw_only=True):
    """The answer to a send: where the message lies.

    Attributes:
        msg_id: The record's offset id; of a batch, all of them with commas between.
        queue_id: The queue it is in.
        queue_offset: Its place in the queue; of a batch, the first one's.
        transaction_id: The id a half message is known by.
        batch_uniq_id: The id of a batch that is stored as one record (5.x).
        recall_handle: What a delayed message can be recalled by (5.x).
        msg_region: The region the broker is configured for, for message traces.
        trace_on: Whether the broker wants traces.
    """

    msg_id: str
    queue_id: Int
    queue_offset: Long
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    msg_region: str | None = msgspec.field(name="MSG_REGION", default=None)
    trace_on: bool | None = msgspec.field(name="TRACE_ON", default=None)


class ConsumerSendMsgBackRequestHeader(RpcRequestHeader, kw_only=True):
    """CONSUMER_SEND_MSG_BACK (36): deliver the record at `offset` to `group` again, later."""

    offset: Long
    group: str
    delay_level: Int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None


class EndTransactionRequestHeader(RpcRequestHeader, kw_only=True):
    """END_TRANSACTION (37): commit or roll back a half message (`sys_flag.TRANSACTION_*`)."""

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None


class CheckTransactionStateRequestHeader(RpcRequestHeader, kw_only=True):
    """CHECK_TRANSACTION_STATE (39), from the broker to a producer; the half message's record is the body."""

    topic: str | None = None
    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class CheckTransactionStateResponseHeader(Header, kw_only=True):
    """What a producer may answer to CHECK_TRANSACTION_STATE (39); today's send END_TRANSACTION instead."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int


class ResumeCheckHalfMessageRequestHeader(Header, kw_only=True):
    """RESUME_CHECK_HALF_MESSAGE (323): check a half message that was given up."""

    topic: str | None = None
    msg_id: str | None = None


class ReplyMessageRequestHeader(TopicRequestHeader, kw_only=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326), from the broker to the client that asked; the reply is the body."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Long


class RecallMessageRequestHeader(TopicRequestHeader, kw_only=True):
    """RECALL_MESSAGE (370): take a delayed message back (5.x)."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


class RecallMessageResponseHeader(Header, kw_only=True):
    """The answer to RECALL_MESSAGE (370)."""

    msg_id: str
