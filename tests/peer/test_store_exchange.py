"""A store directory of Apache's broker opens in ours, and vice versa."""

import asyncio
import json
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rocket_broker.inspection.store_cli import store as store_command
from rocket_broker.store import (
    GetStatus,
    MessageStore,
    PutStatus,
    RecoveryReport,
    StoreLocked,
    StoreMessage,
    StoreSettings,
)
from rocket_broker.threaded_broker import ThreadedBroker
from rocket_remoting.clock import SystemClock
from rocket_remoting.wire.java_hash import java_hash
from rocket_remoting.wire.message import MessageExt
from rocket_remoting.wire.properties import encode_properties
from rocket_remoting.wire.record import decode_record
from tests.peer.apache import BROKER_CONF, TIMERS_IN_FILES, ApacheBroker
from tests.peer.artifacts import VERSIONS
from tests.peer.conftest import Peers, of_version
from tests.peer.java_client import JavaClient, JavaConsumer, JavaProducer
from tests.peer.json_peer import PeerError
from tests.peer.stage import Stage, eventually

SMALL_LOG = 1024 * 1024

FILE_SIZES = {key: BROKER_CONF[key] for key in ("mappedFileSizeCommitLog", "maxHashSlotNum", "maxIndexNum")}
"""A store keeps the file sizes it was made with."""

# One broker keeps what waits, and the next one delivers it. However long Apache's takes to stop, it delivers nothing in
# its last second, which the next broker would repeat. Brokers deliver at once what is due later than its level allows.
ON_HOLD = {
    "messageDelayLevel": "1s 1h 1s",
    "transactionTimeOut": "3600000",
}
HOLDS_TIMERS = {"timerStopDequeue": "true", **TIMERS_IN_FILES}
"""Apache's broker of 5.x adds timers to its files, and ends none."""
DUE = {
    "messageDelayLevel": "1s 1s 1s",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "500",
    "transactionCheckMax": "10000",
}
TIMER_MS = 8_000
"""Usually our broker has stopped by then; a timer that it delivers is not delivered again."""
PENDING_TIMEOUT = 120.0
BODY = 88
"""Where the body begins in a record."""
BIG = "compressed on its way " * 1000


class Exchange:
    """One directory, opened by one broker after the other.

    Attributes:
        client: Apache's client of the version.
    """

    def __init__(self, version: str, client: JavaClient, root: Path) -> None:
        """Open nothing yet."""
        self.client = client
        self._version = version
        self._root = root

    def apache(self) -> ApacheBroker:
        """Start Apache's broker in the directory."""
        settings = {"mappedFileSizeCommitLog": str(SMALL_LOG)}
        return ApacheBroker(self._version, settings=settings, store=self._root)

    @property
    def timers(self) -> bool:
        """Return whether the version has timers of any delay."""
        return not self._version.startswith("4.")

    @contextmanager
    def apache_serving(self, settings: Mapping[str, str]) -> Iterator[Stage]:
        """Serve the directory by Apache's broker to its client, and stop in order."""
        broker = ApacheBroker(self._version, settings=settings, store=self._root)
        try:
            with Stage(self.client, broker.name_server, broker.address) as stage:
                yield stage
        finally:
            broker.stop()

    @contextmanager
    def ours_serving(self, settings: Mapping[str, str]) -> Iterator[Stage]:
        """Serve the directory by our broker to Apache's client, and stop in order."""
        broker = ThreadedBroker(self._root, settings={**FILE_SIZES, **settings})
        with broker, Stage(self.client, broker.name_server, broker.address) as stage:
            yield stage

    def ours(self) -> tuple[MessageStore, RecoveryReport]:
        """Open our store in the directory."""
        settings = StoreSettings(
            self._root,
            mapped_file_size_commit_log=SMALL_LOG,
            max_hash_slot_num=int(BROKER_CONF["maxHashSlotNum"]),
            max_index_num=int(BROKER_CONF["maxIndexNum"]),
        )
        store = MessageStore(settings, SystemClock())
        return store, store.load()


@pytest.fixture(params=[of_version(version) for version in VERSIONS])
def exchange(request: pytest.FixtureRequest, peers: Peers, tmp_path: Path) -> Exchange:
    """A directory that brokers use in turn."""
    return Exchange(request.param, peers.client(request.param), tmp_path / "store")


def read(store: MessageStore, topic: str) -> dict[tuple[int, int], MessageExt]:
    """Return all messages of a topic by queue and offset."""
    found: dict[tuple[int, int], MessageExt] = {}
    for queue_id in store.topics_with_queues().get(topic, []):
        offset = store.min_offset(topic, queue_id)
        while (result := store.get(topic, queue_id, offset, 32, SMALL_LOG)).status is GetStatus.FOUND:
            found |= {(queue_id, m.queue_offset): m for m in map(decode_record, result.records)}
            offset = result.next_begin_offset
        assert offset == store.max_offset(topic, queue_id)
    return found


def fill(exchange: Exchange, broker: ApacheBroker, topic: str) -> dict[tuple[int, int], str]:
    """Send from Apache's client to Apache's broker more than a file of its log holds; return the positions."""
    exchange.client.create_topic(broker.name_server, broker.address, topic, 4)
    sent: dict[tuple[int, int], str] = {}
    with exchange.client.producer(broker.name_server) as producer:
        for number in range(30):
            body = f"{number}:" + "x" * 70_000
            (answer,) = producer.send(topic, body, tags=f"tag{number % 3}", keys=f"key{number} all")
            sent[answer["queue"], answer["offset"]] = body
        producer.send(topic, "late", delayLevel=18)
    return sent


def check(store: MessageStore, topic: str, sent: dict[tuple[int, int], str]) -> None:
    """Check that everything sent is there: in its queue, by its tags, by its keys, and at its time."""
    found = read(store, topic)
    assert {place: m.body.decode() for place, m in found.items()} == sent
    assert {m.properties["CLUSTER"] for m in found.values()} == {"DefaultCluster"}
    red = frozenset({java_hash("tag1")})
    by_tag = [store.get(topic, queue_id, 0, 99, 2**30, red).records for queue_id in range(4)]
    assert sum(map(len, by_tag)) == 10
    for number in range(30):
        (record,) = store.query(topic, f"key{number}", 9, 0, 2**62)
        assert decode_record(record).body.startswith(b"%d:" % number)
    for m in found.values():
        assert store.store_time(topic, m.queue_id, m.queue_offset) == m.store_timestamp
        (record,) = store.query(topic, m.properties["UNIQ_KEY"], 9, 0, 2**62)
        assert decode_record(record).queue_offset == m.queue_offset
    (late,) = read(store, "SCHEDULE_TOPIC_XXXX").values()
    (entry,) = store.consume_queue_entries("SCHEDULE_TOPIC_XXXX", 17, 0, 9)
    assert (late.body, late.properties["REAL_TOPIC"]) == (b"late", topic)
    assert 0 <= entry[3] - late.store_timestamp - 7_200_000 < 5_000


def test_store_stopped_by_apache_opens_in_ours(exchange: Exchange) -> None:
    """Every message, tag, key and time is found, and nothing is rebuilt."""
    broker = exchange.apache()
    sent = fill(exchange, broker, "orders")
    with pytest.raises(StoreLocked):
        exchange.ours()
    broker.stop()
    store, report = exchange.ours()
    assert (report.ended_in_order, report.torn) == (True, "")
    assert (report.entries_added, report.entries_taken_back, report.messages_indexed) == (0, 0, 0)
    check(store, "orders", sent)
    asyncio.run(store.stop())


def test_store_of_a_killed_apache_broker_opens_in_ours(exchange: Exchange) -> None:
    """Acknowledged messages are there."""
    broker = exchange.apache()
    sent = fill(exchange, broker, "orders")
    broker.kill()
    store, report = exchange.ours()
    assert not report.ended_in_order
    check(store, "orders", sent)
    asyncio.run(store.stop())


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_our_store_opens_in_apaches_and_again_in_ours(exchange: Exchange, end: str) -> None:
    """Apache's broker serves our messages and adds its own; then ours has them all."""
    store, _ = exchange.ours()
    for number in range(40):
        unique_key = f"7F00000100002A9F18B4AAC2{number:08X}"
        properties = {
            "KEYS": f"ours{number}",
            "TAGS": "t",
            "UNIQ_KEY": unique_key,
            "CLUSTER": "DefaultCluster",
        }
        result = store.put(
            StoreMessage(
                "orders",
                number % 4,
                b"ours %d " % number + b"x" * 60_000,
                encode_properties(properties),
                born_timestamp=int(time.time() * 1000),
                tags_code=java_hash("t"),
                keys=f"ours{number}",
                unique_key=unique_key,
            )
        )
        assert result.status is PutStatus.OK
    if end == "stopped":
        asyncio.run(store.stop())
    else:
        for lock in store._locks:  # the death of a process releases them, too
            lock.release()
    broker = exchange.apache()
    client = exchange.client
    client.create_topic(broker.name_server, broker.address, "orders", 4)
    with client.consumer(broker.name_server, f"readers-{end}", "orders") as consumer:
        received = consumer.take(40)
    assert Counter(m.text.split("x")[0] for m in received) == Counter(f"ours {n} " for n in range(40))
    assert {(m.queue, m.offset) for m in received} == {(q, n) for q in range(4) for n in range(10)}
    with client.producer(broker.name_server) as producer:
        (found,) = eventually(lambda: producer.query("orders", "ours7"), bool)
        assert found.text.startswith("ours 7 ")
        sent = [producer.send("orders", f"theirs {n}", keys=f"theirs{n}")[0] for n in range(20)]
        eventually(lambda: producer.query("orders", "theirs19"), bool)
    broker.stop()
    store, report = exchange.ours()
    assert (report.ended_in_order, report.torn) == (True, "")
    found_again = read(store, "orders")
    assert len(found_again) == 60
    for number, answer in enumerate(sent):
        assert found_again[answer["queue"], answer["offset"]].body == b"theirs %d" % number
        assert len(store.query("orders", f"theirs{number}", 9, 0, 2**62)) == 1
    assert len(store.query("orders", "ours7", 9, 0, 2**62)) == 1
    asyncio.run(store.stop())


def run(*arguments: object) -> Any:
    """Run ``streamkit store`` and return its JSON output: one value, or one per line."""
    result = CliRunner().invoke(store_command, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return json.loads(result.stdout) if "--json" in arguments else list(map(json.loads, result.stdout.splitlines()))


def test_apaches_store_is_verified_dumped_and_repaired(exchange: Exchange, tmp_path: Path) -> None:
    """`streamkit store` finds each message intact after a kill; after a damage and repair, Apache serves all others."""
    root = tmp_path / "store"
    broker = exchange.apache()
    exchange.client.create_topic(broker.name_server, broker.address, "orders", 4)
    sent: dict[tuple[int, int], str] = {}
    with exchange.client.producer(broker.name_server) as producer:
        for _ in range(60):
            body = secrets.token_hex(40_000)  # not to be compressed to nothing
            (answer,) = producer.send("orders", body)
            sent[answer["queue"], answer["offset"]] = body
        producer.send("orders", "late", delayLevel=18)
    broker.kill()
    found = run("verify", root, "--json")
    assert (found["sound"], found["records"]) == (True, 61)
    lines = run("dump", root, "--topic", "orders")
    assert {(line["queueId"], line["queueOffset"]): line["body"] for line in lines} == sent
    assert [line["body"] for line in run("dump", root, "--topic", "SCHEDULE_TOPIC_XXXX")] == ["late"]

    damaged = min(lines, key=lambda line: (line["commitLogOffset"] < SMALL_LOG, line["commitLogOffset"]))
    with (root / "commitlog" / f"{SMALL_LOG:020d}").open("r+b") as file:
        file.seek(damaged["commitLogOffset"] - SMALL_LOG + BODY)
        file.write(b"damage")
    assert not run("verify", root, "--json")["sound"]
    assert len(run("repair", root, "--apply", "--yes", "--json")["plan"]["stepped_over"]) == 1
    assert run("verify", root, "--json")["sound"]
    broker = exchange.apache()
    with exchange.client.consumer(broker.name_server, "readers", "orders") as consumer:
        received = consumer.take(59)
    lost = {(damaged["queueId"], damaged["queueOffset"])}
    assert {(m.queue, m.offset): m.text for m in received} == {place: sent[place] for place in sent.keys() - lost}
    broker.stop()


def test_messages_deleted_by_either_broker_stay_deleted(exchange: Exchange, tmp_path: Path) -> None:
    """Apache's broker ignores our deletion record; its deletions show by queues that restart at 0."""
    store, _ = exchange.ours()
    for topic in ("ours", "kept"):
        for number in range(3):
            assert store.put(StoreMessage(topic, 0, b"%s %d" % (topic.encode(), number))).status is PutStatus.OK
    store.delete_topic("ours")
    store.put(StoreMessage("ours", 1, b"ours anew"))
    asyncio.run(store.stop())

    broker, client = exchange.apache(), exchange.client
    for topic in ("ours", "kept", "theirs"):
        client.create_topic(broker.name_server, broker.address, topic, 4)
    for topic, texts_there in (("kept", ["kept 0", "kept 1", "kept 2"]), ("ours", ["ours anew"])):
        with client.consumer(broker.name_server, f"readers-{topic}", topic) as consumer:
            assert sorted(m.text for m in consumer.take(len(texts_there))) == texts_there
    with client.producer(broker.name_server) as producer:
        for number in range(12):
            producer.send("theirs", f"theirs {number}")
        # Apache's broker makes queue entries after its answer. An entry that it made after the deletion would stay, and
        # the first message of the new queue would get none.
        assert eventually(lambda: _messages(producer, "theirs", 4), lambda count: count == 12) == 12
        deleted = client.mqadmin(broker.name_server, "deleteTopic", "-c", "DefaultCluster", "-t", "theirs")
        assert "success" in deleted
        client.create_topic(broker.name_server, broker.address, "theirs", 4)
        (anew,) = eventually(lambda: _sent(producer, "theirs", "theirs anew"), bool)
    broker.stop()

    root = tmp_path / "store"
    found = run("verify", root, "--json")
    assert (found["sound"], found["deleted_topics"]) == (True, {"ours": 3, "theirs": 12}), found
    assert found["deletions_from"] == found["end"]
    assert run("repair", root, "--apply", "--yes", "--json")["after"]["deleted"] == 15
    store, _ = exchange.ours()
    assert {m.body for m in read(store, "ours").values()} == {b"ours anew"}
    assert {place: m.body for place, m in read(store, "theirs").items()} == {
        (anew["queue"], anew["offset"]): b"theirs anew"
    }
    asyncio.run(store.stop())


def _messages(producer: JavaProducer, topic: str, queues: int) -> int:
    """Return how many messages the queues of a topic have."""
    return sum(producer.offsets(topic, queue)["max"] for queue in range(queues))


def _sent(producer: JavaProducer, topic: str, body: str) -> list[Any]:
    """Send, and return the answer; None while the topic is unknown."""
    try:
        return producer.send(topic, body)
    except PeerError:
        return []


def leave_pending(exchange: Exchange, stage: Stage, tag: str) -> list[str]:
    """Send what the broker is to keep for later, and return the bodies.

    A message at a delay level, one of a transaction whose producer is gone, and a timer where there are any.
    """
    producer = stage.producer()
    producer.send("letters", f"delayed {tag}", delayLevel=2)
    crashing = stage.producer(transactional=True, group="payers")
    decision = {"execute": "UNKNOWN", "check": "COMMIT"}
    crashing.send("letters", f"half {tag}", mode="transaction", properties=decision)
    crashing.stop()
    if not exchange.timers:
        return [f"delayed {tag}", f"half {tag}"]
    producer.send("letters", f"timed {tag}", TIMER_DELAY_MS=TIMER_MS)
    return [f"delayed {tag}", f"half {tag}", f"timed {tag}"]


def take_pending(stage: Stage, readers: JavaConsumer, bodies: list[str], unread: set[str]) -> None:
    """See that a broker goes on with what another one kept: it delivers it, and asks about the transaction.

    What was ``unread`` before is in other queues perhaps, and comes before or after that.
    """
    asked = stage.producer(transactional=True, group="payers", heartbeatMs=200)
    other = stage.topic()
    asked.send(other, "here I am", mode="transaction", properties={"execute": "COMMIT"})
    expected = {*bodies, *unread}
    readers.wait_for(lambda: expected <= texts(readers), PENDING_TIMEOUT, str(expected))
    assert texts(readers) == expected
    assert {m.text for m in asked.checks.received} & {*bodies} == {bodies[1]}


def texts(consumer: JavaConsumer) -> set[str]:
    """Return the bodies received so far."""
    return {m.text for m in consumer.received}


def test_store_moves_from_apache_to_us_and_back(exchange: Exchange) -> None:
    """Each broker serves, delivers and extends what the former one stored."""
    with exchange.apache_serving({**ON_HOLD, **HOLDS_TIMERS}) as stage:
        exchange.client.create_topic(stage.name_server, stage.address, "letters", 2)
        producer = stage.producer()
        producer.send("letters", "a", "b", tags="vowel || not", keys="early")
        producer.send("letters", "c", "d", mode="batch", properties={"p": "v"})
        producer.send("letters", BIG, mode="queue", queue=1)
        readers = stage.consumer("letters", "readers")
        readers.take(5)
        stage.await_committed("letters", "readers")
        readers.stop()
        producer.send("letters", "e")
        of_apache = leave_pending(exchange, stage, "by Apache")

    with exchange.ours_serving(DUE) as stage:
        readers = stage.consumer("letters", "readers")
        take_pending(stage, readers, of_apache, {"e"})
        everything = stage.consumer("letters")
        before = ["a", "b", "c", "d", BIG, "e", *of_apache]
        assert sorted(m.text for m in everything.take(len(before))) == sorted(before)
        assert sorted(m.text for m in everything.received if m.properties.get("p") == "v") == ["c", "d"]
        producer = stage.producer()
        assert sorted(m.text for m in producer.query("letters", "early")) == ["a", "b"]
        producer.send("letters", "f", keys="late")
        readers.take(len(of_apache) + 2)
        stage.await_committed("letters", "readers")
        readers.stop()

    with exchange.ours_serving(ON_HOLD) as stage:
        stage.producer().send("letters", "g", "h", mode="batch", keys="late")
        ours = leave_pending(exchange, stage, "by us")

    with exchange.apache_serving(DUE) as stage:
        readers = stage.consumer("letters", "readers")
        take_pending(stage, readers, ours, {"g", "h"})
        everything = stage.consumer("letters")
        after = {*before, "f", "g", "h", *ours}
        everything.wait_for(lambda: after <= texts(everything), what=str(after))
        stored = Counter(m.text for m in everything.received)
        # Apache's broker checks again until it has recorded an answer, and stores the message for each commit.
        stored[ours[1]] = min(stored[ours[1]], 1)
        assert stored == Counter(after)
        producer = stage.producer()
        assert sorted(m.text for m in producer.query("letters", "early")) == ["a", "b"]
        assert sorted(m.text for m in producer.query("letters", "late")) == ["f", "g", "h"]
        assert producer.send("letters", "i")[0]["status"] == "SEND_OK"
