"""Delayed messages by level when the machine dies."""

import asyncio
import json
from pathlib import Path

import pytest

from rocket_broker.schedule.delay_service import DelayService
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.settings.delay_levels import DelayLevels
from rocket_broker.store import MessageStore
from rocket_broker.writing.message_writer import MessageWriter
from rocket_remoting.wire.topics import SCHEDULE_TOPIC
from streamkit.testing.virtual_time import VirtualTime
from tests.store.disk import Disk, bodies, expire, message
from tests.store.faulty_file_system import FaultyFileSystem

LEVELS = DelayLevels("1s 5s")


def service_of(disk: Disk, store: MessageStore, offsets: Path) -> DelayService:
    """Return the service of a store, its offsets in a file that the machine's death leaves as it is."""
    service = DelayService(
        levels=LEVELS,
        store=store,
        writer=MessageWriter(store, LEVELS, disk.clock, ("127.0.0.1", 10911)),
        clock=disk.clock,
        path=offsets,
        flush_interval_ms=BrokerSettings().flush_delay_offset_interval,
    )
    service.load()
    return service


@pytest.mark.parametrize("seed", range(6))
def test_the_offsets_pass_over_nothing_that_is_lost(tmp_path: Path, seed: int) -> None:
    """Whatever of the delivered messages never reached the disk is delivered again."""

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


def test_a_kill_repeats_at_most_what_was_delivered_within_a_second(tmp_path: Path) -> None:
    """Whenever it comes: what the file says then is where the next start goes on."""
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


def test_messages_deleted_before_they_are_due_hold_up_nobody(tmp_path: Path) -> None:
    """A disk that fills may cost those that wait the longest: who waits behind them comes in time."""

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
