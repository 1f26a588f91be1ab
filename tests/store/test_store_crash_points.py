"""Power failures at every step that brings data to the disk, with every way in which the disk may tear it."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest

from rocket_broker.processors.batches import read_plain
from rocket_broker.store import FlushDiskType, MessageStore, PutStatus
from rocket_broker.writing.batch_head import BatchHead
from rocket_broker.writing.message_runs import BatchRun
from rocket_remoting.wire.batch import encode_batch
from rocket_remoting.wire.message import Message
from streamkit.testing.virtual_time import VirtualTime
from tests.native_core import needs_native_core
from tests.store.disk import Disk, FakeClock, bodies, delete_old, message, stop
from tests.store.faulty_file_system import FaultyFileSystem

T = TypeVar("T")

MOST_WAYS = 40
QUEUES = 3
RUN = 32
"""Messages that are stored in one go."""
HOST = ("127.0.0.1", 10911)


class Script:
    """Predetermined choices, and the first candidate after them.

    Attributes:
        taken: The choices made.
        numbers: Out of how many each.
    """

    def __init__(self, script: Sequence[int] = ()) -> None:
        self.taken: list[int] = []
        self.numbers: list[int] = []
        self._script = script

    def choice(self, candidates: Sequence[T], /) -> T:
        at = len(self.taken)
        taken = self._script[at] if at < len(self._script) else 0
        self.taken.append(taken)
        self.numbers.append(len(candidates))
        return candidates[taken]

    def next(self) -> list[int] | None:
        """Return the script of the next case, None after the last."""
        script = list(self.taken)
        while script and script[-1] + 1 == self.numbers[len(script) - 1]:
            script.pop()
        return [*script[:-1], script[-1] + 1] if script else None


class Last:
    """Chooses the last candidate: everything reached the disk, and every file that could vanish did."""

    def choice(self, candidates: Sequence[T], /) -> T:
        return candidates[-1]


class CrashPoints(FaultyFileSystem):
    """A faulty file system that calls a function before and after each step.

    Attributes:
        at_point: Called there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.at_point: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, files: FaultyFileSystem) -> "CrashPoints":
        """Return a file system with the same files."""
        made = cls()
        made.__dict__.update(files.__dict__)
        return made

    def create(self, path: Path, size: int) -> None:
        self.at_point()
        super().create(path, size)
        self.at_point()

    def clear(self, path: Path, start: int) -> None:
        self.at_point()
        super().clear(path, start)
        self.at_point()

    def write(self, path: Path, start: int, data: memoryview) -> None:
        self.at_point()
        super().write(path, start, data)
        self.at_point()

    def sync(self, path: Path) -> None:
        self.at_point()
        super().sync(path)
        self.at_point()

    def remove(self, path: Path) -> None:
        self.at_point()
        super().remove(path)
        self.at_point()

    def every_way(self) -> Iterator[FaultyFileSystem]:
        """Yield the possible states after a crash now, all or a representative part."""
        script = Script()
        yield self.crash(script)
        if math.prod(script.numbers) <= MOST_WAYS:
            while (following := script.next()) is not None:
                script = Script(following)
                yield self.crash(script)
            return
        yield self.crash(Last())
        for seed in range(MOST_WAYS // 4):
            yield self.crash(Random(seed))


class Run:
    """A store in use, and the conditions that must hold whenever the machine dies.

    Attributes:
        points: How many crash points there were.
        ways: How many crashes were tried.
    """

    def __init__(self, time: VirtualTime, **settings: object) -> None:
        self.points = self.ways = 0
        self._time = time
        self._settings = settings
        self._files = CrashPoints()
        self._clock = FakeClock()
        self._put: dict[int, list[bytes]] = {queue_id: [] for queue_id in range(QUEUES)}
        self._promised = dict.fromkeys(range(QUEUES), 0)
        self._deleted = dict.fromkeys(range(QUEUES), 0)
        self.store = Disk(self._files, Path("/store"), self._clock).open(**settings)
        self._files.at_point = self._crash

    def put(self, queue_id: int, size: int = 0, properties: int = 0) -> None:
        """Store the queue's next message."""
        body = b"%d-%d" % (queue_id, len(self._put[queue_id])) + bytes(size)
        self._put[queue_id].append(body)  # first: the machine may die with it stored
        key = f"{queue_id}-{len(self._put[queue_id])}"
        given = message(queue_id=queue_id, body=body, keys=key, properties={"KEYS": key, "p": "v" * properties})
        self.last = self.store.put(given)
        assert self.last.status is PutStatus.OK

    def put_run(self, queue_id: int, count: int = RUN) -> None:
        """Store the queue's next messages in one call."""
        messages = []
        for number in range(len(self._put[queue_id]), len(self._put[queue_id]) + count):
            self._put[queue_id].append(b"%d-%d" % (queue_id, number))
            key = f"{queue_id}-{number + 1}"
            messages.append(Message("orders", self._put[queue_id][-1], properties={"KEYS": key}))
        data = encode_batch(messages)
        plain = read_plain(data, 0, len(data))
        assert plain is not None
        batch = BatchRun(plain, BatchHead("orders", queue_id, b"", 0, 1, HOST, 0), HOST)
        stored = self.store.put_run(batch, batch.targets)
        assert stored is not None
        _, self.last = stored

    def is_answered(self) -> None:
        """Wait for the flush, as the last message's sender does: it and all earlier ones must survive."""
        assert self._time.run(self.store.await_flush(self.last)) is PutStatus.OK
        self.everything_is_promised()

    def everything_is_promised(self) -> None:
        """Require everything stored so far to survive from now on."""
        self._promised = {queue_id: len(put) for queue_id, put in self._put.items()}

    def deletes_old(self) -> None:
        """Delete the log's files but the last: their messages may be missing from now on."""
        self._deleted = dict(self._promised)
        delete_old(self.store)
        self._deleted = {q: self.store.min_offset("orders", q) for q in range(QUEUES)}

    def recovers_at_every_step(self) -> None:
        """Crash the machine now, and again at each step of the recovery."""
        for choices in (Script(), Last(), Random(1), Random(2)):
            recovering = CrashPoints.of(self._files.crash(choices))
            recovering.at_point = lambda files=recovering: self._crash(files)  # type: ignore[misc]
            Disk(recovering, Path("/store"), self._clock).open(**self._settings)

    def _crash(self, files: "CrashPoints | None" = None) -> None:
        self.points += 1
        for found in (files or self._files).every_way():
            self.ways += 1
            self._check(Disk(found, Path("/store"), self._clock))

    def _check(self, disk: Disk) -> None:
        store = disk.open(**self._settings)
        ends = {queue_id: self._check_queue(store, queue_id) for queue_id in range(QUEUES)}
        assert store.put(message()).queue_offset == ends[0]

    def _check_queue(self, store: MessageStore, queue_id: int) -> int:
        first, end = store.min_offset("orders", queue_id), store.max_offset("orders", queue_id)
        put = self._put[queue_id]
        assert bodies(store, "orders", queue_id) == put[first:end]
        assert end >= self._promised[queue_id]
        assert first <= self._deleted[queue_id]
        for number in range(first, end):
            assert len(store.query("orders", f"{queue_id}-{number + 1}", 9, 0, 2**62)) == 1
        return end


@pytest.fixture
def time() -> Iterator[VirtualTime]:
    """The virtual time of the test."""
    with VirtualTime() as time:
        yield time


@pytest.mark.slow
def test_acknowledged_messages_survive_a_crash_at_every_step(time: VirtualTime) -> None:
    """Under SYNC_FLUSH, while files of log, queues and index are created, checkpoints written and old files deleted."""
    run = Run(time, flush_disk_type=FlushDiskType.SYNC_FLUSH, max_index_num=60)
    time.run(run.store.start())
    for number in range(4):
        run.put(number % 2)
        run.is_answered()
    run.store.flush()
    run.put(2, properties=1500)
    run.put(0)
    run.is_answered()
    run.put(1, size=9000)
    run.put(0, size=9000)  # the log's next file
    run.is_answered()
    for _ in range(24):
        run.put(0)
    run.is_answered()
    run.store.flush()
    for _ in range(30):  # the queue's next file, and the index's
        run.put(0)
    run.is_answered()
    run.store.flush()
    run.deletes_old()
    run.put(1)
    run.is_answered()
    time.run(run.store.stop())
    assert (run.points > 60, run.ways > 600) == (True, True), (run.points, run.ways)


@pytest.mark.slow
@pytest.mark.parametrize("pool", [False, True])
def test_flushed_messages_survive_a_crash_at_every_step(time: VirtualTime, *, pool: bool) -> None:
    """Without waiting for the disk, with and without the store pool; later messages survive only as a prefix."""
    run = Run(time, transient_store_pool_enable=pool)
    for number in range(30):
        run.put(number % QUEUES, size=number * 40)
        if number % 10 == 9:
            run.store.flush()
            run.everything_is_promised()
    stop(run.store)
    assert run.points > 20, (run.points, run.ways)


@pytest.mark.slow
@needs_native_core
def test_message_runs_survive_a_crash_at_every_step(time: VirtualTime) -> None:
    """Under SYNC_FLUSH, with index slots on other sectors than the index header."""
    run = Run(
        time,
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
        max_hash_slot_num=400,
        mapped_file_size_commit_log=64 * 1024,
        mapped_file_size_consume_queue=20 * 1000,
    )
    time.run(run.store.start())
    for queue_id in range(QUEUES):
        run.put(queue_id)
        run.is_answered()
        run.put_run(queue_id)
        run.is_answered()
        if queue_id == 1:
            run.store.flush()
            run.put_run(0)
            run.put_run(1, count=RUN + 3)
            run.is_answered()
    time.run(run.store.stop())
    assert (run.points > 30, run.ways > 300) == (True, True), (run.points, run.ways)


@pytest.mark.slow
def test_crash_at_every_step_of_a_recovery_loses_no_more(time: VirtualTime) -> None:
    """The next recovery finds what the first crash left."""
    run = Run(time, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    time.run(run.store.start())
    for number in range(20):
        run.put(number % QUEUES, properties=number * 20)
        run.is_answered()
        if number == 7:
            run.store.flush()
    for _ in range(5):
        run.put(0)
    run.recovers_at_every_step()
    time.run(run.store.stop())
