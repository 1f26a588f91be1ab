"""Headers of requests to the name server, and of its answers."""

from rocket_remoting.wire.ext_fields import Header, Int, Long
from rocket_remoting.wire.headers.rpc import TopicRequestHeader


class GetRouteInfoRequestHeader(TopicRequestHeader, kw_only=True):
    """GET_ROUTEINFO_BY_TOPIC (105); the answer is a body, in standard JSON only when asked for."""

    topic: str
    accept_standard_json_only: bool | None = None


class RegisterBrokerRequestHeader(Header, kw_only=True):
    """REGISTER_BROKER (103): a broker reports itself; topics are in the body.

    Attributes:
        compressed: Whether the body is in the packed form.
        body_crc32: Check sum of the body; 0 for none.
        heartbeat_timeout_millis: How long the name server keeps the broker without a further report (5.x).
        enable_acting_master: Whether a slave may act for its lost master (5.x).
    """

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int = 0


class RegisterBrokerResponseHeader(Header, kw_only=True):
    """The answer to REGISTER_BROKER (103); the order configuration is the body."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnRegisterBrokerRequestHeader(Header, kw_only=True):
    """UNREGISTER_BROKER (104)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionRequestHeader(Header, kw_only=True):
    """QUERY_DATA_VERSION (322): has the broker's topic table, its version in the body, changed?"""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionResponseHeader(Header, kw_only=True):
    """The answer to QUERY_DATA_VERSION (322)."""

    changed: bool


class BrokerHeartbeatRequestHeader(Header, kw_only=True):
    """BROKER_HEARTBEAT (904): a light report between registrations (5.x)."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    epoch: Int | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    heartbeat_timeout_mills: Long | None = None
    election_priority: Int | None = None


class GetBrokerMemberGroupRequestHeader(Header, kw_only=True):
    """GET_BROKER_MEMBER_GROUP (901): the addresses of one broker name (5.x)."""

    cluster_name: str
    broker_name: str


class PutKVConfigRequestHeader(Header, kw_only=True):
    """PUT_KV_CONFIG (100)."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(Header, kw_only=True):
    """GET_KV_CONFIG (101)."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(Header, kw_only=True):
    """The answer to GET_KV_CONFIG (101)."""

    value: str | None = None


class DeleteKVConfigRequestHeader(Header, kw_only=True):
    """DELETE_KV_CONFIG (102)."""

    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(Header, kw_only=True):
    """GET_KVLIST_BY_NAMESPACE (219); the answer is a body."""

    namespace: str


class GetTopicsByClusterRequestHeader(Header, kw_only=True):
    """GET_TOPICS_BY_CLUSTER (224); the answer is a body."""

    cluster: str


class DeleteTopicFromNamesrvRequestHeader(TopicRequestHeader, kw_only=True):
    """DELETE_TOPIC_IN_NAMESRV (216)."""

    topic: str
    cluster_name: str | None = None


class RegisterTopicRequestHeader(TopicRequestHeader, kw_only=True):
    """REGISTER_TOPIC_IN_NAMESRV (217); the topic's route is the body (5.x)."""

    topic: str


class WipeWritePermOfBrokerRequestHeader(Header, kw_only=True):
    """WIPE_WRITE_PERM_OF_BROKER (205)."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(Header, kw_only=True):
    """The answer to WIPE_WRITE_PERM_OF_BROKER (205)."""

    wipe_topic_count: Int


class AddWritePermOfBrokerRequestHeader(Header, kw_only=True):
    """ADD_WRITE_PERM_OF_BROKER (327)."""

    broker_name: str


class AddWritePermOfBrokerResponseHeader(Header, kw_only=True):
    """The answer to ADD_WRITE_PERM_OF_BROKER (327)."""

    add_topic_count: Int
