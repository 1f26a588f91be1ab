"""Bodies about topics, brokers and where they are: between clients, brokers and name servers."""

import struct
import zlib
from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec

from rocket_remoting.wire.bodies.json_body import Body, KeyedBody, encode_body
from rocket_remoting.wire.sys_flag import PERM_READ, PERM_WRITE

_INT = struct.Struct(">i")


class TopicFilterType(StrEnum):
    """How many tags a message of the topic may have."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


class DataVersion(Body, kw_only=True):
    """Which state of a table this is; equal versions, equal tables.

    Attributes:
        state_version: A controller's epoch (5.x).
        timestamp: Milliseconds of the last change.
        counter: Number of changes.
    """

    state_version: int = 0
    timestamp: int
    counter: int

    def next(self, now_ms: int) -> "DataVersion":
        """The version after one more change."""
        return DataVersion(state_version=self.state_version, timestamp=now_ms, counter=self.counter + 1)


class TopicConfig(Body, kw_only=True, omit_defaults=False):
    """A topic's settings on one broker; written whole, as Apache's brokers do.

    Attributes:
        perm: The ``PERM_*`` bits of `sys_flag`.
        topic_sys_flag: The ``TOPIC_*`` bits of `sys_flag`.
        order: Whether its queues are listed by the order configuration.
        attributes: 5.x's further settings, ``message.type`` for one.
    """

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PERM_READ | PERM_WRITE
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = msgspec.field(default_factory=dict)


class TopicConfigSerializeWrapper(Body, kw_only=True):
    """A broker's topics; also ``config/topics.json``. As in Java's JSON the version comes first."""

    data_version: DataVersion
    topic_config_table: dict[str, TopicConfig]


class RegisterBrokerBody(Body, kw_only=True):
    """What a broker reports of itself beside its addresses."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper
    filter_server_list: list[str] = msgspec.field(default_factory=list)


class KVTable(Body, kw_only=True):
    """Texts by name: runtime information, a namespace of the KV configuration, order configurations."""

    table: dict[str, str]


class QueueData(Body, kw_only=True):
    """A topic's queues on one broker name."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


class BrokerData(KeyedBody, kw_only=True):
    """The addresses of one broker name, by broker id; id 0 is the master."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str]
    zone_name: str | None = None
    enable_acting_master: bool | None = None


class TopicRouteData(KeyedBody, kw_only=True):
    """Where a topic's queues are."""

    order_topic_conf: str | None = None
    queue_datas: list[QueueData]
    broker_datas: list[BrokerData]
    filter_server_table: dict[str, list[str]] = msgspec.field(default_factory=dict)


class ClusterInfo(KeyedBody, kw_only=True):
    """All brokers that a name server knows, and which clusters they are in."""

    broker_addr_table: dict[str, BrokerData]
    cluster_addr_table: dict[str, set[str]]


class BrokerMemberGroup(KeyedBody, kw_only=True):
    """The addresses of one broker name, as GET_BROKER_MEMBER_GROUP (901) asks for them inside its answer."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str]


class TopicList(Body, kw_only=True):
    """Names of topics; with a broker's address where system topics are asked for."""

    topic_list: set[str]
    broker_addr: str | None = None


def encode_register_broker_body(body: RegisterBrokerBody, *, compressed: bool = False) -> bytes:
    """The body of REGISTER_BROKER (103).

    ::

        plain       JSON
        compressed  zlib of | length 4 | data version, JSON | number of topics 4 |
                            for each: | length 4 | name read write perm filter [attributes], with blanks |
                            | length 4 | filter servers, JSON |
    """
    if not compressed:
        return encode_body(body)
    wrapper = body.topic_config_serialize_wrapper
    configs = list(wrapper.topic_config_table.values())
    blocks = register_broker_blocks(wrapper.data_version, configs, body.filter_server_list)
    return zlib.compress(b"".join(blocks))


def register_broker_blocks(
    version: DataVersion, configs: Sequence[TopicConfig], filter_servers: Sequence[str] = ()
) -> Iterator[bytes]:
    """Yield what is compressed in the body of REGISTER_BROKER (103), a block for each topic."""
    yield _as_block(encode_body(version))
    yield _INT.pack(len(configs))
    for config in configs:
        attributes = msgspec.json.encode(config.attributes).decode() if config.attributes else "{}"
        yield _as_block(
            f"{config.topic_name} {config.read_queue_nums} {config.write_queue_nums} {config.perm}"
            f" {config.topic_filter_type} {attributes}".encode()
        )
    yield _as_block(msgspec.json.encode(filter_servers))


def _as_block(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data
