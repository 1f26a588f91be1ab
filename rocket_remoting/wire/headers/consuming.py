"""Headers of the requests of consumers: pulls, offsets, members, queries; and of their responses."""

import msgspec

from rocket_remoting.wire.ext_fields import Header, Int, Long
from rocket_remoting.wire.headers.rpc import RpcRequestHeader, TopicRequestHeader


class PullMessageRequestHeader(TopicRequestHeader, kw_only=True):
    """PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): return messages of a queue from `queue_offset` on.

    Attributes:
        sys_flag: The ``PULL_*`` bits of `sys_flag`.
        commit_offset: The group's offset to commit, if ``PULL_COMMIT_OFFSET`` is set.
        suspend_timeout_millis: How long the broker may hold the request, if ``PULL_SUSPEND`` is set.
        subscription: The filter expression, if ``PULL_SUBSCRIPTION`` is set.
        sub_version: The subscription's version, by which the broker sees which of two subscriptions is newer.
        expression_type: ``TAG`` or ``SQL92``.
    """

    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    commit_offset: Long
    suspend_timeout_millis: Long
    subscription: str | None = None
    sub_version: Long
    expression_type: str | None = None
    max_msg_bytes: Int | None = None
    request_source: Int | None = None
    proxy_froward_client_id: str | None = None


class PullMessageResponseHeader(Header, kw_only=True):
    """The response to a pull; the body has the records.

    Attributes:
        suggest_which_broker_id: The id of the broker to send the next pull to: the master or a slave.
        next_begin_offset: The offset of the next pull.
        min_offset: The offset of the queue's oldest message.
        max_offset: The offset that the queue's next message will get.
    """

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None
    forbidden_type: Int | None = None


class QueryConsumerOffsetRequestHeader(TopicRequestHeader, kw_only=True):
    """QUERY_CONSUMER_OFFSET (14): return a group's committed offset in a queue."""

    consumer_group: str
    topic: str
    queue_id: Int
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetResponseHeader(Header, kw_only=True):
    """The response to QUERY_CONSUMER_OFFSET (14)."""

    offset: Long


class UpdateConsumerOffsetRequestHeader(TopicRequestHeader, kw_only=True):
    """UPDATE_CONSUMER_OFFSET (15): commit a group's offset in a queue."""

    consumer_group: str
    topic: str
    queue_id: Int
    commit_offset: Long


class SearchOffsetRequestHeader(TopicRequestHeader, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP (29): return the offset of the message stored at `timestamp`.

    Attributes:
        boundary_type: LOWER or UPPER: the first or the last of several messages stored at that time (5.x).
    """

    topic: str
    queue_id: Int
    timestamp: Long
    boundary_type: str | None = None


class SearchOffsetResponseHeader(Header, kw_only=True):
    """The response to SEARCH_OFFSET_BY_TIMESTAMP (29)."""

    offset: Long


class GetMaxOffsetRequestHeader(TopicRequestHeader, kw_only=True):
    """GET_MAX_OFFSET (30): return the offset that a queue's next message will get."""

    topic: str
    queue_id: Int
    committed: bool = True


class GetMaxOffsetResponseHeader(Header, kw_only=True):
    """The response to GET_MAX_OFFSET (30)."""

    offset: Long


class GetMinOffsetRequestHeader(TopicRequestHeader, kw_only=True):
    """GET_MIN_OFFSET (31): return the offset of a queue's oldest message."""

    topic: str
    queue_id: Int


class GetMinOffsetResponseHeader(Header, kw_only=True):
    """The response to GET_MIN_OFFSET (31)."""

    offset: Long


class GetEarliestMsgStoretimeRequestHeader(TopicRequestHeader, kw_only=True):
    """GET_EARLIEST_MSG_STORETIME (32): return the store time of a queue's oldest message."""

    topic: str
    queue_id: Int


class GetEarliestMsgStoretimeResponseHeader(Header, kw_only=True):
    """The response to GET_EARLIEST_MSG_STORETIME (32)."""

    timestamp: Long


class GetConsumerListByGroupRequestHeader(RpcRequestHeader, kw_only=True):
    """GET_CONSUMER_LIST_BY_GROUP (38): return the client ids of a group's members."""

    consumer_group: str


class NotifyConsumerIdsChangedRequestHeader(RpcRequestHeader, kw_only=True):
    """NOTIFY_CONSUMER_IDS_CHANGED (40), oneway from a broker: a member has joined or left, rebalance now."""

    consumer_group: str


class UnregisterClientRequestHeader(RpcRequestHeader, kw_only=True):
    """UNREGISTER_CLIENT (35): remove a client from a producer group or a consumer group."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class QueryMessageRequestHeader(TopicRequestHeader, kw_only=True):
    """QUERY_MESSAGE (12): return a topic's messages with a key.

    Attributes:
        unique_key_query: Whether `key` is the unique id that the producer gave the message.
    """

    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long
    unique_key_query: bool | None = msgspec.field(name="_UNIQUE_KEY_QUERY", default=None)


class QueryMessageResponseHeader(Header, kw_only=True):
    """The response to QUERY_MESSAGE (12); the body has the records."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


class ViewMessageRequestHeader(Header, kw_only=True):
    """VIEW_MESSAGE_BY_ID (33): return the record at a commit log offset."""

    topic: str | None = None
    offset: Long
