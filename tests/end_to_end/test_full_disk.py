"""A broker whose disk is full: a small file system of its own, filled to the last byte and freed again."""

import asyncio
import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamkit import StreamApplication
from streamkit.errors import MessageHandlingError
from tests.end_to_end.broker_process import ServerProcess, running
from tests.end_to_end.honest_shop import settings

MiB = 1024 * 1024

pytestmark = pytest.mark.slow


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = shutil.which("mount")
    if mount is None:
        pytest.skip("there is no mount command to make a small file system with")
    made = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(directory)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"no small file system can be made here: {made.stderr.strip()}")
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


def fill(disk: Path) -> Path:
    """Leave not a byte on the disk; return the file that takes it."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (MiB, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC  # noqa: PT017 - it is what ends the loop
    return filler


def broker_arguments(disk: Path, name_server: str) -> tuple[str, str]:
    config = disk.parent / "broker.conf"
    lines = {
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "listenPort": "0",
        "namesrvAddr": name_server,
        "storePathRootDir": str(disk / "store"),
        "mappedFileSizeCommitLog": str(MiB),
        "mappedFileSizeConsumeQueue": "20000",
        "cleanFileForciblyEnable": "false",
        "diskSpaceWarningLevelRatio": "100",
        "maxHashSlotNum": "5000",
        "maxIndexNum": "20000",
        "flushConsumerOffsetInterval": "50",
    }
    config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return "-c", str(config)


class Shop:
    """An application that sends what it is told, and hears it."""

    def __init__(self, name_server: str, group: str) -> None:
        keys = {
            "bindings.in.destination": "orders",
            "bindings.in.group": group,
            "bindings.out.destination": "orders",
            "rocketmq.bindings.out.producer.compress-message-body-threshold": str(4 * MiB),
        }
        self.app = StreamApplication(
            config_location="optional:/none", properties=settings(name_server, **keys)
        )
        self.app.stream_listener("in")(self._hear)
        self.heard: set[int] = set()
        self.stored = 0
        self._more = asyncio.Event()

    async def _hear(self, body: bytes) -> None:
        self.heard.add(int(body[:10]))
        self._more.set()

    async def send(self) -> None:
        """Send 200 KiB with the next number."""
        await self.app.bridge.asend("out", b"%010d" % self.stored + os.urandom(200 * 1024))
        self.stored += 1

    async def send_until_refused(self) -> str:
        """Send until the broker takes no more; return what it says."""
        while True:
            try:
                await self.send()
            except MessageHandlingError as error:
                return str(error)

    async def hears(self, count: int) -> None:
        """Return when all numbers below `count` were heard."""
        async with asyncio.timeout(20):
            while len(self.heard) < count:
                self._more.clear()
                await self._more.wait()
        assert self.heard == set(range(count))


def test_a_full_disk_refuses_messages_and_loses_none(small_disk: Path) -> None:
    """What was acknowledged is delivered all the while; when there is room again, messages are taken again."""

    async def before_during_and_after(name_server: str, broker: ServerProcess) -> int:
        shop = Shop(name_server, "kitchen")
        async with shop.app:
            for _ in range(8):
                await shop.send()
            filler = fill(small_disk)
            refused = await shop.send_until_refused()
            assert "binding 'out' could not send to 'orders'" in refused
            assert "the disk is full" in refused
            await shop.hears(shop.stored)
            await asyncio.to_thread(broker.wait_for_log, "config/consumerOffset.json.tmp")
            await shop.send_until_refused()
            filler.unlink()
            for _ in range(8):
                await shop.send()
            await shop.hears(shop.stored)
        return shop.stored

    async def everything(name_server: str, count: int) -> None:
        shop = Shop(name_server, "archive")
        async with shop.app:
            await shop.hears(count)

    with running("namesrv", "-p", "0", cwd=small_disk.parent) as name_server:
        address = name_server.address()
        arguments = broker_arguments(small_disk, address)
        with running("broker", *arguments, cwd=small_disk.parent) as broker:
            broker.address()
            stored = asyncio.run(before_during_and_after(address, broker))
            assert broker.signal(signal.SIGTERM) == 0
        with running("broker", *arguments, cwd=small_disk.parent) as broker:
            broker.address()
            asyncio.run(everything(address, stored))


def test_a_broker_stopped_and_started_on_a_full_disk_serves_what_it_has(small_disk: Path) -> None:
    """It ends in order, though it can write nothing more down, and starts again."""

    async def store(name_server: str) -> int:
        shop = Shop(name_server, "kitchen")
        async with shop.app:
            for _ in range(8):
                await shop.send()
            await shop.hears(8)
            fill(small_disk)
            await shop.send_until_refused()
        return shop.stored

    async def read(name_server: str, count: int) -> None:
        shop = Shop(name_server, "archive")
        async with shop.app:
            await shop.hears(count)

    with running("namesrv", "-p", "0", cwd=small_disk.parent) as name_server:
        address = name_server.address()
        arguments = broker_arguments(small_disk, address)
        with running("broker", *arguments, cwd=small_disk.parent) as broker:
            broker.address()
            stored = asyncio.run(store(address))
            assert broker.signal(signal.SIGTERM) in (0, 1)
        with running("broker", *arguments, cwd=small_disk.parent) as broker:
            broker.address()
            asyncio.run(read(address, stored))
