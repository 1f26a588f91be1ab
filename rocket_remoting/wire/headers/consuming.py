"""Headers of requests by which consumers read, remember where they are, and know of each other."""

import msgspec

from rocket_remoting.wire.ext_fields import Header, Int, Long
from rocket_remoting.wire.headers.rpc import RpcRequestHeader, TopicRequestHeader


class PullMessageRequestHeader(TopicRequestHeader, kw_only=True):
    """PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361).

    Attributes:
        sys_flag: The ``PULL_*`` bits of `sys_flag`.
        commit_offset: The group's offset to store, when ``PULL_COMMIT_OFFSET`` is set.
        suspend_timeout_millis: How long the broker may hold the request, when ``PULL_SUSPEND`` is set.
        subscription: The filter expression, when ``PULL_SUBSCRIPTION`` is set.
        sub_version: The subscription's version, to find out which side's is newer.
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
    """The answer to a pull; the records are the body."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None
    forbidden_type: Int | None = None


class QueryConsumerOffsetRequestHeader(TopicRequestHeader, kw_only=True):
    """QUERY_CONSUMER_OFFSET (14): where a group is in a queue."""

    consumer_group: str
    topic: str
    queue_id: Int
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetResponseHeader(Header, kw_only=True):
    """The answer to QUERY_CONSUMER_OFFSET (14)."""

    offset: Long


class UpdateConsumerOffsetRequestHeader(TopicRequestHeader, kw_only=True):
    """UPDATE_CONSUMER_OFFSET (15): a group is now at `commit_offset` of a queue."""

    consumer_group: str
    topic: str
    queue_id: Int
    commit_offset: Long


class SearchOffsetRequestHeader(TopicRequestHeader, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP (29); `boundary_type` (5.x) is LOWER or UPPER."""

    topic: str
    queue_id: Int
    timestamp: Long
    boundary_type: str | None = None


class SearchOffsetResponseHeader(Header, kw_only=True):
    """The answer to SEARCH_OFFSET_BY_TIMESTAMP (29)."""

    offset: Long


class GetMaxOffsetRequestHeader(TopicRequestHeader, kw_only=True):
    """GET_MAX_OFFSET (30): the offset the next message of a queue will have."""

    topic: str
    queue_id: Int
    committed: bool = True


class GetMaxOffsetResponseHeader(Header, kw_only=True):
    """The answer to GET_MAX_OFFSET (30)."""

    offset: Long


class GetMinOffsetRequestHeader(TopicRequestHeader, kw_only=True):
    """GET_MIN_OFFSET (31): the offset of the oldest message a queue still has."""

    topic: str
    queue_id: Int


class GetMinOffsetResponseHeader(Header, kw_only=True):
    """The answer to GET_MIN_OFFSET (31)."""

    offset: Long


class GetEarliestMsgStoretimeRequestHeader(TopicRequestHeader, kw_only=True):
    """GET_EARLIEST_MSG_STORETIME (32): when the oldest message a queue still has was stored."""

    topic: str
    queue_id: Int


class GetEarliestMsgStoretimeResponseHeader(Header, kw_only=True):
    """The answer to GET_EARLIEST_MSG_STORETIME (32)."""

    timestamp: Long


class GetConsumerListByGroupRequestHeader(RpcRequestHeader, kw_only=True):
    """GET_CONSUMER_LIST_BY_GROUP (38): the ids of a group's members; the answer is a body."""

    consumer_group: str


class NotifyConsumerIdsChangedRequestHeader(RpcRequestHeader, kw_only=True):
    """NOTIFY_CONSUMER_IDS_CHANGED (40), one way from the broker: rebalance now."""

    consumer_group: str


class UnregisterClientRequestHeader(RpcRequestHeader, kw_only=True):
    """UNREGISTER_CLIENT (35): a producer or consumer of this client leaves."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class QueryMessageRequestHeader(TopicRequestHeader, kw_only=True):
    """QUERY_MESSAGE (12): messages of a topic by key.

    Attributes:
        unique_key_query: Whether `key` is the id a producer gave, not one of the message's keys.
    """

    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long
    unique_key_query: bool | None = msgspec.field(name="_UNIQUE_KEY_QUERY", default=None)


class QueryMessageResponseHeader(Header, kw_only=True):
    """The answer to QUERY_MESSAGE (12); the records are the body."""

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


class ViewMessageRequestHeader(Header, kw_only=True):
    """VIEW_MESSAGE_BY_ID (33): the record at a commit log offset; the answer is a body."""

    topic: str | None = None
    offset: Long
