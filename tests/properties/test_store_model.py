"""The store compared with a model, for stores, flushes, deletions and crashes."""

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rocket_broker.store import FlushDiskType, GetStatus, MessageStore, PutStatus
from rocket_remoting.wire.java_hash import java_hash
from rocket_remoting.wire.record import decode_record
from rocket_remoting.wire.sys_flag import TRANSACTION_PREPARED
from tests.store.disk import Disk, FakeClock, delete_old, message
from tests.store.faulty_file_system import FaultyFileSystem

STORE_LOG = logging.getLogger("rocket_broker.store")
TOPICS = ("orders", "bills")
SIZES = st.one_of(st.integers(0, 300), st.integers(4000, 12_000))
QUEUES = [(topic, queue_id) for topic in TOPICS for queue_id in range(2)]
SETTINGS = {
    "mapped_file_size_commit_log": 8 * 4096,
    "mapped_file_size_consume_queue": 20 * 20,
    "max_hash_slot_num": 30,
    "max_index_num": 60,
    "max_open_maps": 4,
    "flush_disk_type": FlushDiskType.SYNC_FLUSH,
}


@dataclass(frozen=True)
class Stored:
    """A stored message."""

    key: str
    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    tag: str
    begin: int
    end: int
    is_visible: bool


class StoreMachine(RuleBasedStateMachine):
    """A store on a faulty disk, and a list of its messages.

    Attributes:
        log: All messages, in order.
        durable: So many of them are on the disk for sure.
        begins: Where a queue began anew because its topic was deleted: a position in `log`.
    """

    @initialize()
    def open(self) -> None:
        STORE_LOG.setLevel(logging.CRITICAL)
        self.clock = FakeClock()
        self.disk = Disk(FaultyFileSystem(), Path("/store"), self.clock)
        self.store: MessageStore = self.disk.open(**SETTINGS)
        self.log: list[Stored] = []
        self.durable = 0
        self.begins = dict.fromkeys(QUEUES, 0)
        self.number = 0

    def teardown(self) -> None:
        STORE_LOG.setLevel(logging.NOTSET)

    @rule(
        queue=st.sampled_from(QUEUES),
        size=SIZES,
        tag=st.sampled_from(["", "red", "blue"]),
        properties=SIZES,
        is_visible=st.sampled_from([True, True, True, False]),
    )
    def put(self, queue: tuple[str, int], size: int, tag: str, properties: int, is_visible: bool) -> None:
        self.number += 1
        self.clock.now += 7
        key = f"k{self.number}"
        body = (b"%d," % self.number * size)[:size]
        given = message(
            *queue,
            body,
            properties={"UNIQ_KEY": key, **({"TAGS": tag} if tag else {}), "pad": "p" * properties},
            tags_code=java_hash(tag),
            unique_key=key,
            sys_flag=0 if is_visible else TRANSACTION_PREPARED,
        )
        result = self.store.put(given)
        assert result.status is PutStatus.OK
        self.last = result
        begin = result.commit_log_offset
        self.log.append(Stored(key, *queue, result.queue_offset, body, tag, begin, begin + result.size, is_visible))

    @rule(queue=st.sampled_from(QUEUES), number=st.integers(1, 60))
    def put_many(self, queue: tuple[str, int], number: int) -> None:
        for _ in range(number):
            self.put(queue, 40, "", 0, True)

    @rule()
    def put_and_wait_for_the_disk(self) -> None:
        self.put(QUEUES[0], 10, "", 0, True)
        status = asyncio.run(self.store.await_flush(self.last))
        assert status is PutStatus.OK
        self.durable = len(self.log)

    @rule(what=st.sampled_from(["flush", "delete a topic", "delete expired", "stop and start"]))
    def maintain(self, what: str) -> None:
        if what == "delete expired":
            if delete_old(self.store):
                self.durable = len(self.log)
            return
        self.durable = len(self.log)
        if what == "flush":
            self.store.flush()
        elif what == "delete a topic":
            self.store.delete_topic("orders")
            self.begins |= dict.fromkeys(QUEUES[:2], len(self.log))
        else:
            asyncio.run(self.store.stop())
            self.store = self.disk.store(**SETTINGS)
            report = self.store.load()
            assert (report.ended_in_order, report.records) == (True, 0)

    @rule(
        seed=st.integers(0, 2**32),
        unflushed=st.lists(st.tuples(st.sampled_from(QUEUES), SIZES, SIZES), min_size=1, max_size=6),
    )
    def store_and_crash(self, seed: int, unflushed: list[tuple[tuple[str, int], int, int]]) -> None:
        for queue, size, properties in unflushed:
            self.put(queue, size, "", properties, True)
        self.disk = self.disk.crash(seed)
        self.store = self.disk.open(**SETTINGS)
        ends = [0, *(stored.end for stored in self.log)]
        kept = max(number for number, end in enumerate(ends) if end <= self.store.max_commit_log_offset)
        assert kept >= self.durable
        del self.log[kept:]
        if self.log:
            assert self.log[-1].end <= self.store.max_commit_log_offset

    @invariant()
    def every_queue_holds_what_it_must(self) -> None:
        if not hasattr(self, "log"):
            return
        first = self.store.min_commit_log_offset
        for queue in QUEUES:
            expected = [
                stored
                for stored in self.log[self.begins[queue] :]
                if stored.is_visible and (stored.topic, stored.queue_id) == queue
            ]
            assert [stored.queue_offset for stored in expected] == list(range(len(expected)))
            assert self.store.max_offset(*queue) == len(expected)
            kept = [stored for stored in expected if stored.begin >= first]
            assert self.store.min_offset(*queue) == len(expected) - len(kept)
            assert self._read(queue) == [(stored.queue_offset, stored.body) for stored in kept]
            reds = [stored.queue_offset for stored in kept if stored.tag == "red"]
            assert [offset for offset, _ in self._read(queue, frozenset({java_hash("red")}))] == reds

    @invariant()
    def every_message_is_found_by_its_key(self) -> None:
        if not hasattr(self, "log"):
            return
        first = self.store.min_commit_log_offset
        for stored in self.log[-30:]:
            records = self.store.query(stored.topic, stored.key, 32, 0, 2**62)
            bodies = [
                bytes(decode_record(record).body)
                for record in records
                if decode_record(record).properties["UNIQ_KEY"] == stored.key
            ]
            assert bodies == ([stored.body] if stored.begin >= first else [])

    def _read(self, queue: tuple[str, int], tags: frozenset[int] | None = None) -> list[tuple[int, bytes]]:
        offset = self.store.min_offset(*queue)
        found: list[tuple[int, bytes]] = []
        while offset < self.store.max_offset(*queue):
            result = self.store.get(*queue, offset, 5, 2000, tags)
            assert result.status in (GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE)
            assert result.next_begin_offset > offset
            for stored in map(decode_record, result.records):
                assert (stored.topic, stored.queue_id) == queue
                assert offset <= stored.queue_offset < result.next_begin_offset
                found.append((stored.queue_offset, bytes(stored.body)))
            offset = result.next_begin_offset
        return found


StoreMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestStore = StoreMachine.TestCase
