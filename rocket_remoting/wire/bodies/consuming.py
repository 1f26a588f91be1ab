"""Bodies about clients and their groups: heartbeats, members, locks, offsets, the state of consumers.

The constants of the enumerations have Java's order, because the C++ client sends their numbers.
"""

from collections.abc import Set as AbstractSet
from enum import StrEnum

import msgspec

from rocket_remoting.wire.bodies.json_body import Body, KeyedBody
from rocket_remoting.wire.bodies.routing import DataVersion
from rocket_remoting.wire.ext_fields import Int
from rocket_remoting.wire.message import MessageQueue


class ConsumeType(StrEnum):
    """How a consumer gets its messages."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    """Whether one member of a group receives a message, or every member."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    """The offset at which a new group begins."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class SubscriptionData(Body, kw_only=True):
    """A group's subscription to one topic.

    Attributes:
        sub_string: The expression: ``*``, tags such as ``a || b``, or an SQL92 expression.
        tags_set: The tags of the expression.
        code_set: The Java hash codes of the tags.
        sub_version: When the subscription was made; brokers keep the newest.
        expression_type: ``TAG`` or ``SQL92``.
    """

    class_filter_mode: bool = False
    topic: str
    sub_string: str | None = None
    # Defaults that are shared: a heartbeat may have thousands of these, and two empty sets are most of each.
    tags_set: AbstractSet[str] = frozenset()
    code_set: AbstractSet[Int] = frozenset()
    sub_version: int = 0
    expression_type: str | None = "TAG"


class ProducerData(Body, kw_only=True):
    """A client's membership in one producer group."""

    group_name: str


class ConsumerData(Body, kw_only=True):
    """A client's membership in one consumer group."""

    group_name: str
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    subscription_data_set: list[SubscriptionData] = msgspec.field(default_factory=list)
    unit_mode: bool = False


class HeartbeatData(Body, kw_only=True):
    """HEART_BEAT (34): a client's groups, which it sends to each broker every 30 seconds.

    Attributes:
        heartbeat_fingerprint: A digest of the subscriptions (5.x); 0 for none.
        without_sub: Whether the subscriptions are omitted, because the broker has those with this digest (5.x).
    """

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = msgspec.field(default_factory=list)
    consumer_data_set: list[ConsumerData] = msgspec.field(default_factory=list)
    heartbeat_fingerprint: int = 0
    without_sub: bool = False


class CheckClientRequestBody(Body, kw_only=True):
    """CHECK_CLIENT_CONFIG (46): ask whether the broker accepts a subscription."""

    client_id: str
    group: str
    subscription_data: SubscriptionData
    namespace: str | None = None


class GetConsumerListByGroupResponseBody(Body, kw_only=True):
    """The response to GET_CONSUMER_LIST_BY_GROUP (38): the client ids of a group's members."""

    consumer_id_list: list[str]


class LockBatchRequestBody(Body, kw_only=True):
    """LOCK_BATCH_MQ (41): lock queues for one member of a group."""

    consumer_group: str
    client_id: str
    only_this_broker: bool = False
    mq_set: set[MessageQueue]


class LockBatchResponseBody(Body, kw_only=True):
    """The response to LOCK_BATCH_MQ (41): the queues that are locked for the member now."""

    lock_ok_mq_set: set[MessageQueue] = msgspec.field(name="lockOKMQSet")


class UnlockBatchRequestBody(Body, kw_only=True):
    """UNLOCK_BATCH_MQ (42): unlock queues of one member of a group."""

    consumer_group: str
    client_id: str
    only_this_broker: bool = False
    mq_set: set[MessageQueue]


class ResetOffsetBody(KeyedBody, kw_only=True):
    """New offsets by queue: RESET_CONSUMER_CLIENT_OFFSET (220), and the response to request 222."""

    offset_table: dict[MessageQueue, int]


class MessageQueueForC(Body, kw_only=True):
    """A queue and its new offset."""

    topic: str
    broker_name: str
    queue_id: int
    offset: int


class ResetOffsetBodyForC(Body, kw_only=True):
    """`ResetOffsetBody` for the C++ client, which can read only strings as keys of maps."""

    offset_table: list[MessageQueueForC]


class ConsumerOffsetSerializeWrapper(KeyedBody, kw_only=True):
    """Committed offsets by ``topic@group`` and queue id; also the format of ``config/consumerOffset.json``."""

    offset_table: dict[str, dict[int, int]]
    data_version: DataVersion | None = None


class GetConsumerStatusBody(KeyedBody, kw_only=True):
    """The response to GET_CONSUMER_STATUS_FROM_CLIENT (221) and INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223).

    Attributes:
        message_queue_table: In a client's response: its offsets by queue.
        consumer_table: In a broker's response: the offsets of each member, by client id.
    """

    message_queue_table: dict[MessageQueue, int] = msgspec.field(default_factory=dict)
    consumer_table: dict[str, dict[MessageQueue, int]] = msgspec.field(default_factory=dict)


class ProcessQueueInfo(Body, kw_only=True):
    """A consumer's process queue: cached messages, lock and times."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mi_b: int = msgspec.field(name="cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class ConsumeStatus(Body, kw_only=True):
    """A consumer's rates and response times (RT, in milliseconds) for one topic."""

    pull_rt: float = msgspec.field(name="pullRT", default=0.0)
    pull_tps: float = msgspec.field(name="pullTPS", default=0.0)
    consume_rt: float = msgspec.field(name="consumeRT", default=0.0)
    consume_ok_tps: float = msgspec.field(name="consumeOKTPS", default=0.0)
    consume_failed_tps: float = msgspec.field(name="consumeFailedTPS", default=0.0)
    consume_failed_msgs: int = 0


class ConsumerRunningInfo(KeyedBody, kw_only=True):
    """The response to GET_CONSUMER_RUNNING_INFO (307): settings, subscriptions and process queues of a consumer.

    Attributes:
        properties: Settings, and facts such as PROP_CONSUME_TYPE and PROP_CONSUMER_START_TIMESTAMP.
    """

    properties: dict[str, str]
    subscription_set: list[SubscriptionData]
    mq_table: dict[MessageQueue, ProcessQueueInfo]
    status_table: dict[str, ConsumeStatus]
    jstack: str | None = None


class ConsumeMessageResult(StrEnum):
    """The outcome of CONSUME_MESSAGE_DIRECTLY (309); Java's ``CMResult``."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ConsumeMessageDirectlyResult(Body, kw_only=True):
    """The response to CONSUME_MESSAGE_DIRECTLY (309)."""

    order: bool = False
    auto_commit: bool = True
    consume_result: ConsumeMessageResult | None = None
    remark: str | None = None
    spent_time_mills: int = 0
