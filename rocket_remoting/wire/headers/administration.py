"""Headers of requests that administer a broker or look into it, and of their answers."""

import msgspec

from rocket_remoting.wire.ext_fields import Header, Int, Long
from rocket_remoting.wire.headers.rpc import RpcRequestHeader, TopicRequestHeader


class CreateTopicRequestHeader(TopicRequestHeader, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC (17).

    Attributes:
        default_topic: The topic to take over settings from.
        perm: The ``PERM_*`` bits of `sys_flag`.
        topic_filter_type: SINGLE_TAG or MULTI_TAG.
        attributes: Changes of the topic's attributes, as ``+name=value,-name`` (5.x).
        force: Whether a topic of another kind may be replaced (5.x).
    """

    topic: str
    default_topic: str
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: str
    topic_sys_flag: Int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


class DeleteTopicRequestHeader(TopicRequestHeader, kw_only=True):
    """DELETE_TOPIC_IN_BROKER (215)."""

    topic: str


class GetTopicConfigRequestHeader(TopicRequestHeader, kw_only=True):
    """GET_TOPIC_CONFIG (351); the answer is a body."""

    topic: str


class GetTopicStatsInfoRequestHeader(TopicRequestHeader, kw_only=True):
    """GET_TOPIC_STATS_INFO (202); the answer is a body."""

    topic: str


class DeleteSubscriptionGroupRequestHeader(RpcRequestHeader, kw_only=True):
    """DELETE_SUBSCRIPTIONGROUP (207); 4.9 names the flag ``removeOffset``, 5.x ``cleanOffset``."""

    group_name: str
    remove_offset: bool | None = None
    clean_offset: bool | None = None


class GetSubscriptionGroupConfigRequestHeader(RpcRequestHeader, kw_only=True):
    """GET_SUBSCRIPTIONGROUP_CONFIG (352); the answer is a body."""

    group: str


class GetConsumeStatsRequestHeader(TopicRequestHeader, kw_only=True):
    """GET_CONSUME_STATS (208): how far a group is, of one topic or of all; the answer is a body."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetConsumeStatsInBrokerHeader(Header, kw_only=True):
    """GET_BROKER_CONSUME_STATS (317): how far all groups are; the answer is a body."""

    is_order: bool


class GetConsumerConnectionListRequestHeader(RpcRequestHeader, kw_only=True):
    """GET_CONSUMER_CONNECTION_LIST (203); the answer is a body."""

    consumer_group: str


class GetProducerConnectionListRequestHeader(RpcRequestHeader, kw_only=True):
    """GET_PRODUCER_CONNECTION_LIST (204); the answer is a body."""

    producer_group: str


class ResetOffsetRequestHeader(TopicRequestHeader, kw_only=True):
    """INVOKE_BROKER_TO_RESET_OFFSET (222), and RESET_CONSUMER_CLIENT_OFFSET (220) from broker to client.

    Attributes:
        queue_id: One queue; -1 for all (5.x).
        offset: Where to, instead of `timestamp` (5.x).
        timestamp: Milliseconds; -1 for the end.
        is_force: Whether offsets may move forward too.
    """

    group: str
    topic: str
    queue_id: Int = -1
    offset: Long | None = None
    timestamp: Long
    is_force: bool


class GetConsumerStatusRequestHeader(TopicRequestHeader, kw_only=True):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), and GET_CONSUMER_STATUS_FROM_CLIENT (221) to a client."""

    topic: str
    group: str
    client_addr: str | None = None


class GetConsumerRunningInfoRequestHeader(RpcRequestHeader, kw_only=True):
    """GET_CONSUMER_RUNNING_INFO (307); the answer is a body."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyResultRequestHeader(TopicRequestHeader, kw_only=True):
    """CONSUME_MESSAGE_DIRECTLY (309): hand one message to one consumer; the record is the body."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = msgspec.field(name="brokerName", default=None)
    topic: str | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None


class CloneGroupOffsetRequestHeader(RpcRequestHeader, kw_only=True):
    """CLONE_GROUP_OFFSET (314): give one group the offsets of another."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class QueryConsumeQueueRequestHeader(TopicRequestHeader, kw_only=True):
    """QUERY_CONSUME_QUEUE (321): entries of a consume queue; the answer is a body."""

    topic: str
    queue_id: Int
    index: Long
    count: Int
    consumer_group: str | None = None


class QueryConsumeTimeSpanRequestHeader(TopicRequestHeader, kw_only=True):
    """QUERY_CONSUME_TIME_SPAN (303); the answer is a body."""

    topic: str
    group: str


class QueryCorrectionOffsetHeader(TopicRequestHeader, kw_only=True):
    """QUERY_CORRECTION_OFFSET (308); the answer is a body."""

    filter_groups: str | None = None
    compare_group: str
    topic: str


class QueryTopicConsumeByWhoRequestHeader(TopicRequestHeader, kw_only=True):
    """QUERY_TOPIC_CONSUME_BY_WHO (300): the groups that consume a topic; the answer is a body."""

    topic: str


class QueryTopicsByConsumerRequestHeader(RpcRequestHeader, kw_only=True):
    """QUERY_TOPICS_BY_CONSUMER (343): the topics a group consumes; the answer is a body (5.x)."""

    group: str


class QuerySubscriptionByConsumerRequestHeader(TopicRequestHeader, kw_only=True):
    """QUERY_SUBSCRIPTION_BY_CONSUMER (345); the answer is a body (5.x)."""

    group: str
    topic: str | None = None


class ViewBrokerStatsDataRequestHeader(Header, kw_only=True):
    """VIEW_BROKER_STATS_DATA (315); the answer is a body."""

    stats_name: str
    stats_key: str


class GetBrokerConfigResponseHeader(Header, kw_only=True):
    """The answer to GET_BROKER_CONFIG (26); the settings are the body."""

    version: str
