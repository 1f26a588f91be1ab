"""The driver's requests to a cluster before a batch is read or written."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StringType, StructType

from pyspark_rocketmq import pool
from pyspark_rocketmq.cluster import Cluster
from pyspark_rocketmq.errors import ClusterError, OptionError
from pyspark_rocketmq.offsets import StreamOffset
from pyspark_rocketmq.options import sink_options, source_options
from pyspark_rocketmq.schema import source_schema
from pyspark_rocketmq.sink import check
from pyspark_rocketmq.starting import Position
from pyspark_rocketmq.stream_reader import RocketMQStreamReader
from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client.blocking import MessageQueue
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import BrokerData, QueueData, TopicRouteData, encode_body
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    GetMaxOffsetResponseHeader,
    GetMinOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocket_remoting.wire.sys_flag import PERM_READ, PERM_WRITE
from tests.spark.stand import BUNDLED, Stand
from tests.unit.rocket_client.test_blocking_connection import ServerThread

AT_ONCE = {"fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "0"}
ROWS = StructType().add("body", StringType())
A, B = MessageQueue("t", "a", 0), MessageQueue("t", "b", 0)


class ScriptedCluster(ServerThread):
    """A name server, and brokers `a` and `b` with one queue per topic and ten messages each.

    Attributes:
        busy: How many times it still answers that it is busy, to what brokers are asked.
        drained: How many times its route still says that nothing may be written.
        brokers: The brokers of the route: where they are.
        committed: The offsets that were committed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.busy = 0
        self.drained = 0
        self.brokers = dict.fromkeys("ab", self.server.address)
        self.committed: list[int] = []

    def _handle(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return RemotingCommand.response(request, body=encode_body(self._route()))
        if self.busy:
            self.busy -= 1
            return RemotingCommand.response(request, ResponseCode.SYSTEM_BUSY, remark="flow control")
        match request.code:
            case RequestCode.GET_MAX_OFFSET:
                return RemotingCommand.response(request, header=GetMaxOffsetResponseHeader(offset=10))
            case RequestCode.GET_MIN_OFFSET:
                return RemotingCommand.response(request, header=GetMinOffsetResponseHeader(offset=0))
            case RequestCode.UPDATE_CONSUMER_OFFSET:
                self.committed.append(request.header(UpdateConsumerOffsetRequestHeader).commit_offset)
        return RemotingCommand.response(request)

    def _route(self) -> TopicRouteData:
        self.drained -= 1
        return TopicRouteData(
            queue_datas=[
                QueueData(
                    broker_name=name,
                    read_queue_nums=1,
                    write_queue_nums=1,
                    perm=PERM_READ if self.drained >= 0 else PERM_READ | PERM_WRITE,
                )
                for name in self.brokers
            ],
            broker_datas=[
                BrokerData(cluster="c", broker_name=name, broker_addrs={0: address})
                for name, address in self.brokers.items()
            ],
        )


@pytest.fixture
def scripted() -> Iterator[ScriptedCluster]:
    """Return a cluster for one test."""
    cluster = ScriptedCluster()
    yield cluster
    cluster.close()


def cluster_of(name_server: str, **options: str) -> Cluster:
    """Return the driver's view of a cluster."""
    return Cluster(source_options({"nameServer": name_server, **AT_ONCE, **options}))


def test_busy_broker_is_asked_again(scripted: ScriptedCluster) -> None:
    """As often as an unavailable one; then the error says that it is busy."""
    cluster = cluster_of(scripted.server.address, topic="t")
    try:
        scripted.busy = 1
        assert cluster.ends([B]) == {B: 10}
        scripted.busy = 2
        with pytest.raises(ClusterError, match=r"SYSTEM_BUSY.*flow control"):
            cluster.ends([B])
    finally:
        cluster.close()


@pytest.mark.parametrize("delivery", ["at-least-once", "deduplicated"])
def test_sink_retries(scripted: ScriptedCluster, delivery: str) -> None:
    """A busy or starting broker does not end the query."""
    given = {"nameServer": scripted.server.address, "topic": "t", "delivery": delivery}
    options = sink_options(given)
    cluster = replace(options.cluster, retry_interval=0.0)
    scripted.busy = 1
    with pool.client(cluster):
        assert check(replace(options, cluster=cluster), ROWS, overwrite=False).options.topic == "t"


@pytest.mark.parametrize("delivery", ["at-least-once", "deduplicated"])
@pytest.mark.parametrize("is_waited_for", [True, False])
def test_sink_waits_for_read_only_brokers(scripted: ScriptedCluster, delivery: str, is_waited_for: bool) -> None:
    """As long as rows wait; then it is an error."""
    given = {"nameServer": scripted.server.address, "topic": "t", "delivery": delivery}
    options = sink_options(given | {"sendTimeoutMs": "60000" if is_waited_for else "1"})
    cluster = replace(options.cluster, retry_interval=0.0)
    scripted.drained = 7
    with pool.client(cluster):
        if is_waited_for:
            check(replace(options, cluster=cluster), ROWS, overwrite=False)
            assert scripted.drained < 0
        else:
            scripted.drained = 1000
            with pytest.raises(ClusterError, match="none of its queues can be written to"):
                check(replace(options, cluster=cluster), ROWS, overwrite=False)


def test_assigned_queues_of_an_unavailable_broker_wait(scripted: ScriptedCluster) -> None:
    """Reading continues when it is back; a queue that never existed is an error."""
    assign = '{"t":{"a":[0],"b":[0]}}'
    given = {"nameServer": scripted.server.address, "assign": assign, **AT_ONCE}
    reader = RocketMQStreamReader(source_options(given), source_schema(False))
    del scripted.brokers["a"]
    try:
        with pytest.raises(OptionError, match="option 'assign' names queue 0 of t at a"):
            reader.initialOffset()
        start = StreamOffset({A: 3, B: 4}, reader._options.plan).to_json()
        end = reader.latestOffset(start, ReadAllAvailable())
        assert StreamOffset.from_json(end).offsets == {A: 3, B: 10}
        reader.prepareForTriggerAvailableNow()
        assert reader.latestOffset(end, ReadAllAvailable()) == end
    finally:
        reader.stop()


def test_running_query_finds_a_broker_that_is_back(scripted: ScriptedCluster) -> None:
    """When name servers are asked again, as often as an option says."""
    away = scripted.brokers.pop("a")
    given = {"nameServer": scripted.server.address, "topic": "t", "pollNameServerIntervalMs": "1", **AT_ONCE}
    reader = RocketMQStreamReader(source_options(given), source_schema(False))
    start = StreamOffset({A: 3, B: 4}, reader._options.plan).to_json()
    try:
        end = reader.latestOffset(start, ReadAllAvailable())
        assert StreamOffset.from_json(end).offsets == {A: 3, B: 10}
        scripted.brokers["a"] = away
        while StreamOffset.from_json(end).offsets != {A: 10, B: 10}:
            end = reader.latestOffset(end, ReadAllAvailable())
    finally:
        reader.stop()


def test_progress_is_committed_at_available_brokers(scripted: ScriptedCluster) -> None:
    """An unavailable one does not affect the others."""
    del scripted.brokers["a"]
    cluster = cluster_of(scripted.server.address, topic="t", consumerGroup="g")
    try:
        cluster.commit({A: 3, B: 4})
    finally:
        cluster.close()
    assert scripted.committed == [4]


def test_time_means_its_first_message() -> None:
    """Messages of one batch have the same time, and brokers may find any of them."""
    with ThreadedBroker() as broker:
        stand = Stand(BUNDLED, broker.name_server)
        with stand.client:
            topic = stand.topic(queues=1)
            for _ in range(3):
                stand.send(topic, [b"x"] * 200)
            stored = [message.store_timestamp for message in stand.messages(topic)]
            (queue,) = stand.queues(topic)
        firsts = [0, *(n for n, (one, other) in enumerate(pairwise(stored), 1) if one != other)]
        assert len(firsts) < len(stored)
        cluster = cluster_of(broker.name_server, topic=topic)
        try:
            for first in firsts:
                position = Position("timestamp", option="startingTimestamp", timestamp=stored[first])
                assert cluster.at(position, [queue]) == {queue: first}
        finally:
            cluster.close()
