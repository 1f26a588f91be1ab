"""Headers of sends, transactions, redeliveries and replies, and of their responses."""

import msgspec

from rocket_remoting.wire.ext_fields import Header, Int, Long
from rocket_remoting.wire.headers.rpc import RpcRequestHeader, TopicRequestHeader


class SendMessageRequestHeader(TopicRequestHeader, kw_only=True):
    """SEND_MESSAGE (10) and SEND_REPLY_MESSAGE (324); the command's body is the message's body."""

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
    """SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320), SEND_REPLY_MESSAGE_V2 (325): the same with short names."""

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
    """SEND_DEDUPLICATED (70001), which only the bundled broker handles; see `rocket_remoting.wire.deduplication`.

    Attributes:
        writer: The id of the writer, 16 hexadecimal digits.
        epoch: The number of the writer's epoch.
        sequence: The number of the first message in the epoch, from 0.
    """

    writer: str
    epoch: Long
    sequence: Long


class SendMessageResponseHeader(Header, kw_only=True):
    """The response to a send: the message's ids and its place in a queue.

    Attributes:
        msg_id: The record's offset id; for a batch all ids, separated by commas.
        queue_id: The message's queue.
        queue_offset: The message's offset in the queue; for a batch that of the first message.
        transaction_id: The transaction's id, for a half message.
        batch_uniq_id: The unique id of a batch that is stored as one record (5.x).
        recall_handle: The handle for recalling a delayed message (5.x).
        msg_region: The broker's region, for message traces.
        trace_on: Whether the broker asks for message traces.
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
    """CONSUMER_SEND_MSG_BACK (36): deliver the record at a commit log offset to a group again, after a delay."""

    offset: Long
    group: str
    delay_level: Int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None


class EndTransactionRequestHeader(RpcRequestHeader, kw_only=True):
    """END_TRANSACTION (37): commit or roll back a half message.

    Attributes:
        commit_or_rollback: One of `sys_flag.TRANSACTION_*`.
        from_transaction_check: Whether this answers a check by the broker.
    """

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None


class CheckTransactionStateRequestHeader(RpcRequestHeader, kw_only=True):
    """CHECK_TRANSACTION_STATE (39), from a broker to a producer; the body is the half message's record."""

    topic: str | None = None
    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class CheckTransactionStateResponseHeader(Header, kw_only=True):
    """A response to CHECK_TRANSACTION_STATE (39). Apache's clients do not use it: they send END_TRANSACTION."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int


class ResumeCheckHalfMessageRequestHeader(Header, kw_only=True):
    """RESUME_CHECK_HALF_MESSAGE (323): check a half message again that the broker has stopped checking."""

    topic: str | None = None
    msg_id: str | None = None


class ReplyMessageRequestHeader(TopicRequestHeader, kw_only=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326), from a broker to the client that sent the request; the body is the reply."""

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
    """RECALL_MESSAGE (370): cancel the delivery of a delayed message (5.x)."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


class RecallMessageResponseHeader(Header, kw_only=True):
    """The response to RECALL_MESSAGE (370)."""

    msg_id: str
