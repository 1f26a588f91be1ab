"""Timers on a disk: up to forty days, with kills, power failures and file ends."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rocket_broker.schedule.timer_checkpoint import TimerCheckpoint, TimerProgress
from rocket_broker.schedule.timer_service import TimerService
from rocket_broker.settings.delay_levels import DelayLevels
from rocket_broker.settings.timer_settings import TimerSettings
from rocket_broker.statistics import BrokerStatistics
from rocket_broker.store import MessageStore, PutStatus, StoreCorrupt
from rocket_broker.store.files import OsFileSystem
from rocket_broker.writing.message_writer import MessageWriter
from rocket_remoting.wire.topics import TIMER_TOPIC
from streamkit.testing.virtual_time import VirtualTime
from tests.store.disk import Disk, bodies, expire, message
from tests.store.faulty_file_system import FaultyFileSystem

HOST = ("127.0.0.1", 10911)
DAY = 24 * 3600
SMALL_WHEEL: dict[str, Any] = {"wheel_slots": 3600, "roll_window_slots": 600, "log_file_size": 4096}


@pytest.fixture
def time() -> Iterator[VirtualTime]:
    """Virtual time."""
    with VirtualTime() as time:
        yield time


@pytest.fixture(params=["real", "faulty"])
def timer_disk(request: pytest.FixtureRequest, tmp_path: Path, time: VirtualTime) -> Iterator[Disk]:
    """A disk whose stores use virtual time."""
    file_system = OsFileSystem() if request.param == "real" else FaultyFileSystem()
    disk = Disk(file_system, tmp_path / "store", time.clock)  # type: ignore[arg-type]
    yield disk
    disk.close()


class Timers:
    """A store with timers, as a broker has them."""

    def __init__(self, disk: Disk, **settings: Any) -> None:
        self.disk = disk
        self.store: MessageStore = disk.open()
        self.service = TimerService(
            TimerSettings(disk.root, **(SMALL_WHEEL | settings)),
            store=self.store,
            writer=MessageWriter(self.store, DelayLevels("1s"), disk.clock, HOST),
            clock=disk.clock,
            statistics=BrokerStatistics(),
        )

    def run(self, time: VirtualTime, scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the scene while timers are served; stop them in order afterwards."""

        async def main() -> None:
            await self.store.start()
            self.service.load()
            self.service.start("test")
            try:
                await scene()
            finally:
                await self.service.stop()
                await self.store.stop()

        time.run(main())

    def send(self, name: str, seconds: float, **properties: str) -> int:
        """Store a message due so many seconds from now; return its time."""
        due = self.disk.clock.now_ms() + round(seconds * 1000)
        moment = str((due - 1) // 1000 * 1000)
        own = {"TIMER_OUT_MS": moment, "REAL_TOPIC": "orders", "REAL_QID": "0", "UNIQ_KEY": name}
        put = self.store.put(message(TIMER_TOPIC, body=name.encode(), properties=own | properties))
        assert put.status is PutStatus.OK
        return due

    @property
    def delivered(self) -> list[str]:
        """Return the names of the delivered messages."""
        return [body.decode() for body in bodies(self.store)]


def test_timer_of_forty_days_is_delivered_on_time(time: VirtualTime, tmp_path: Path) -> None:
    """To the second; it is rolled every two days with a copy in the log."""
    disk = Disk(OsFileSystem(), tmp_path / "store", time.clock)  # type: ignore[arg-type]
    timers = Timers(disk, wheel_slots=7 * DAY, roll_window_slots=2 * DAY)

    async def scene() -> None:
        due = timers.send("later", 40 * DAY)
        for _ in range(20):
            await asyncio.sleep(180)
            assert timers.delivered == []
            time.clock._epoch_ms += (2 * DAY - 240) * 1000
        await asyncio.sleep((due - disk.clock.now_ms()) / 1000 - 1)
        assert timers.delivered == []
        await asyncio.sleep(2.1)
        assert timers.delivered == ["later"]
        assert due <= timers.store.store_time("orders", 0, 0) <= due + 1000
        assert 2 < timers.store.max_offset(TIMER_TOPIC, 0) <= 20

    timers.run(time, scene)


def test_many_timers_over_many_files(timer_disk: Disk, time: VirtualTime) -> None:
    """Each is delivered in its second and in order; the timer log's old files are deleted."""
    timers = Timers(timer_disk)
    dues: dict[str, int] = {}

    async def scene() -> None:
        random = Random(7)
        for number in range(400):
            dues[str(number)] = timers.send(str(number), random.randrange(1, 3000))
        await asyncio.sleep(3010)
        names = timers.delivered
        assert sorted(names, key=int) == sorted(dues, key=int)
        for offset, name in enumerate(names):
            assert dues[name] <= timers.store.store_time("orders", 0, offset) <= dues[name] + 1000
        assert names == sorted(names, key=lambda name: ((dues[name] - 1) // 1000, int(name)))
        timers.send("one more", 5)
        await asyncio.sleep(10)

    timers.run(time, scene)
    assert len(timer_disk.file_system.names(timer_disk.root / "timerlog")) <= 2


@pytest.mark.parametrize("down", [0.0, 25.0])
@pytest.mark.parametrize("kill_at", [0.0, 0.5, 12.0, 45.5, 61.0])
def test_kill_loses_no_timer(timer_disk: Disk, time: VirtualTime, kill_at: float, down: float) -> None:
    """At any time and for any downtime; those of the last second may be repeated."""
    timers = Timers(timer_disk)
    left: list[Disk] = []

    async def killed() -> None:
        for number in range(30):
            timers.send(str(number), 2 * number + 1)
        timers.send("far", 1500)
        await asyncio.sleep(kill_at)
        left.append(timer_disk.kill())

    timers.run(time, killed)
    time.advance(down)
    again = Timers(left[0])

    async def goes_on() -> None:
        await asyncio.sleep(2000)
        names = again.delivered
        assert {*names} == {*map(str, range(30)), "far"}
        assert len(names) <= 32

    again.run(time, goes_on)
    left[0].close()


@pytest.mark.parametrize("seed", range(8))
def test_power_failure_loses_no_flushed_timer(time: VirtualTime, tmp_path: Path, seed: int) -> None:
    """Lost pages of wheel, log and checkpoint are rebuilt."""
    disk = Disk(FaultyFileSystem(), tmp_path / "store", time.clock)  # type: ignore[arg-type]
    timers = Timers(disk)
    left: list[Disk] = []

    async def fails() -> None:
        for number in range(20):
            timers.send(str(number), 10 * number + 5)
        timers.store.flush()
        await asyncio.sleep(Random(seed).random() * 100)
        for number in range(20, 40):
            timers.send(str(number), 10 * number + 5)
        timers.store.flush()
        await asyncio.sleep(Random(seed).random() * 3)
        left.append(disk.crash(seed))

    timers.run(time, fails)
    again = Timers(left[0])

    async def goes_on() -> None:
        await asyncio.sleep(1000)
        assert {*again.delivered} == {*map(str, range(40))}

    again.run(time, goes_on)
    left[0].close()
    disk.close()


class Dying(FaultyFileSystem):
    """Keeps what a power failure before and after each sync of the timers' files would leave.

    Attributes:
        left: That, from the first sync on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.left: list[FaultyFileSystem] = []

    def sync(self, path: Path) -> None:
        is_timers = "timer" in str(path.relative_to("/store"))
        if is_timers:
            self._die()
        super().sync(path)
        if is_timers:
            self._die()

    def _die(self) -> None:
        self.left.append(self.crash(Random(len(self.left))))


def test_power_failure_during_a_flush_loses_no_timer(time: VirtualTime) -> None:
    """Whatever sectors of wheel, log and checkpoint were written first; the order is kept."""
    files = Dying()
    disk = Disk(files, Path("/store"), time.clock)  # type: ignore[arg-type]
    timers = Timers(disk)
    moments = [20, 20, 40, 40, 600]

    async def fails() -> None:
        for name in "abc":
            for seconds in moments:
                timers.send(f"{name}{seconds}", seconds)
            timers.store.flush()
            await asyncio.sleep(4)
            moments[:] = [seconds - 4 for seconds in moments]

    timers.run(time, fails)
    sent = [body.decode() for body in bodies(timers.store, TIMER_TOPIC)]
    disk.close()
    for found in files.left:
        again = Timers(Disk(found, Path("/store"), time.clock))  # type: ignore[arg-type]
        begun = [body.decode() for body in bodies(again.store, TIMER_TOPIC)]

        async def goes_on(again: Timers = again, begun: list[str] = begun) -> None:
            await asyncio.sleep(700)
            assert sorted(again.delivered) == sorted(begun)

        again.run(time, goes_on)
        again.disk.close()
    assert begun == sent


class LosesUnsynced:
    """Chooses the older of two states of a sector, and the former file names."""

    def choice(self, candidates: Sequence[Any], /) -> Any:
        return candidates[0]


class AheadOfTheLog(Dying):
    """Keeps what is left if the machine dies at each sync of the timers' files."""

    def _die(self) -> None:
        self.left.append(self.crash(LosesUnsynced()))


def test_timer_of_a_lost_message_does_not_match_a_later_one(time: VirtualTime) -> None:
    """The log's end is lost, and the next message is stored in the same place with its own timer."""
    files = AheadOfTheLog()
    disk = Disk(files, Path("/store"), time.clock)  # type: ignore[arg-type]
    timers = Timers(disk)

    async def fails() -> None:
        timers.store.put(message("others"))
        timers.store.flush()
        await asyncio.sleep(3)
        timers.send("lost", 100)
        await asyncio.sleep(3)

    timers.run(time, fails)
    disk.close()
    lost = 0
    for found in files.left:
        again = Timers(Disk(found, Path("/store"), time.clock))  # type: ignore[arg-type]
        if again.store.max_offset(TIMER_TOPIC, 0):
            again.disk.close()
            continue
        lost += 1

        async def goes_on(again: Timers = again) -> None:
            again.send("of another length", 200)
            await asyncio.sleep(150)
            assert again.delivered == []
            await asyncio.sleep(60)
            assert again.delivered == ["of another length"]

        again.run(time, goes_on)
        again.disk.close()
    assert lost > 2


def test_delivered_messages_are_flushed_before_the_checkpoint(time: VirtualTime) -> None:
    """A power failure right after a delivery loses none."""
    files = Dying()
    disk = Disk(files, Path("/store"), time.clock)  # type: ignore[arg-type]
    timers = Timers(disk)

    async def fails() -> None:
        for seconds in range(2, 5):
            timers.send(f"{seconds}", seconds)
        timers.store.flush()
        await asyncio.sleep(6)

    timers.run(time, fails)
    disk.close()
    assert len(files.left) > 5
    for found in files.left:
        again = Timers(Disk(found, Path("/store"), time.clock))  # type: ignore[arg-type]

        async def goes_on(again: Timers = again) -> None:
            await asyncio.sleep(10)
            assert {*again.delivered} == {"2", "3", "4"}

        again.run(time, goes_on)
        again.disk.close()


def test_changed_precision_keeps_the_timers(timer_disk: Disk, time: VirtualTime) -> None:
    """The wheel is rebuilt with other units, in both directions."""
    for precision, name in ((1000, "a"), (100, "b"), (1000, "c")):
        timers = Timers(timer_disk, precision_ms=precision)

        async def scene(timers: Timers = timers, name: str = name) -> None:
            due = timers.send(name, 50)
            timers.send(f"{name}2", 50, TIMER_OUT_MS=str((due - 1) // 1000 * 1000 + 500))
            await asyncio.sleep(3)

        timers.run(time, scene)
    last = Timers(timer_disk)

    async def goes_on() -> None:
        await asyncio.sleep(400)
        assert last.delivered == ["a", "a2", "b", "b2", "c", "c2"]

    last.run(time, goes_on)


@pytest.mark.parametrize("lost", [["timerwheel"], ["config/timercheck"], ["timerwheel", "config/timercheck"]])
def test_lost_files_are_rebuilt(timer_disk: Disk, time: VirtualTime, lost: list[str]) -> None:
    """The wheel from the timer log; without a checkpoint all timers in the log, including overdue ones."""
    first = Timers(timer_disk)

    async def scene() -> None:
        for number in range(5):
            first.send(str(number), 100 + number % 2)
        await asyncio.sleep(3)

    first.run(time, scene)
    for path in lost:
        timer_disk.file_system.remove(timer_disk.root / path)
    time.advance(97.5)
    last = Timers(timer_disk)

    async def goes_on() -> None:
        await asyncio.sleep(200)
        assert sorted(last.delivered) == ["0", "1", "2", "3", "4"]

    last.run(time, goes_on)


@pytest.mark.promise
@pytest.mark.parametrize("down", [0.0, 55.0])
@pytest.mark.parametrize(
    ("lost", "wheel"),
    [
        ([], False),
        ([0], True),
        ([0], False),
        ([1], True),
        ([1], False),
        ([-1], True),
        ([-1], False),
        (range(9), True),
        (range(9), False),
    ],
)
def test_missing_timers_are_rebuilt_from_the_messages(
    timer_disk: Disk, time: VirtualTime, lost: Sequence[int], *, wheel: bool, down: float
) -> None:
    """Whatever is left of the timer log: each is delivered once, in order except overdue ones."""
    small: dict[str, Any] = {"log_file_size": 2048}  # so that there are several files
    first = Timers(timer_disk, **small)
    files = timer_disk.file_system

    async def scene() -> None:
        for number in range(150):
            first.send(str(number), 1 + number)
        first.send("cancelled", 120)
        first.send("cancel", 120, TIMER_DEL_UNIQKEY="orders+cancelled")
        await asyncio.sleep(52)
        assert len(first.delivered) > 50

    first.run(time, scene)
    names = files.names(timer_disk.root / "timerlog")
    assert 3 < len(names) < 9
    for name in {names[number] for number in lost if number < len(names)}:
        files.remove(timer_disk.root / "timerlog" / name)
    if not wheel:
        files.remove(timer_disk.root / "timerwheel")
    time.advance(down)
    killed: list[Disk] = []
    again = Timers(timer_disk, **small)

    async def goes_on() -> None:
        await asyncio.sleep(110)
        came = again.delivered
        assert (sorted(came, key=int) if down else came) == list(map(str, range(150)))
        again.send("new", 10)
        await asyncio.sleep(12)
        assert again.delivered[150:] == ["new"]
        killed.append(timer_disk.kill())

    again.run(time, goes_on)
    last = Timers(killed[0], **small)

    async def ends() -> None:
        await asyncio.sleep(30)
        assert len(last.delivered) == 151

    last.run(time, ends)
    killed[0].close()


def test_a_promoted_slave_makes_the_timers_of_its_master(timer_disk: Disk, time: VirtualTime) -> None:
    """From the messages and the checkpoint alone; also of messages that the master has stored again meanwhile."""
    master = Timers(timer_disk)

    async def scene() -> None:
        for number in range(20):
            master.send(str(number), 1 + number)
        for number in range(3):
            master.send(f"rolled{number}", 650 + number)  # 600 s ahead there are timers
        await asyncio.sleep(400)  # the copy is made after half of that
        assert len(master.delivered) == 20

    master.run(time, scene)
    assert master.store.max_offset(TIMER_TOPIC, 0) == 26
    for name in timer_disk.file_system.names(timer_disk.root / "timerlog"):
        timer_disk.file_system.remove(timer_disk.root / "timerlog" / name)
    timer_disk.file_system.remove(timer_disk.root / "timerwheel")
    checkpoint = TimerCheckpoint(timer_disk.root / "config" / "timercheck", timer_disk.file_system)
    masters = TimerProgress.decode(master.service.progress.encode())
    checkpoint.write(TimerProgress(moment=masters.moment, masters_queue_offset=masters.queue_offset))
    promoted = Timers(timer_disk)

    async def goes_on() -> None:
        await asyncio.sleep(1)
        promoted.send("new", 10)
        await asyncio.sleep(300)
        assert promoted.delivered[20:] == ["new", "rolled0", "rolled1", "rolled2"]

    promoted.run(time, goes_on)


@pytest.mark.parametrize("turns", range(1, 9))
def test_kill_during_a_rebuild_loses_no_timer(timer_disk: Disk, time: VirtualTime, turns: int) -> None:
    """The checkpoint records its completion last."""
    first = Timers(timer_disk)

    async def scene() -> None:
        for number in range(1000):
            first.send(str(number), 500 + number % 7)
        await asyncio.sleep(3)

    first.run(time, scene)
    for name in timer_disk.file_system.names(timer_disk.root / "timerlog"):
        timer_disk.file_system.remove(timer_disk.root / "timerlog" / name)
    again = Timers(timer_disk)
    killed: list[Disk] = []

    async def begins() -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        killed.append(timer_disk.kill())

    again.run(time, begins)
    last = Timers(killed[0])

    async def ends() -> None:
        await asyncio.sleep(520)
        assert sorted(map(int, last.delivered)) == list(range(1000))

    last.run(time, ends)
    killed[0].close()


def test_a_stop_while_timers_are_made_anew_repeats_no_message(timer_disk: Disk, time: VirtualTime) -> None:
    """The next start still knows what was delivered before the timers were lost."""
    first = Timers(timer_disk)

    async def scene() -> None:
        for number in range(400):
            first.send(str(number), 1 if number < 390 else 500)
        await asyncio.sleep(3)
        assert len(first.delivered) == 390

    first.run(time, scene)
    for name in timer_disk.file_system.names(timer_disk.root / "timerlog"):
        timer_disk.file_system.remove(timer_disk.root / "timerlog" / name)
    again = Timers(timer_disk)
    again.run(time, lambda: asyncio.sleep(0))
    last = Timers(timer_disk)

    async def ends() -> None:
        await asyncio.sleep(520)
        assert sorted(map(int, last.delivered)) == list(range(400))

    last.run(time, ends)


def test_wheel_of_another_length_is_refused(timer_disk: Disk) -> None:
    """It cannot be read correctly."""
    first = Timers(timer_disk)
    timer_disk.file_system.create(timer_disk.root / "timerwheel", 4096)
    with pytest.raises(StoreCorrupt, match="a timer wheel has 230400 bytes"):
        first.service.load()


def test_full_disk_delays_timers_and_loses_none(time: VirtualTime, tmp_path: Path) -> None:
    """They are created and delivered once there is space."""
    file_system = FaultyFileSystem()
    disk = Disk(file_system, tmp_path / "store", time.clock)  # type: ignore[arg-type]
    timers = Timers(disk)

    async def scene() -> None:
        timers.store.put(message("orders", body=b"first"))
        timers.send("a", 5)
        file_system.free_pages = 0
        await asyncio.sleep(20)
        assert timers.delivered == ["first"]
        file_system.free_pages = None
        await asyncio.sleep(2)
        assert timers.delivered == ["first", "a"]

    timers.run(time, scene)
    disk.close()


def test_clock_may_be_set_back(timer_disk: Disk, time: VirtualTime) -> None:
    """Timers follow the new clock, and nothing is repeated."""
    timers = Timers(timer_disk)

    async def scene() -> None:
        timers.send("a", 5)
        timers.send("b", 100)
        await asyncio.sleep(10)
        assert timers.delivered == ["a"]
        time.clock._epoch_ms -= 60_000
        timers.send("c", 5)
        timers.send("d", 40)
        await asyncio.sleep(20)
        assert timers.delivered == ["a", "c"]
        await asyncio.sleep(30)
        assert timers.delivered == ["a", "c", "d"]
        await asyncio.sleep(200)
        assert timers.delivered == ["a", "c", "d", "b"]

    timers.run(time, scene)


def test_due_time_may_occur_twice(timer_disk: Disk, time: VirtualTime) -> None:
    """After the clock was set back a little, new messages for that second are delivered too."""
    timers = Timers(timer_disk)

    async def scene() -> None:
        timers.send("0", 2)
        await asyncio.sleep(2.2)
        for number in range(1, 5):
            time.clock._epoch_ms -= 1_000
            timers.send(f"{number}", 0.7)
            await asyncio.sleep(1)
            assert timers.delivered == [f"{n}" for n in range(number + 1)]

    timers.run(time, scene)


def test_second_with_many_messages_yields_to_other_work(timer_disk: Disk, time: VirtualTime) -> None:
    """They are delivered in small steps."""
    timers = Timers(timer_disk)

    async def scene() -> None:
        for number in range(1000):
            timers.send(str(number), 5)
        due = timers.send("last", 5)
        await asyncio.sleep((due - timer_disk.clock.now_ms()) / 1000 - 0.001)
        await asyncio.sleep(0.001)
        turns = 0
        while timers.store.max_offset("orders", 0) <= 1000:
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 4

    timers.run(time, scene)


def test_timed_messages_deleted_early_block_no_others(timer_disk: Disk, time: VirtualTime) -> None:
    """With or without timers; later ones are delivered in time."""
    timers = Timers(timer_disk)

    async def delete() -> None:
        for _ in range(40):
            timers.store.put(message("others", body=bytes(1000)))
        assert await expire(timers.store)

    timers.send("without timer", 10)
    time.run(delete())

    async def scene() -> None:
        timers.send("first", 1)
        await asyncio.sleep(3)
        assert timers.delivered == ["first"]
        timers.send("with timer", 10)
        await asyncio.sleep(1)
        await delete()
        timers.send("second", 9)
        await asyncio.sleep(11)
        assert timers.delivered == ["second"]

    timers.run(time, scene)


def test_invalid_timed_messages_are_skipped(timer_disk: Disk, time: VirtualTime) -> None:
    """Without a time, without a target, or damaged; each is logged as an error."""
    timers = Timers(timer_disk)

    async def scene() -> None:
        timers.store.put(message(TIMER_TOPIC, body=b"no properties"))
        timers.send("no time", 5, TIMER_OUT_MS="soon")
        timers.send("no queue", 5, REAL_QID="x")
        timers.send("good", 5)
        await asyncio.sleep(10)
        assert timers.delivered == ["good"]

    timers.run(time, scene)


class SlowDisk(OsFileSystem):
    """Holds the sync of the timer log until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.loop: asyncio.AbstractEventLoop
        self.begun = asyncio.Event()
        self.go_on = threading.Event()

    def sync(self, path: Path) -> None:
        """Report the beginning and wait."""
        if path.parent.name == "timerlog":
            self.loop.call_soon_threadsafe(self.begun.set)
            self.go_on.wait(10)
        super().sync(path)


def test_stop_during_a_flush_writes_the_progress(time: VirtualTime, tmp_path: Path) -> None:
    """The running flush is abandoned and repeated, so that nothing is delivered twice."""
    slow = SlowDisk()
    disk = Disk(slow, tmp_path / "store", time.clock)  # type: ignore[arg-type]
    timers = Timers(disk)

    async def scene() -> None:
        slow.loop = asyncio.get_running_loop()
        timers.send("later", 60)
        await slow.begun.wait()
        slow.loop.call_soon(slow.loop.call_soon, slow.go_on.set)

    timers.run(time, scene)
    progress = TimerCheckpoint(disk.root / "config" / "timercheck", OsFileSystem()).load()
    assert progress is not None
    assert progress.queue_offset == 1
    disk.close()
