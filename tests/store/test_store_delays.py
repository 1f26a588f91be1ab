"""Delayed messages by level and power failures."""

import asyncio
import json
from pathlib import Path

import pytest

from rocket_broker.schedule.delay_service import DelayService
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.settings.delay_levels import DelayLevels
from rocket_broker.statistics import BrokerStatistics
from rocket_broker.store import MessageStore
from rocket_broker.writing.message_writer import MessageWriter
from rocket_remoting.wire.topics import SCHEDULE_TOPIC
from streamkit.testing.virtual_time import VirtualTime
from tests.store.disk import Disk, bodies, expire, message
from tests.store.faulty_file_system import FaultyFileSystem

LEVELS = DelayLevels("1s 5s")


def service_of(disk: Disk, store: MessageStore, offsets: Path) -> DelayService:
    """Return the store's service, whose offsets file survives a power failure unchanged."""
    service = DelayService(
        levels=LEVELS,
        store=store,
        writer=MessageWriter(store, LEVELS, disk.clock, ("127.0.0.1", 10911)),
        clock=disk.clock,
        path=offsets,
        flush_interval_ms=BrokerSettings().flush_delay_offset_interval,
        statistics=BrokerStatistics(),
    )
    service.load()
    return service


@pytest.mark.parametrize("seed", range(6))
def test_delay_offsets_skip_no_lost_message(tmp_path: Path, seed: int) -> None:
    """A delivered message that did not reach the disk is delivered again."""

    async def delivers(disk: Disk) -> tuple[Disk, bytes]:
        store = disk.open(flush_commit_log_thorough_interval=10_000_000, flush_commit_log_least_pages=1_000)
        for number in range(10):
            properties = {"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "0"}
            due = disk.clock.now_ms() + 1_000
            store.put(message(SCHEDULE_TOPIC, body=b"%d" % number, properties=properties, tags_code=due))
        store.flush()
        await store.start()
        service = service_of(disk, store, tmp_path / "delayOffset.json")
        service.start()
        await asyncio.sleep(3.5)
        assert len(bodies(store)) == 10
        after, saved = disk.crash(seed), (tmp_path / "delayOffset.json").read_bytes()
        service.stop()
        await store.stop()
        return after, saved

    async def goes_on(disk: Disk, saved: bytes) -> None:
        (tmp_path / "delayOffset.json").write_bytes(saved)
        store = disk.open()
        await store.start()
        service = service_of(disk, store, tmp_path / "delayOffset.json")
        service.start()
        await asyncio.sleep(3)
        assert {*bodies(store)} == {b"%d" % number for number in range(10)}
        service.stop()
        await store.stop()

    with VirtualTime() as time:
        disk = Disk(FaultyFileSystem(), Path("/store"), time.clock)  # type: ignore[arg-type]
        time.run(goes_on(*time.run(delivers(disk))))


def test_kill_repeats_at_most_the_deliveries_of_a_second(tmp_path: Path) -> None:
    """The next start continues at the offsets in the file."""
    file = tmp_path / "delayOffset.json"

    async def scene(disk: Disk) -> None:
        store = disk.open()
        await store.start()
        service = service_of(disk, store, file)
        service.start()
        properties = {"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "0"}
        delivered = [0]
        for _ in range(300):  # every 10 ms, for three seconds
            due = disk.clock.now_ms() + 1_000
            store.put(message(SCHEDULE_TOPIC, properties=properties, tags_code=due))
            await asyncio.sleep(0.01)
            delivered.append(store.max_offset("orders", 0))
            saved = json.loads(file.read_text())["offsetTable"]["1"] if file.exists() else 0
            a_second_ago = delivered[max(0, len(delivered) - 102)]
            assert a_second_ago <= saved <= delivered[-1]
        assert saved
        service.stop()
        await store.stop()

    with VirtualTime() as time:
        time.run(scene(Disk(FaultyFileSystem(), Path("/store"), time.clock)))  # type: ignore[arg-type]


def test_delayed_messages_deleted_early_block_no_others(tmp_path: Path) -> None:
    """A full disk may delete the longest delayed ones; later ones are delivered in time."""

    async def scene(disk: Disk) -> None:
        store = disk.open()
        await store.start()
        service = service_of(disk, store, tmp_path / "delayOffset.json")
        service.start()
        properties = {"DELAY": "2", "REAL_TOPIC": "orders", "REAL_QID": "0"}
        for body in (b"deleted", b"kept"):
            due = disk.clock.now_ms() + 5_000
            store.put(message(SCHEDULE_TOPIC, 1, body=body, properties=properties, tags_code=due))
            if body == b"deleted":
                for _ in range(40):
                    store.put(message("others", body=bytes(1000)))
                assert await expire(store)
        await asyncio.sleep(5.1)
        assert bodies(store) == [b"kept"]
        service.stop()
        await store.stop()

    with VirtualTime() as time:
        time.run(scene(Disk(FaultyFileSystem(), Path("/store"), time.clock)))  # type: ignore[arg-type]


def test_a_message_that_is_due_later_than_its_level_waits_is_delivered_at_once(tmp_path: Path) -> None:
    """Its time stems from other settings, or from a clock that was wrong; those behind it would wait for as long."""

    async def scene(disk: Disk) -> None:
        store = disk.open()
        await store.start()
        service = service_of(disk, store, tmp_path / "delayOffset.json")
        service.start()
        properties = {"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "0"}
        for body, milliseconds in ((b"in an hour", 3_600_000), (b"in a second", 1_000)):
            due = disk.clock.now_ms() + milliseconds
            store.put(message(SCHEDULE_TOPIC, body=body, properties=properties, tags_code=due))
        await asyncio.sleep(0.9)
        assert bodies(store) == [b"in an hour"]
        await asyncio.sleep(0.2)
        assert bodies(store) == [b"in an hour", b"in a second"]
        service.stop()
        await store.stop()

    with VirtualTime() as time:
        time.run(scene(Disk(FaultyFileSystem(), Path("/store"), time.clock)))  # type: ignore[arg-type]


def test_what_a_full_disk_refuses_is_delivered_when_there_is_room(tmp_path: Path) -> None:
    """The offset passes over a message only when it is delivered."""

    async def scene(disk: Disk, file_system: FaultyFileSystem) -> None:
        store = disk.open()
        await store.start()
        service = service_of(disk, store, tmp_path / "delayOffset.json")
        service.start()
        properties = {"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "0"}
        store.put(message(SCHEDULE_TOPIC, properties=properties, tags_code=disk.clock.now_ms() + 1_000))
        file_system.free_pages = 0
        await asyncio.sleep(3)
        assert bodies(store) == []
        file_system.free_pages = None
        await asyncio.sleep(1.1)
        assert bodies(store) == [b"body"]
        service.stop()
        await store.stop()

    with VirtualTime() as time:
        file_system = FaultyFileSystem()
        time.run(scene(Disk(file_system, Path("/store"), time.clock), file_system))  # type: ignore[arg-type]
