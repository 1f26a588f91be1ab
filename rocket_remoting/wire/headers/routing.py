"""Headers of requests to name servers, and of their responses."""

from rocket_remoting.wire.ext_fields import Header, Int, Long
from rocket_remoting.wire.headers.rpc import TopicRequestHeader


class GetRouteInfoRequestHeader(TopicRequestHeader, kw_only=True):
    """GET_ROUTEINFO_BY_TOPIC (105): return a topic's route.

    Attributes:
        accept_standard_json_only: Whether the response must be standard JSON; otherwise numbers are unquoted keys.
    """

    topic: str
    accept_standard_json_only: bool | None = None


class RegisterBrokerRequestHeader(Header, kw_only=True):
    """REGISTER_BROKER (103): register a broker; the body has its topics.

    Attributes:
        compressed: Whether the body is compressed, see `bodies.encode_register_broker_body`.
        body_crc32: CRC-32 of the body; 0 for none.
        heartbeat_timeout_millis: How long the registration lasts unless the broker renews it (5.x).
        enable_acting_master: Whether a slave may act for a master that is gone (5.x).
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
    """The response to REGISTER_BROKER (103); the body has the order configurations of topics."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnRegisterBrokerRequestHeader(Header, kw_only=True):
    """UNREGISTER_BROKER (104): remove a broker."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionRequestHeader(Header, kw_only=True):
    """QUERY_DATA_VERSION (322): return whether the broker's topics have another version than the one in the body."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionResponseHeader(Header, kw_only=True):
    """The response to QUERY_DATA_VERSION (322)."""

    changed: bool


class BrokerHeartbeatRequestHeader(Header, kw_only=True):
    """BROKER_HEARTBEAT (904): renew a broker's registration without its topics (5.x)."""

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
    """GET_BROKER_MEMBER_GROUP (901): return the addresses of the brokers with one name (5.x)."""

    cluster_name: str
    broker_name: str


class PutKVConfigRequestHeader(Header, kw_only=True):
    """PUT_KV_CONFIG (100): set a value of the name server's key-value configuration."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(Header, kw_only=True):
    """GET_KV_CONFIG (101): return a value of the key-value configuration."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(Header, kw_only=True):
    """The response to GET_KV_CONFIG (101)."""

    value: str | None = None


class DeleteKVConfigRequestHeader(Header, kw_only=True):
    """DELETE_KV_CONFIG (102): delete a value of the key-value configuration."""

    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(Header, kw_only=True):
    """GET_KVLIST_BY_NAMESPACE (219): return all keys and values of a namespace."""

    namespace: str


class GetTopicsByClusterRequestHeader(Header, kw_only=True):
    """GET_TOPICS_BY_CLUSTER (224): return the topics of a cluster's brokers."""

    cluster: str


class DeleteTopicFromNamesrvRequestHeader(TopicRequestHeader, kw_only=True):
    """DELETE_TOPIC_IN_NAMESRV (216): delete a topic's route."""

    topic: str
    cluster_name: str | None = None


class RegisterTopicRequestHeader(TopicRequestHeader, kw_only=True):
    """REGISTER_TOPIC_IN_NAMESRV (217): register a topic; the body has its route (5.x)."""

    topic: str


class WipeWritePermOfBrokerRequestHeader(Header, kw_only=True):
    """WIPE_WRITE_PERM_OF_BROKER (205): remove a broker's write permission from all routes."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(Header, kw_only=True):
    """The response to WIPE_WRITE_PERM_OF_BROKER (205): the number of changed routes."""

    wipe_topic_count: Int


class AddWritePermOfBrokerRequestHeader(Header, kw_only=True):
    """ADD_WRITE_PERM_OF_BROKER (327): restore a broker's write permission in all routes."""

    broker_name: str


class AddWritePermOfBrokerResponseHeader(Header, kw_only=True):
    """The response to ADD_WRITE_PERM_OF_BROKER (327): the number of changed routes."""

    add_topic_count: Int
