"""Faults of kafka-python on a real Kafka, each without and with the binder's repairs."""

import gc
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError

from binders.kafka.clients import RepairedConsumer, RepairedProducer
from tests.peer.kafka import KafkaServer

PATIENCE = 60.0
# Closing a KafkaProducer that waits for its broker drops a coroutine and its open socket with it.
LEAVES_SOCKETS_OPEN = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect the sockets that kafka-python leaves open without its repairs, so that no later test reports them."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@contextmanager
def topic(server: KafkaServer, **configs: object) -> Iterator[tuple[str, KafkaAdminClient]]:
    """A topic of one partition, and a client that may change it."""
    name = f"repairs-{uuid4().hex}"
    admin = KafkaAdminClient(bootstrap_servers=server.address)
    try:
        admin.create_topics({name: {"num_partitions": 1, "replication_factor": 1, "configs": configs}})
        admin.wait_for_topics([name])
        yield name, admin
    finally:
        admin.close()


@pytest.mark.parametrize(("kind", "joins"), [(KafkaConsumer, False), (RepairedConsumer, True)])
def test_without_the_repair_a_join_interrupted_by_a_polls_end_is_forgotten(
    kafka_server: KafkaServer, kind: type[KafkaConsumer], joins: bool
) -> None:
    """The leader sees new partitions while a poll of a millisecond ends."""
    with topic(kafka_server) as (name, admin):
        consumer = kind(bootstrap_servers=kafka_server.address, group_id=name, metadata_max_age_ms=300)
        coordinator = consumer._coordinator
        try:
            consumer.subscribe([name])
            # Polls that are long enough for the whole join: without the repair, an interrupted join is forgotten.
            until(lambda: consumer.poll(timeout_ms=3000) or consumer.assignment())
            admin.create_partitions({name: 2})

            def ends() -> bool:
                consumer.poll(timeout_ms=1)
                is_forgotten = coordinator.rejoining and not coordinator.need_rejoin()
                return len(consumer.assignment()) == 2 or (is_forgotten and not joins)

            until(ends)
            for _ in range(20):
                consumer.poll(timeout_ms=50)
            assert (len(consumer.assignment()) == 2) is joins
        finally:
            consumer.close()


def until(condition: object) -> None:
    """Check repeatedly until the condition is true."""
    deadline = time.monotonic() + PATIENCE
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline


@pytest.mark.parametrize(("kind", "goes_on"), [(KafkaProducer, False), (RepairedProducer, True)])
def test_without_the_repair_a_refused_message_ends_its_producer(
    kafka_server: KafkaServer, kind: type[KafkaProducer], goes_on: bool
) -> None:
    """After one that is too large for its topic, the next one fails as well."""
    with topic(kafka_server, **{"max.message.bytes": 2000}) as (name, _):
        producer = kind(bootstrap_servers=kafka_server.address)
        try:
            with pytest.raises(KafkaError, match="MessageSizeTooLarge"):
                producer.send(name, b"x" * 3000).get(timeout=PATIENCE)
            if goes_on:
                assert producer.send(name, b"y").get(timeout=PATIENCE).offset == 0
            else:
                with pytest.raises(KafkaError):
                    producer.send(name, b"y").get(timeout=PATIENCE)
        finally:
            producer.close(timeout=5)


@pytest.mark.peer
@pytest.mark.slow
@LEAVES_SOCKETS_OPEN
@pytest.mark.parametrize(("kind", "ends"), [(KafkaProducer, False), (RepairedProducer, True)])
def test_without_the_repair_a_commit_outlasts_its_producer(
    kafka_server_of_its_own: KafkaServer, kind: type[KafkaProducer], ends: bool
) -> None:
    """It waits for an unavailable broker although the producer is closed."""
    server = kafka_server_of_its_own
    with topic(server) as (name, _):
        producer = kind(bootstrap_servers=server.address, transactional_id=name)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(name, b"x").get(timeout=PATIENCE)
        errors: list[Exception] = []

        def commit() -> None:
            try:
                producer.commit_transaction()
            except KafkaTimeoutError as error:
                errors.append(error)

        server.kill()
        thread = threading.Thread(target=commit, daemon=True)
        thread.start()
        producer.close(timeout=0)
        # When the sender's thread has ended, nothing can end the wait.
        producer._sender.join()
        thread.join(PATIENCE if ends else 1)
        assert thread.is_alive() is not ends
        assert bool(errors) is ends
