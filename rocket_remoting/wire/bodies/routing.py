"""Bodies about topics, brokers and routes, which clients, brokers and name servers exchange."""

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
    """The version of a table; tables with equal versions are equal.

    Attributes:
        state_version: The epoch of the controller (5.x).
        timestamp: The time of the last change.
        counter: The number of changes.
    """

    state_version: int = 0
    timestamp: int
    counter: int

    def next(self, now_ms: int) -> "DataVersion":
        """Return the version after one more change."""
        return DataVersion(state_version=self.state_version, timestamp=now_ms, counter=self.counter + 1)


class TopicConfig(Body, kw_only=True, omit_defaults=False):
    """A topic's settings on one broker; defaults are written too, as Apache's brokers do.

    Attributes:
        perm: The ``PERM_*`` bits of `sys_flag`.
        topic_sys_flag: The ``TOPIC_*`` bits of `sys_flag`.
        order: Whether an order configuration lists the topic's queues.
        attributes: Further settings, such as ``message.type`` (5.x).
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
    """A broker's topics; also the format of ``config/topics.json``. The version comes first, as in Java's JSON."""

    data_version: DataVersion
    topic_config_table: dict[str, TopicConfig]


class RegisterBrokerBody(Body, kw_only=True):
    """REGISTER_BROKER (103): a broker's topics; its addresses are in the header."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper
    filter_server_list: list[str] = msgspec.field(default_factory=list)


class KVTable(Body, kw_only=True):
    """Strings by name: runtime information, a namespace of the key-value configuration, order configurations."""

    table: dict[str, str]


class QueueData(Body, kw_only=True):
    """The queues of a topic on the brokers with one name."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


class BrokerData(KeyedBody, kw_only=True):
    """The addresses of the brokers with one name, by broker id; id 0 is the master."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str]
    zone_name: str | None = None
    enable_acting_master: bool | None = None


class TopicRouteData(KeyedBody, kw_only=True):
    """A topic's route: its queues, and the addresses of their brokers."""

    order_topic_conf: str | None = None
    queue_datas: list[QueueData]
    broker_datas: list[BrokerData]
    filter_server_table: dict[str, list[str]] = msgspec.field(default_factory=dict)


class ClusterInfo(KeyedBody, kw_only=True):
    """All brokers that a name server knows, and the broker names of each cluster."""

    broker_addr_table: dict[str, BrokerData]
    cluster_addr_table: dict[str, set[str]]


class BrokerMemberGroup(KeyedBody, kw_only=True):
    """The addresses of the brokers with one name, in the response to GET_BROKER_MEMBER_GROUP (901)."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str]


class TopicList(Body, kw_only=True):
    """Names of topics; in a response with system topics also a broker's address."""

    topic_list: set[str]
    broker_addr: str | None = None


def encode_register_broker_body(body: RegisterBrokerBody, *, compressed: bool = False) -> bytes:
    """Return the body of REGISTER_BROKER (103).

    ::

        plain       JSON
        compressed  zlib of | length 4 | data version, JSON | number of topics 4 |
                            for each: | length 4 | name read write perm filter [attributes], separated by spaces |
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
    """Yield the blocks of a compressed body of REGISTER_BROKER (103), one for each topic."""
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
