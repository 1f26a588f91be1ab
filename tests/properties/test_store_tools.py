"""`verify` and `repair` compared with a model, after stores, deletions, kills and damage."""

import asyncio
import logging
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from rocket_broker.store import MessageStore, PutStatus, StoreSettings
from rocket_broker.store.files import OsFileSystem
from rocket_broker.store.index_file import file_size
from rocket_broker.store.layout import StoreLayout
from rocket_broker.store.repair import RepairPlan, plan_repair, repair
from rocket_broker.store.survey import Survey
from rocket_broker.store.surveyor import survey
from rocket_remoting.wire.record import decode_record
from rocket_remoting.wire.topics import is_system_topic
from tests.store.disk import Disk, FakeClock, delete_old, message
from tests.store.faulty_file_system import FaultyFileSystem

STORE_LOG = logging.getLogger("rocket_broker.store")
TOPICS = ("orders", "bills")
QUEUES = [(topic, queue_id) for topic in TOPICS for queue_id in range(2)]
LOG_FILE_SIZE = 4 * 4096
SETTINGS = {
    "mapped_file_size_commit_log": LOG_FILE_SIZE,
    "mapped_file_size_consume_queue": 20 * 20,
    "max_hash_slot_num": 30,
    "max_index_num": 60,
}
Queue = tuple[str, int]
Visible = dict[Queue, dict[int, bytes]]


@dataclass(frozen=True)
class Stored:
    """A stored message."""

    queue: Queue
    number: int
    body: bytes
    begin: int
    end: int


@dataclass(frozen=True)
class Harm:
    """One kind of damage to a store's files.

    Attributes:
        what: What it is.
        where: Which file, and where in it, from 0 to 1.
        data: Bytes that are written there.
    """

    what: str
    where: float
    data: bytes


HARMS = st.builds(
    Harm,
    st.sampled_from(
        [
            "log bytes",
            "log bytes",
            "log cut",
            "log file",
            "queue bytes",
            "queue cut",
            "queue file",
            "queues",
            "checkpoint",
        ]
    ),
    st.floats(0, 1, exclude_max=True),
    st.one_of(
        st.binary(min_size=1, max_size=300),
        st.integers(1, 600).map(bytes),
        st.integers(1, 600).map(lambda length: b"\xff" * length),
    ),
)


class ToolsMachine(RuleBasedStateMachine):
    """A store on a faulty disk, and a list of its messages; copies of it are verified and repaired.

    Attributes:
        log: All messages, in order.
        begins: Where a topic began anew when it was deleted: a position in `log`.
        existing: Topics that there are.
        notes: Where the log tells a deletion.
    """

    @initialize()
    def open(self) -> None:
        STORE_LOG.setLevel(logging.CRITICAL)
        self.clock = FakeClock()
        self.disk = Disk(FaultyFileSystem(), Path("/store"), self.clock)
        self.store: MessageStore = self.disk.open(**SETTINGS)
        self.log: list[Stored] = []
        self.begins = dict.fromkeys(TOPICS, 0)
        self.existing: set[str] = set()
        self.notes: list[tuple[int, int]] = []
        self.number = 0
        self.copies = Path(tempfile.mkdtemp())

    def teardown(self) -> None:
        STORE_LOG.setLevel(logging.NOTSET)
        if hasattr(self, "copies"):
            shutil.rmtree(self.copies)

    @rule(queue=st.sampled_from(QUEUES), size=st.integers(0, 400), count=st.integers(1, 25))
    def put(self, queue: Queue, size: int, count: int) -> None:
        for _ in range(count):
            self.number += 1
            self.clock.now += 7
            body = b"%d," % self.number + bytes(size)
            result = self.store.put(message(*queue, body, properties={"KEYS": "k"}, keys="k"))
            assert result.status is PutStatus.OK
            begin = result.commit_log_offset
            self.log.append(Stored(queue, result.queue_offset, body, begin, begin + result.size))
        self.existing.add(queue[0])

    @rule(topic=st.sampled_from(TOPICS))
    def delete(self, topic: str) -> None:
        self.existing.discard(topic)
        self.begins[topic] = len(self.log)
        begin = self.store.max_commit_log_offset
        self.store.delete_topic(topic)
        self.notes.append((begin, self.store.max_commit_log_offset))

    @rule(topic=st.sampled_from(TOPICS))
    def make(self, topic: str) -> None:
        self.existing.add(topic)

    @rule()
    def delete_old(self) -> None:
        delete_old(self.store)

    @rule()
    def flush(self) -> None:
        self.store.flush()

    @rule(seed=st.one_of(st.none(), st.integers(0, 2**32)))
    def die(self, seed: int | None) -> None:
        """Kill the process or, with a seed, the machine. The result is no damage."""
        self.disk = self.disk.crash(seed) if seed is not None else self.disk.kill()
        with tempfile.TemporaryDirectory(dir=self.copies) as directory:
            root = Path(directory, "store")
            self.disk.copy_to(root)
            found, _ = self._survey(root)
            note(str(found))
            assert found.is_sound
            before = self._expected()
            self._start()
            after, visible = self._repair(root), self._visible(root)
            assert after.is_sound
            for queue, messages in self._expected().items():
                assert messages.items() <= visible[queue].items() <= before[queue].items()

    @rule()
    def verify_and_repair(self) -> None:
        """Check that a store stopped in order is intact, and a repair changes nothing for consumers."""
        with tempfile.TemporaryDirectory(dir=self.copies) as directory:
            root = self._stopped_copy(directory)
            found, plan = self._survey(root)
            note(str(found))
            assert found.is_sound
            assert (found.damages, found.late_entries, found.early_entries, found.lost) == ([], 0, 0, 0)
            assert found.deleted == self._deleted()
            self._agrees(plan, self._repair(root))
            assert self._visible(root) == self._expected()
            assert self._next_numbers(root) == self._expected_next_numbers()

    @rule(harms=st.lists(HARMS, min_size=1, max_size=3))
    def damage_and_repair(self, harms: list[Harm]) -> None:
        """Check that only damaged messages are lost."""
        with tempfile.TemporaryDirectory(dir=self.copies) as directory:
            root = self._stopped_copy(directory)
            hit = [part for harm in harms if harm.what.startswith("log") for part in self._hurt(root, harm)]
            keeps_queues = any(begin < stop and start < end for begin, end in self.notes for start, stop in hit)
            others = [harm for harm in harms if not harm.what.startswith("log")]
            if keeps_queues:  # where a deletion was is known twice: by the log and by a queue
                others = [harm for harm in others if not harm.what.startswith("queue")]
            for harm in others:
                self._hurt(root, harm)
            note(f"hit {hit}, {others}")
            found, plan = self._survey(root)
            note(str(found))
            after = self._repair(root)
            note(str(after))
            assert after.is_sound
            self._agrees(plan, after)
            expected, visible = self._expected(), self._visible(root)
            for queue, messages in visible.items():
                allowed = set(expected[queue].items())
                if keeps_queues:  # a topic whose deletion is damaged may have its old messages again
                    allowed = {(stored.number, stored.body) for stored in self.log if stored.queue == queue}
                assert messages.items() <= allowed
                for stored in self._of(queue):
                    is_hit = any(stored.begin < stop and start < stored.end for start, stop in hit)
                    assert is_hit or stored.number in messages
            if not others:
                numbers = self._next_numbers(root)
                assert all(numbers[queue] >= number for queue, number in self._expected_next_numbers().items())

    # The copy

    def _stopped_copy(self, directory: str) -> Path:
        asyncio.run(self.store.stop())
        root = Path(directory, "store")
        self.disk.copy_to(root)
        self._start()
        return root

    def _start(self) -> None:
        self.store = self.disk.open(**SETTINGS)
        end = self.store.max_commit_log_offset
        self.log = [stored for stored in self.log if stored.end <= end]

    def _settings(self, root: Path) -> StoreSettings:
        return StoreSettings(root, **SETTINGS)

    def _survey(self, root: Path) -> tuple[Survey, RepairPlan]:
        sizes = self._settings(root)
        layout = self._layout(root)
        index_size = file_size(sizes.max_hash_slot_num, sizes.max_index_num)
        found = survey(layout, None, self._exists, index_size, is_apaches=False)
        return found, plan_repair(layout, sizes, found)

    def _layout(self, root: Path) -> StoreLayout:
        found = StoreLayout.of(root)
        return StoreLayout(root, found.log, LOG_FILE_SIZE, 400, found.index, found.log_directory)

    def _repair(self, root: Path) -> Survey:
        _, plan = self._survey(root)
        lock = OsFileSystem().lock(root / "lock")
        asyncio.run(repair(self._layout(root), self._settings(root), plan, self.clock, lock))
        found, _ = self._survey(root)
        return found

    def _exists(self, topic: str) -> bool:
        return topic in self.existing or is_system_topic(topic)

    def _hurt(self, root: Path, harm: Harm) -> list[tuple[int, int]]:
        """Damage the files of a store; return the damaged bytes of the log."""
        if harm.what in {"queues", "checkpoint"}:
            path = root / {"queues": "consumequeue"}.get(harm.what, harm.what)
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            return []
        kind, how = harm.what.split()
        pattern = {"log": "commitlog/*", "queue": "consumequeue/*/*/*"}[kind]
        files = sorted(path for path in root.glob(pattern) if path.stat().st_size)
        if not files:
            return []
        place = harm.where * len(files)
        path, part = files[int(place)], place - int(place)
        base, size = int(path.name), path.stat().st_size
        start = int(part * (len(path.read_bytes().rstrip(b"\0")) if how == "bytes" else size))
        if how == "file":
            is_last = path == files[-1]
            path.unlink()
            return [(base, base + (2**62 if is_last else size))]
        content = path.read_bytes()
        if how == "cut":
            path.write_bytes(content[:start])
            return [(base + start, base + size)]
        changed = (content[:start] + harm.data + content[start + len(harm.data) :])[:size]
        path.write_bytes(changed)
        return [(base + start, base + start + len(harm.data))]

    # What there must be

    def _of(self, queue: Queue) -> list[Stored]:
        first = self.store.min_commit_log_offset
        log = self.log[self.begins[queue[0]] :]
        return [stored for stored in log if stored.queue == queue and stored.begin >= first]

    def _expected(self) -> Visible:
        return {queue: {stored.number: stored.body for stored in self._of(queue)} for queue in QUEUES}

    def _expected_next_numbers(self) -> dict[Queue, int]:
        return {queue: self.store.max_offset(*queue) for queue in QUEUES}

    def _deleted(self) -> int:
        first = self.store.min_commit_log_offset
        there = sum(stored.begin >= first for stored in self.log)
        return there - sum(map(len, self._expected().values()))

    def _visible(self, root: Path) -> Visible:
        with tempfile.TemporaryDirectory(dir=self.copies) as directory:
            store = self._opened_copy(root, directory)
            found: Visible = {}
            for queue in QUEUES:
                found[queue] = {}
                for offset in range(store.min_offset(*queue), store.max_offset(*queue)):
                    for record in store.get(*queue, offset, 1, 2**20).records:
                        stored = decode_record(record)
                        assert stored.queue_offset >= offset
                        found[queue][stored.queue_offset] = bytes(stored.body)
            asyncio.run(store.stop())
            return found

    def _next_numbers(self, root: Path) -> dict[Queue, int]:
        with tempfile.TemporaryDirectory(dir=self.copies) as directory:
            store = self._opened_copy(root, directory)
            numbers = {queue: store.put(message(*queue)).queue_offset for queue in QUEUES}
            asyncio.run(store.stop())
            return numbers

    def _opened_copy(self, root: Path, directory: str) -> MessageStore:
        shutil.copytree(root, Path(directory, "copy"))
        store = MessageStore(self._settings(Path(directory, "copy")), self.clock, OsFileSystem())
        store.load()
        return store

    def _agrees(self, plan: RepairPlan, after: Survey) -> None:
        """Check that a repair has done what its plan said."""
        assert plan.queue_messages == after.entries == after.queue_messages
        assert plan.keyed_messages == after.keyed_messages
        assert plan.deleted_topics == after.deleted_topics
        assert (after.damages, after.missing_entries, after.foreign_entries) == ([], 0, 0)
        assert after.lost <= plan.lost


ToolsMachine.TestCase.settings = settings(
    max_examples=50, stateful_step_count=15, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestTools = ToolsMachine.TestCase
