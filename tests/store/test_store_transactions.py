"""Transactions on a disk, with crashes between any two records."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from rocket_broker.clients.client_channel import ClientChannel
from rocket_broker.clients.producer_table import ProducerTable
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.settings.delay_levels import DelayLevels
from rocket_broker.statistics import BrokerStatistics
from rocket_broker.store import MessageStore, PutStatus, StoreMessage
from rocket_broker.tables.consumer_offset_table import ConsumerOffsetTable
from rocket_broker.tables.topic_table import TopicTable
from rocket_broker.transaction.check_service import TransactionCheckService
from rocket_broker.transaction.half_messages import HalfMessages
from rocket_broker.writing.message_writer import MessageWriter
from rocket_remoting.wire.message import MessageExt
from rocket_remoting.wire.record import decode_record
from rocket_remoting.wire.topics import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from tests.store.disk import LOG_FILE_SIZE, Disk, FakeClock, bodies, delete_old, log_file, message, overwrite
from tests.store.faulty_file_system import FaultyFileSystem
from tests.unit.rocket_broker.memory_peers import Peers, run_virtually

HOST = ("127.0.0.1", 10911)


class Halves:
    """The half messages of one disk, with their tables in a directory beside it."""

    def __init__(self, disk: Disk, tables: Path) -> None:
        settings = BrokerSettings(store_path_root_dir=tables)
        self.store = disk.open()
        self._clock = disk.clock
        self.offsets = ConsumerOffsetTable(settings)
        self.halves = HalfMessages(
            store=self.store,
            writer=MessageWriter(self.store, DelayLevels("1s"), disk.clock, HOST),
            topics=TopicTable(settings, disk.clock),
            offsets=self.offsets,
            clock=disk.clock,
        )
        asyncio.run(self.halves.load())

    def begin(self, name: str, *, keyed: bool = True) -> MessageExt:
        """Store a half message, with or without the unique key that Apache's clients add."""
        properties = {"TRAN_MSG": "true", "PGROUP": "g", "REAL_TOPIC": "orders", "REAL_QID": "0"}
        if keyed:
            properties["UNIQ_KEY"] = name
        born = self._clock.now_ms()
        result = self.store.put(
            message(TRANS_HALF_TOPIC, body=name.encode(), properties=properties, born_timestamp=born)
        )
        ((_, half),) = self.halves.read(result.queue_offset, 1)
        assert half is not None
        return half

    @property
    def pending(self) -> list[str]:
        """Return the names of pending transactions, once per copy."""
        halves = self.halves
        found = [half for _, half in halves.read(0, 1000) if half is not None]
        return [half.body.decode() for half in found if halves.pending.is_pending(half.queue_offset)]

    @property
    def committed(self) -> list[str]:
        """Return the names of committed transactions whose messages are readable."""
        return [body.decode() for body in bodies(self.store, "orders")]

    @property
    def put_aside(self) -> list[str]:
        """Return the names of transactions that were put aside for an operator."""
        return [body.decode() for body in bodies(self.store, TRANS_CHECK_MAX_TIME_TOPIC)]


def killed_at_each_record(disk: Disk, store: MessageStore) -> list[Disk]:
    """Return a list that gets the state after a kill at each message stored from now on."""
    left: list[Disk] = []
    store.arrival_listeners.append(lambda *_: left.append(disk.kill()))
    return left


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("end", ["commit", "put_aside", "put_back", "roll_back"])
def test_kill_between_two_records_ends_a_transaction_once(disk: Disk, tmp_path: Path, end: str, keyed: bool) -> None:
    """It is pending or has ended, with one message or none: never twice, never lost."""
    first = Halves(disk, tmp_path / "tables")
    first.begin("other", keyed=keyed)
    half = first.begin("mine", keyed=keyed)
    points = killed_at_each_record(disk, first.store)
    getattr(first.halves, end)(half)
    assert len(points) == (1 if end == "roll_back" else 2)
    for point in points:
        again = Halves(point, tmp_path / "tables")
        there = [*again.pending, *again.committed, *again.put_aside]
        assert there.count("other") == 1
        assert there.count("mine") == (0 if end == "roll_back" else 1)
        assert again.pending == (["other", "mine"] if end == "put_back" else ["other"])
        point.close()


def test_end_applies_to_a_copy_after_a_kill(disk: Disk, tmp_path: Path) -> None:
    """The copy of a check was stored without its op message; the producer's end still applies."""
    first = Halves(disk, tmp_path / "tables")
    first.begin("other")
    half = first.begin("mine")
    offset = half.queue_offset
    points = killed_at_each_record(disk, first.store)
    first.halves.put_back(half)
    again = Halves(points[0], tmp_path / "tables")
    assert again.halves.pending.live(offset) == half.queue_offset == offset + 1
    points[0].close()


@pytest.mark.parametrize("keyed", [True, False])
def test_a_committed_message_that_is_stored_again_ends_no_transaction(disk: Disk, tmp_path: Path, keyed: bool) -> None:
    """A delayed or redelivered one keeps its state, and names offset 0, where another half message may be."""
    first = Halves(disk, tmp_path / "tables")
    first.begin("mine", keyed=keyed)
    first.halves.commit(first.begin("other", keyed=keyed))
    (record,) = first.store.get("orders", 0, 0, 1, 1000).records
    committed = decode_record(record)
    writer = MessageWriter(first.store, DelayLevels("1s"), disk.clock, HOST)
    assert writer.put_again(committed, "%RETRY%g", 0, committed.properties).status is PutStatus.OK
    killed = disk.kill()
    assert Halves(killed, tmp_path / "tables").pending == ["mine"]
    killed.close()


@pytest.mark.parametrize("seed", range(12))
def test_power_failure_leaves_consistent_transactions(faulty_disk: Disk, tmp_path: Path, seed: int) -> None:
    """A committed one is not pending, and an ended one had been ended."""
    first = Halves(faulty_disk, tmp_path / "tables")
    halves = [first.begin(f"{number}") for number in range(40)]
    first.store.flush()
    for number, half in enumerate(halves[:30]):
        if number % 3 == 0:
            first.halves.roll_back(half)
        else:
            first.halves.commit(half)
        if number == 10:
            first.store.flush()
    again = Halves(faulty_disk.crash(seed), tmp_path / "tables")
    pending, committed = set(again.pending), set(again.committed)
    assert not pending & committed
    assert len(again.committed) == len(committed)
    rolled_back = {f"{number}" for number in range(0, 30, 3)}
    assert pending | committed >= {f"{number}" for number in range(40)} - rolled_back
    assert committed >= {f"{number}" for number in range(10) if number % 3}


@pytest.mark.parametrize("seed", range(6))
def test_progress_is_never_ahead_of_the_disk(faulty_disk: Disk, tmp_path: Path, seed: int) -> None:
    """After a round of checks and a power failure, offsets skip no transaction whose copy is lost."""
    first = Halves(faulty_disk, tmp_path / "tables")
    for number in range(5):
        first.begin(f"{number}")
    first.store.flush()
    for _, half in list(first.halves.read(0, 5)):
        assert half is not None
        first.halves.put_back(half)
    asyncio.run(first.halves.commit_progress())
    first.offsets.save()
    again = Halves(faulty_disk.crash(seed), tmp_path / "tables")
    again.offsets.load()
    again.offsets.bound(again.store.max_offset)
    asyncio.run(again.halves.load())
    assert again.halves.pending.first == 5
    assert again.pending == ["0", "1", "2", "3", "4"]


def test_batched_op_messages_of_apache_5_are_read(disk: Disk, tmp_path: Path) -> None:
    """One ends many transactions; unknown offsets are ignored."""
    first = Halves(disk, tmp_path / "tables")
    for number in range(6):
        first.begin(f"{number}")
    for body in (b"0,2,3,", b"", b"x,4,,99999999999,", b"-1"):
        first.store.put(StoreMessage(TRANS_OP_HALF_TOPIC, 0, body, b"TAGS\x01d\x02"))
    again = Halves(disk.kill(), tmp_path / "tables")
    assert again.pending == ["1", "5"]
    asyncio.run(again.halves.commit_progress())
    progress = again.offsets.queues("CID_RMQ_SYS_TRANS", TRANS_OP_HALF_TOPIC)
    assert progress == {0: 0}  # the first op message names what lies behind the first pending one
    assert again.offsets.queues("CID_RMQ_SYS_TRANS", TRANS_HALF_TOPIC) == {0: 1}


def test_check_continues_at_the_stored_progress(disk: Disk, tmp_path: Path) -> None:
    """Both queues' offsets are stored under the system group; earlier messages are not read."""
    first = Halves(disk, tmp_path / "tables")
    for number in range(200):
        half = first.begin(f"{number}")
        if number != 150:
            assert first.halves.commit(half) is PutStatus.OK
    asyncio.run(first.halves.commit_progress())
    first.offsets.save()
    assert first.halves.pending.first == 150
    assert first.halves.pending.op_offset == 150
    again = Halves(disk.kill(), tmp_path / "tables")
    again.offsets.load()
    asyncio.run(again.halves.load())
    assert again.halves.pending.first == 150
    assert again.halves.pending.op_offset == 150
    assert not again.halves.pending.is_pending(199)
    assert again.halves.pending.is_pending(150)


def test_missing_half_messages_block_no_others(disk: Disk, tmp_path: Path) -> None:
    """Deleted or damaged ones are skipped for good."""
    tables = Halves(disk, tmp_path / "tables")
    tables.begin("deleted")
    for _ in range(40):
        tables.store.put(message(body=bytes(1000)))
    assert delete_old(tables.store)
    damaged, good = tables.begin("damaged"), tables.begin("good")
    file, position = divmod(damaged.commit_log_offset, LOG_FILE_SIZE)
    overwrite(disk, log_file(disk, file), position + 4, bytes(4))
    disk.clock.now += 3_600_000
    checks = TransactionCheckService(
        settings=BrokerSettings(),
        clock=disk.clock,
        halves=tables.halves,
        producers=ProducerTable(time=lambda: 0),
        statistics=BrokerStatistics(),
    )
    asyncio.run(checks.check())
    ((offset, again),) = tables.halves.read(good.queue_offset + 1, 10)
    assert again is not None
    assert (again.body, again.properties.get("TRANSACTION_CHECK_TIMES")) == (b"good", None)
    assert tables.halves.pending.advance(tables.halves.end) == offset


def test_a_clock_that_is_set_back_holds_up_no_checks(disk: Disk, tmp_path: Path) -> None:
    """What was stored while it was ahead is asked about, once in a round."""
    tables = Halves(disk, tmp_path / "tables")
    half = tables.begin("early")
    disk.clock.now -= 3_600_000

    async def check_twice() -> None:
        producers = ProducerTable()
        connection, _ = await Peers().connect("producer")
        producers.register("g", ClientChannel(connection, "producer"))
        checks = TransactionCheckService(
            settings=BrokerSettings(),
            clock=disk.clock,
            halves=tables.halves,
            producers=producers,
            statistics=BrokerStatistics(),
        )
        for times in ("1", "2"):
            await checks.check()
            ((_, again),) = tables.halves.read(half.queue_offset + int(times), 10)
            assert again is not None
            assert (again.body, again.properties["TRANSACTION_CHECK_TIMES"]) == (b"early", times)

    run_virtually(check_twice)


def test_commit_whose_op_message_finds_no_space_is_an_end(tmp_path: Path) -> None:
    """The message is readable once, now and after the next start, which writes the op message."""
    file_system = FaultyFileSystem()
    disk = Disk(file_system, Path("/store"), FakeClock())
    first = Halves(disk, tmp_path / "tables")

    def size(action: Callable[..., object], *arguments: object) -> int:
        before = first.store.max_commit_log_offset
        action(*arguments)
        return first.store.max_commit_log_offset - before

    both = size(first.halves.commit, first.begin("once"))
    op = size(first.halves.roll_back, first.begin("none"))
    half = first.begin("mine")
    padding = size(first.store.put, message("padding"))
    room = LOG_FILE_SIZE - first.store.max_commit_log_offset
    first.store.put(message("padding", body=bytes(room - padding - both + op // 2)))
    file_system.free_pages = 0
    ops = first.store.max_offset(TRANS_OP_HALF_TOPIC, 0)
    assert first.halves.commit(half) is PutStatus.OK
    assert first.store.max_offset(TRANS_OP_HALF_TOPIC, 0) == ops
    assert (first.pending, first.committed) == ([], ["once", "mine"])
    again = Halves(disk.kill(), tmp_path / "tables")
    assert (again.pending, again.committed) == ([], ["once", "mine"])
    assert again.store.max_offset(TRANS_OP_HALF_TOPIC, 0) == ops + 1
    disk.close()
