"""Bodies that mqadmin and consoles ask for."""

import msgspec

from rocket_remoting.wire.bodies.consuming import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rocket_remoting.wire.bodies.json_body import Body, KeyedBody
from rocket_remoting.wire.bodies.routing import DataVersion, TopicConfig
from rocket_remoting.wire.message import MessageQueue


class SubscriptionGroupConfig(Body, kw_only=True):
    """A consumer group's settings on one broker.

    Attributes:
        retry_max_times: Redeliveries before the dead letter topic.
        which_broker_when_consume_slowly: Broker id that pulls are sent to when a consumer lags.
        group_retry_policy: 5.x's back-off between redeliveries.
    """

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: dict[str, object] | None = None
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscription_data_set: list[dict[str, object]] | None = None
    attributes: dict[str, str] = msgspec.field(default_factory=dict)


class SubscriptionGroupWrapper(KeyedBody, kw_only=True):
    """A broker's groups; also ``config/subscriptionGroup.json``."""

    subscription_group_table: dict[str, SubscriptionGroupConfig]
    forbidden_table: dict[str, dict[str, int]] | None = None
    data_version: DataVersion


class SubscriptionGroupList(Body, kw_only=True):
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225)."""

    group_config_list: list[SubscriptionGroupConfig]


class CreateTopicListRequestBody(Body, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC_LIST (18)."""

    topic_config_list: list[TopicConfig]


class TopicOffset(Body, kw_only=True):
    """The span of one queue."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class TopicStatsTable(KeyedBody, kw_only=True):
    """The answer to GET_TOPIC_STATS_INFO (202)."""

    offset_table: dict[MessageQueue, TopicOffset]
    topic_put_tps: float | None = None


class OffsetWrapper(Body, kw_only=True):
    """How far a group is in one queue."""

    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int = 0
    last_timestamp: int = 0


class ConsumeStats(KeyedBody, kw_only=True):
    """The answer to GET_CONSUME_STATS (208)."""

    offset_table: dict[MessageQueue, OffsetWrapper]
    consume_tps: float = 0.0


class ConsumeStatsList(KeyedBody, kw_only=True):
    """The answer to GET_BROKER_CONSUME_STATS (317)."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]]
    broker_addr: str | None = None
    total_diff: int = 0
    total_inflight_diff: int = 0


class Connection(Body, kw_only=True):
    """One client's connection; `version` as in its commands."""

    client_id: str
    client_addr: str
    language: str
    version: int


class ConsumerConnection(Body, kw_only=True):
    """The answer to GET_CONSUMER_CONNECTION_LIST (203)."""

    connection_set: list[Connection]
    subscription_table: dict[str, SubscriptionData] = msgspec.field(default_factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


class ProducerConnection(Body, kw_only=True):
    """The answer to GET_PRODUCER_CONNECTION_LIST (204)."""

    connection_set: list[Connection]


class ProducerInfo(Body, kw_only=True):
    """One producer's connection."""

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP")
    language: str
    version: int
    last_update_timestamp: int


class ProducerTableInfo(Body, kw_only=True):
    """The answer to GET_ALL_PRODUCER_INFO (328): connections by group."""

    data: dict[str, list[ProducerInfo]]


class GroupList(Body, kw_only=True):
    """The answer to QUERY_TOPIC_CONSUME_BY_WHO (300)."""

    group_list: set[str]


class QueueTimeSpan(Body, kw_only=True):
    """From when to when a queue's messages are, and where a group is in it."""

    message_queue: MessageQueue
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0


class QueryConsumeTimeSpanBody(Body, kw_only=True):
    """The answer to QUERY_CONSUME_TIME_SPAN (303)."""

    consume_time_span_set: list[QueueTimeSpan]


class QueryCorrectionOffsetBody(KeyedBody, kw_only=True):
    """The answer to QUERY_CORRECTION_OFFSET (308): offsets by queue id."""

    correction_offsets: dict[int, int]


class QuerySubscriptionResponseBody(Body, kw_only=True):
    """The answer to QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

    subscription_data: SubscriptionData | None = None
    group: str
    topic: str


class ConsumeQueueData(Body, kw_only=True):
    """One entry of a consume queue, with what a filter says of it."""

    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueResponseBody(Body, kw_only=True):
    """The answer to QUERY_CONSUME_QUEUE (321)."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData]
    max_queue_index: int
    min_queue_index: int


class BrokerStatsItem(Body, kw_only=True):
    """A counter over a span: sum, per second, average of each call."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body, kw_only=True):
    """The answer to VIEW_BROKER_STATS_DATA (315)."""

    stats_minute: BrokerStatsItem
    stats_hour: BrokerStatsItem
    stats_day: BrokerStatsItem
