"""Bodies of administrative requests and responses, which mqadmin and consoles use."""

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
        retry_max_times: Redeliveries before a message becomes a dead letter.
        which_broker_when_consume_slowly: The id of the broker that consumers pull from when they lag.
        group_retry_policy: The delays between redeliveries (5.x).
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
    """A broker's consumer groups; also the format of ``config/subscriptionGroup.json``."""

    subscription_group_table: dict[str, SubscriptionGroupConfig]
    forbidden_table: dict[str, dict[str, int]] | None = None
    data_version: DataVersion


class SubscriptionGroupList(Body, kw_only=True):
    """The request UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225): groups to create or change."""

    group_config_list: list[SubscriptionGroupConfig]


class CreateTopicListRequestBody(Body, kw_only=True):
    """The request UPDATE_AND_CREATE_TOPIC_LIST (18): topics to create or change."""

    topic_config_list: list[TopicConfig]


class TopicOffset(Body, kw_only=True):
    """The minimum and maximum offset of one queue, and the store time of its last message."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class TopicStatsTable(KeyedBody, kw_only=True):
    """The response to GET_TOPIC_STATS_INFO (202): offsets by queue."""

    offset_table: dict[MessageQueue, TopicOffset]
    topic_put_tps: float | None = None


class OffsetWrapper(Body, kw_only=True):
    """A group's offsets in one queue.

    Attributes:
        broker_offset: The offset that the queue's next message will get.
        consumer_offset: The group's committed offset.
        pull_offset: The offset up to which the group has pulled (5.x).
        last_timestamp: The store time of the last consumed message.
    """

    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int = 0
    last_timestamp: int = 0


class ConsumeStats(KeyedBody, kw_only=True):
    """The response to GET_CONSUME_STATS (208): a group's offsets by queue."""

    offset_table: dict[MessageQueue, OffsetWrapper]
    consume_tps: float = 0.0


class ConsumeStatsList(KeyedBody, kw_only=True):
    """The response to GET_BROKER_CONSUME_STATS (317): the offsets of all groups."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]]
    broker_addr: str | None = None
    total_diff: int = 0
    total_inflight_diff: int = 0


class Connection(Body, kw_only=True):
    """One client's connection: its id, address, programming language and `codes.Version`."""

    client_id: str
    client_addr: str
    language: str
    version: int


class ConsumerConnection(Body, kw_only=True):
    """The response to GET_CONSUMER_CONNECTION_LIST (203): a group's connections and subscriptions."""

    connection_set: list[Connection]
    subscription_table: dict[str, SubscriptionData] = msgspec.field(default_factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


class ProducerConnection(Body, kw_only=True):
    """The response to GET_PRODUCER_CONNECTION_LIST (204)."""

    connection_set: list[Connection]


class ProducerInfo(Body, kw_only=True):
    """The connection of one producer."""

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP")
    language: str
    version: int
    last_update_timestamp: int


class ProducerTableInfo(Body, kw_only=True):
    """The response to GET_ALL_PRODUCER_INFO (328): connections by producer group."""

    data: dict[str, list[ProducerInfo]]


class GroupList(Body, kw_only=True):
    """The response to QUERY_TOPIC_CONSUME_BY_WHO (300): the groups that consume a topic."""

    group_list: set[str]


class QueueTimeSpan(Body, kw_only=True):
    """The store times of one queue's messages, and of a group's position in it.

    Attributes:
        min_time_stamp: The store time of the oldest message.
        max_time_stamp: The store time of the newest message.
        consume_time_stamp: The store time of the message at the group's committed offset.
        delay_time: Milliseconds by which the group lags behind.
    """

    message_queue: MessageQueue
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0


class QueryConsumeTimeSpanBody(Body, kw_only=True):
    """The response to QUERY_CONSUME_TIME_SPAN (303)."""

    consume_time_span_set: list[QueueTimeSpan]


class QueryCorrectionOffsetBody(KeyedBody, kw_only=True):
    """The response to QUERY_CORRECTION_OFFSET (308): offsets by queue id."""

    correction_offsets: dict[int, int]


class QuerySubscriptionResponseBody(Body, kw_only=True):
    """The response to QUERY_SUBSCRIPTION_BY_CONSUMER (345): a group's subscription to a topic."""

    subscription_data: SubscriptionData | None = None
    group: str
    topic: str


class ConsumeQueueData(Body, kw_only=True):
    """One entry of a consume queue, and whether a group's filter matches it.

    Attributes:
        physic_offset: The record's commit log offset.
        physic_size: The record's size in bytes.
        tags_code: The hash code of the message's tag.
        extend_data_json: Further data of the entry, as text.
        bit_map: The Bloom filter of the subscriptions that the message matches, as text.
        eval: Whether the filter matches.
        msg: Why further data is missing.
    """

    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueResponseBody(Body, kw_only=True):
    """The response to QUERY_CONSUME_QUEUE (321)."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData]
    max_queue_index: int
    min_queue_index: int


class BrokerStatsItem(Body, kw_only=True):
    """A counter over a time span: the sum, the sum per second (`tps`), and the average of each call (`avgpt`).

    Apache's brokers write null for a rate if they have taken one sample only.
    """

    sum: int = 0
    tps: float | None = 0.0
    avgpt: float | None = 0.0


class BrokerStatsData(Body, kw_only=True):
    """The response to VIEW_BROKER_STATS_DATA (315): a counter over the last minute, hour and day."""

    stats_minute: BrokerStatsItem
    stats_hour: BrokerStatsItem
    stats_day: BrokerStatsItem


class PlainAccessConfig(Body, kw_only=True):
    """An account of 4.9's access control.

    Attributes:
        secret_key: The secret key; hidden in answers of this project's broker.
        topic_perms: Rights on topics, such as ``orders=PUB|SUB``.
        group_perms: Rights on groups, in the same form.
    """

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None


class GetBrokerClusterAclConfigResponseBody(Body, kw_only=True):
    """The response to GET_BROKER_CLUSTER_ACL_CONFIG (54): all white lists and accounts of a broker (4.9)."""

    global_white_addrs: list[str]
    plain_access_configs: list[PlainAccessConfig]
