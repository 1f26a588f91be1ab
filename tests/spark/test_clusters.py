"""Topics on two brokers, one of which stops and returns."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.cluster import NAMES, Cluster, two_brokers
from tests.spark.conftest import APACHE, require_apache
from tests.spark.reading import SECONDS, Reading
from tests.spark.stand import BUNDLED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A, B = NAMES
QUICK = {"pullTimeoutMs": "2000", "fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "50"}


@pytest.fixture(scope="module", params=[BUNDLED, pytest.param(APACHE, marks=pytest.mark.peer)])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two bundled brokers, then two of Apache's; each test leaves both running."""
    if request.param != BUNDLED:
        require_apache(request.param)
    with two_brokers(request.param, tmp_path_factory.mktemp("brokers")) as made:
        yield made


@pytest.mark.promise
def test_broker_that_stops_and_returns(spark: "SparkSession", cluster: Cluster, tmp_path: Path) -> None:
    """Rows are distributed over both; while one is away the other is read, and each row is read once."""
    topic = cluster.topic(queues=2)
    cluster.await_brokers(topic, A, B)
    sent = [str(number) for number in range(3000)]
    frame = spark.range(3000).coalesce(1).selectExpr("CAST(id AS string) AS body")
    frame.write.format("rocketmq").options(**cluster.options, topic=topic).mode("append").save()
    assert {message.broker_name for message in cluster.messages(topic)} == {A, B}
    of = Reading(spark, cluster, tmp_path / "checkpoint")
    of.run(topic=topic)
    assert of.read == sorted(sent)
    cluster.kill(B)
    cluster.await_brokers(topic, A)
    sent += cluster.fill(topic, 10, start=3000)
    of.run(topic=topic, **QUICK)
    assert of.read == sorted(sent)
    cluster.start(B)
    cluster.await_brokers(topic, A, B)
    sent += cluster.fill(topic, 10, start=3010)
    of.run(topic=topic)
    assert of.read == sorted(sent)
    if cluster.kind == BUNDLED:
        cluster.kill(A)
        cluster.kill(B)
        with pytest.raises(Exception, match=f"no route for topic '{topic}'"):
            of.run(topic=topic, **QUICK)
        cluster.start(A)
        cluster.start(B)
        cluster.await_brokers(topic, A, B)
        sent += cluster.fill(topic, 10, start=3020)
        of.run(topic=topic)
        assert of.read == sorted(sent)


def test_query_running_while_a_broker_is_away(spark: "SparkSession", cluster: Cluster, tmp_path: Path) -> None:
    """It continues with the other one, and reads the first when it is back."""
    topic = cluster.topic(queues=1)
    cluster.await_brokers(topic, A, B)
    of = Reading(spark, cluster, tmp_path / "checkpoint")
    sent = cluster.fill(topic, 10)
    options = {
        # So long the name server may take to see that the broker is gone.
        "fetchOffset.numRetries": "20",
        "fetchOffset.retryIntervalMs": "500",
        "pollNameServerIntervalMs": "500",
    }
    query = of.start(topic=topic, trigger={"processingTime": "100 milliseconds"}, **options)
    try:
        query.processAllAvailable()
        cluster.kill(B)
        cluster.await_brokers(topic, A)
        sent += cluster.fill(topic, 10, start=10)
        query.processAllAvailable()
        assert of.read == sorted(sent)
        cluster.start(B)
        cluster.await_brokers(topic, A, B)
        sent += cluster.fill(topic, 10, start=20)
        deadline = time.monotonic() + SECONDS
        while of.read != sorted(sent):
            assert time.monotonic() < deadline, of.batches
            query.processAllAvailable()
            time.sleep(0.1)
    finally:
        query.stop()


def test_topics_of_an_unavailable_broker_are_not_deleted(
    spark: "SparkSession", cluster: Cluster, tmp_path: Path
) -> None:
    """Although no name server has a route for the pattern's only topic."""
    topic = f"only-on-{B}"
    cluster.set_queues(topic, 1, brokers=[B])
    of = Reading(spark, cluster, tmp_path / "checkpoint")
    sent = cluster.fill(topic, 5)
    of.run(subscribePattern=topic)
    cluster.kill(B)
    deadline = time.monotonic() + SECONDS
    while topic in cluster.client.topics():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    of.run(subscribePattern=topic)
    cluster.start(B)
    cluster.await_brokers(topic, B)
    sent += cluster.fill(topic, 5, start=5)
    of.run(subscribePattern=topic)
    assert of.read == sorted(sent)


def test_broker_is_added(spark: "SparkSession", cluster: Cluster, tmp_path: Path) -> None:
    """A topic's queues on it are read from the first message."""
    topic = "on-one-broker"
    cluster.set_queues(topic, 1, brokers=[A])
    cluster.await_brokers(topic, A)
    of = Reading(spark, cluster, tmp_path / "checkpoint")
    sent = cluster.fill(topic, 5)
    of.run(topic=topic)
    cluster.set_queues(topic, 1, brokers=[B])
    cluster.await_brokers(topic, A, B)
    sent += cluster.fill(topic, 5, start=5)
    of.run(topic=topic)
    assert of.read == sorted(sent)
