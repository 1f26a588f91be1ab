"""The requests that tools make to look at a broker and at a name server."""

from collections.abc import Callable, Mapping

from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.headers import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerListByGroupRequestHeader,
    GetConsumerStatusRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetKVListByNamespaceRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetRouteInfoRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicsByClusterRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    SearchOffsetRequestHeader,
)

__all__ = ["BROKER_LISTINGS", "NAME_SERVER_LISTINGS"]

Listing = Callable[[str, str, int], Header | None]
"""Makes the header of a topic, a group and a queue id or any other number."""

BROKER_LISTINGS: Mapping[Code, Listing] = {
    Code.GET_ALL_TOPIC_CONFIG: lambda t, g, n: None,
    Code.GET_TOPIC_CONFIG: lambda t, g, n: GetTopicConfigRequestHeader(topic=t),
    Code.GET_TOPIC_STATS_INFO: lambda t, g, n: GetTopicStatsInfoRequestHeader(topic=t),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: lambda t, g, n: QueryTopicConsumeByWhoRequestHeader(topic=t),
    Code.QUERY_TOPICS_BY_CONSUMER: lambda t, g, n: QueryTopicsByConsumerRequestHeader(group=g),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: lambda t, g, n: None,
    Code.QUERY_CONSUME_TIME_SPAN: lambda t, g, n: QueryConsumeTimeSpanRequestHeader(topic=t, group=g),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: lambda t, g, n: None,
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: lambda t, g, n: GetSubscriptionGroupConfigRequestHeader(group=g),
    Code.GET_CONSUMER_CONNECTION_LIST: lambda t, g, n: GetConsumerConnectionListRequestHeader(consumer_group=g),
    Code.GET_CONSUMER_LIST_BY_GROUP: lambda t, g, n: GetConsumerListByGroupRequestHeader(consumer_group=g),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: lambda t, g, n: QuerySubscriptionByConsumerRequestHeader(topic=t, group=g),
    Code.GET_PRODUCER_CONNECTION_LIST: lambda t, g, n: GetProducerConnectionListRequestHeader(producer_group=g),
    Code.GET_ALL_PRODUCER_INFO: lambda t, g, n: None,
    Code.GET_CONSUME_STATS: lambda t, g, n: GetConsumeStatsRequestHeader(consumer_group=g, topic=t if n % 2 else None),
    Code.GET_BROKER_CONSUME_STATS: lambda t, g, n: GetConsumeStatsInBrokerHeader(is_order=bool(n % 2)),
    Code.GET_BROKER_RUNTIME_INFO: lambda t, g, n: None,
    Code.GET_ALL_CONSUMER_OFFSET: lambda t, g, n: None,
    Code.GET_ALL_DELAY_OFFSET: lambda t, g, n: None,
    Code.GET_BROKER_CONFIG: lambda t, g, n: None,
    Code.GET_MAX_OFFSET: lambda t, g, n: GetMaxOffsetRequestHeader(topic=t, queue_id=n),
    Code.GET_MIN_OFFSET: lambda t, g, n: GetMinOffsetRequestHeader(topic=t, queue_id=n),
    Code.GET_EARLIEST_MSG_STORETIME: lambda t, g, n: GetEarliestMsgStoretimeRequestHeader(topic=t, queue_id=n),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: lambda t, g, n: SearchOffsetRequestHeader(
        topic=t, queue_id=n, timestamp=1_700_000_000_000 + n * 1_000_000
    ),
    Code.QUERY_CORRECTION_OFFSET: lambda t, g, n: QueryCorrectionOffsetHeader(compare_group=g, topic=t),
    Code.QUERY_CONSUME_QUEUE: lambda t, g, n: QueryConsumeQueueRequestHeader(
        topic=t, queue_id=n, index=n, count=1000, consumer_group=g
    ),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: lambda t, g, n: GetConsumerStatusRequestHeader(topic=t, group=g),
}

NAME_SERVER_LISTINGS: Mapping[Code, Listing] = {
    Code.GET_ROUTEINFO_BY_TOPIC: lambda t, g, n: GetRouteInfoRequestHeader(topic=t),
    Code.GET_BROKER_CLUSTER_INFO: lambda t, g, n: None,
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: lambda t, g, n: None,
    Code.GET_TOPICS_BY_CLUSTER: lambda t, g, n: GetTopicsByClusterRequestHeader(cluster="DefaultCluster"),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: lambda t, g, n: None,
    Code.GET_UNIT_TOPIC_LIST: lambda t, g, n: None,
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: lambda t, g, n: None,
    Code.GET_NAMESRV_CONFIG: lambda t, g, n: None,
    Code.GET_KVLIST_BY_NAMESPACE: lambda t, g, n: GetKVListByNamespaceRequestHeader(namespace=t),
}
