"""Headers of administrative requests to brokers, and of their responses."""

import msgspec

from rocket_remoting.wire.ext_fields import Header, Int, Long
from rocket_remoting.wire.headers.rpc import RpcRequestHeader, TopicRequestHeader


class CreateTopicRequestHeader(TopicRequestHeader, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC (17): create a topic, or change its settings.

    Attributes:
        default_topic: The topic to inherit settings from.
        perm: The ``PERM_*`` bits of `sys_flag`.
        topic_filter_type: SINGLE_TAG or MULTI_TAG.
        attributes: Changes of the topic's attributes, such as ``+name=value,-name`` (5.x).
        force: Whether to replace a topic of another kind (5.x).
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
    """DELETE_TOPIC_IN_BROKER (215): delete a topic from the broker."""

    topic: str


class GetTopicConfigRequestHeader(TopicRequestHeader, kw_only=True):
    """GET_TOPIC_CONFIG (351): return a topic's settings."""

    topic: str


class GetTopicStatsInfoRequestHeader(TopicRequestHeader, kw_only=True):
    """GET_TOPIC_STATS_INFO (202): return the offsets of a topic's queues."""

    topic: str


class DeleteSubscriptionGroupRequestHeader(RpcRequestHeader, kw_only=True):
    """DELETE_SUBSCRIPTIONGROUP (207): delete a consumer group.

    Attributes:
        remove_offset: Whether to delete the group's committed offsets (4.9).
        clean_offset: The same, for brokers of 5.x.
    """

    group_name: str
    remove_offset: bool | None = None
    clean_offset: bool | None = None


class GetSubscriptionGroupConfigRequestHeader(RpcRequestHeader, kw_only=True):
    """GET_SUBSCRIPTIONGROUP_CONFIG (352): return a consumer group's settings."""

    group: str


class GetConsumeStatsRequestHeader(TopicRequestHeader, kw_only=True):
    """GET_CONSUME_STATS (208): return a group's committed offsets, in one topic or in all."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetConsumeStatsInBrokerHeader(Header, kw_only=True):
    """GET_BROKER_CONSUME_STATS (317): return the committed offsets of all groups.

    Attributes:
        is_order: Whether to return only the groups that consume orderly.
    """

    is_order: bool


class GetConsumerConnectionListRequestHeader(RpcRequestHeader, kw_only=True):
    """GET_CONSUMER_CONNECTION_LIST (203): return the connected members of a consumer group."""

    consumer_group: str


class GetProducerConnectionListRequestHeader(RpcRequestHeader, kw_only=True):
    """GET_PRODUCER_CONNECTION_LIST (204): return the connected members of a producer group."""

    producer_group: str


class ResetOffsetRequestHeader(TopicRequestHeader, kw_only=True):
    """INVOKE_BROKER_TO_RESET_OFFSET (222) to a broker, RESET_CONSUMER_CLIENT_OFFSET (220) from a broker to a client.

    Attributes:
        queue_id: The queue; -1 for all queues (5.x).
        offset: The new offset, instead of `timestamp` (5.x).
        timestamp: Continue with the messages stored from this time on; -1 for the end of each queue.
        is_force: Whether offsets may also move forward.
    """

    group: str
    topic: str
    queue_id: Int = -1
    offset: Long | None = None
    timestamp: Long
    is_force: bool


class GetConsumerStatusRequestHeader(TopicRequestHeader, kw_only=True):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223) to a broker, GET_CONSUMER_STATUS_FROM_CLIENT (221) to a client."""

    topic: str
    group: str
    client_addr: str | None = None


class GetConsumerRunningInfoRequestHeader(RpcRequestHeader, kw_only=True):
    """GET_CONSUMER_RUNNING_INFO (307): return a consumer's settings, subscriptions and process queues.

    Attributes:
        jstack_enable: Whether to return the stacks of the consumer's threads.
    """

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyResultRequestHeader(TopicRequestHeader, kw_only=True):
    """CONSUME_MESSAGE_DIRECTLY (309): call a consumer's listener with one message, whose record is the body."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = msgspec.field(name="brokerName", default=None)
    topic: str | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None


class CloneGroupOffsetRequestHeader(RpcRequestHeader, kw_only=True):
    """CLONE_GROUP_OFFSET (314): copy the committed offsets of one group to another."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class QueryConsumeQueueRequestHeader(TopicRequestHeader, kw_only=True):
    """QUERY_CONSUME_QUEUE (321): return `count` entries of a consume queue from `index` on."""

    topic: str
    queue_id: Int
    index: Long
    count: Int
    consumer_group: str | None = None


class QueryConsumeTimeSpanRequestHeader(TopicRequestHeader, kw_only=True):
    """QUERY_CONSUME_TIME_SPAN (303): return the store times of each queue's messages and of a group's position."""

    topic: str
    group: str


class QueryCorrectionOffsetHeader(TopicRequestHeader, kw_only=True):
    """QUERY_CORRECTION_OFFSET (308): return each queue's smallest offset of all groups but `filter_groups`."""

    filter_groups: str | None = None
    compare_group: str
    topic: str


class QueryTopicConsumeByWhoRequestHeader(TopicRequestHeader, kw_only=True):
    """QUERY_TOPIC_CONSUME_BY_WHO (300): return the groups that consume a topic."""

    topic: str


class QueryTopicsByConsumerRequestHeader(RpcRequestHeader, kw_only=True):
    """QUERY_TOPICS_BY_CONSUMER (343): return the topics that a group consumes (5.x)."""

    group: str


class QuerySubscriptionByConsumerRequestHeader(TopicRequestHeader, kw_only=True):
    """QUERY_SUBSCRIPTION_BY_CONSUMER (345): return a group's subscription to a topic (5.x)."""

    group: str
    topic: str | None = None


class ViewBrokerStatsDataRequestHeader(Header, kw_only=True):
    """VIEW_BROKER_STATS_DATA (315): return a counter of the broker's statistics."""

    stats_name: str
    stats_key: str


class GetBrokerConfigResponseHeader(Header, kw_only=True):
    """The response to GET_BROKER_CONFIG (26); the body has the settings."""

    version: str


class CreateAccessConfigRequestHeader(RpcRequestHeader, kw_only=True):
    """UPDATE_AND_CREATE_ACL_CONFIG (50): create an account, or change its values (4.9).

    Attributes:
        topic_perms: Rights on topics, such as ``orders=PUB|SUB,bills=SUB``.
        group_perms: Rights on groups, in the same form.
    """

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


class DeleteAccessConfigRequestHeader(RpcRequestHeader, kw_only=True):
    """DELETE_ACL_CONFIG (51): delete an account (4.9)."""

    access_key: str


class UpdateGlobalWhiteAddrsConfigRequestHeader(RpcRequestHeader, kw_only=True):
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (53): replace a white list (4.9).

    Attributes:
        global_white_addrs: The addresses, separated by commas.
        acl_file_full_path: The file with the white list; unset: ``plain_acl.yml``.
    """

    global_white_addrs: str
    acl_file_full_path: str | None = None


class GetBrokerAclConfigResponseHeader(Header, kw_only=True):
    """The response to GET_BROKER_CLUSTER_ACL_INFO (52).

    Attributes:
        version: The `DataVersion` of ``plain_acl.yml``, as JSON.
        all_acl_file_version: A map from each file to its `DataVersion`, as JSON.
    """

    version: str
    all_acl_file_version: str | None = None
    broker_name: str
    broker_addr: str
    cluster_name: str
