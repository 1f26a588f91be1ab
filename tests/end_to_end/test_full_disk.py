"""A broker with a full disk: a small file system, filled to the last byte and freed again."""

import asyncio
import errno
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rocket_remoting import MessageExt, TcpTransport
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.headers import SendMessageResponseHeader
from rocket_remoting.wire.sys_flag import TRANSACTION_ROLLBACK
from streamkit import StreamApplication
from streamkit.errors import MessageHandlingError
from tests.end_to_end.broker_process import PATIENT, ServerProcess, running
from tests.end_to_end.honest_shop import settings
from tests.end_to_end.raw_client import HELD, RawClient
from tests.end_to_end.transactions import GROUP, Question, begin, end

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
    """Fill the disk; return the file that takes the space."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (MiB, 4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC  # noqa: PT017 - it is what ends the loop
    return filler


def broker_arguments(disk: Path, name_server: str, **keys: str) -> tuple[str, str]:
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
        **PATIENT,
        **keys,
    }
    config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return "-c", str(config)


class Shop:
    """An application that sends on request and receives."""

    def __init__(self, name_server: str, group: str, stored: int = 0) -> None:
        keys = {
            "bindings.in.destination": "orders",
            "bindings.in.group": group,
            "bindings.out.destination": "orders",
            "rocketmq.bindings.out.producer.compress-message-body-threshold": str(4 * MiB),
        }
        self.app = StreamApplication(config_location="optional:/none", properties=settings(name_server, **keys))
        self.app.stream_listener("in")(self._hear)
        self.heard: set[int] = set()
        self.stored = stored
        self._more = asyncio.Event()

    async def _hear(self, body: bytes) -> None:
        self.heard.add(int(body[:10]))
        self._more.set()

    async def send(self) -> None:
        """Send 200 KiB with the next number."""
        await self.app.bridge.asend("out", b"%010d" % self.stored + os.urandom(200 * 1024))
        self.stored += 1

    async def send_until_refused(self) -> str:
        """Send until the broker refuses; return its error."""
        while True:
            try:
                await self.send()
            except MessageHandlingError as error:
                return str(error)

    async def hears(self, count: int) -> None:
        """Wait until all numbers below `count` were received."""
        async with asyncio.timeout(60):
            while len(self.heard) < count:
                self._more.clear()
                await self._more.wait()
        assert self.heard == set(range(count))


@pytest.mark.promise
def test_full_disk_refuses_messages_and_loses_none(small_disk: Path) -> None:
    """Acknowledged messages are delivered, by the next broker too; with space, messages are accepted again."""

    async def before_and_during(name_server: str, broker: ServerProcess) -> int:
        shop = Shop(name_server, "kitchen")
        async with shop.app:
            for _ in range(8):
                await shop.send()
            fill(small_disk)
            refused = await shop.send_until_refused()
            assert "binding 'out' could not send to 'orders'" in refused
            assert "the disk is full" in refused
            await shop.hears(shop.stored)
            await asyncio.to_thread(broker.wait_for_log, "config/consumerOffset.json.tmp")
            await shop.send_until_refused()
        return shop.stored

    async def during_and_after(name_server: str, stored: int) -> None:
        shop = Shop(name_server, "archive", stored)
        async with shop.app:
            await shop.hears(stored)
            await shop.send_until_refused()
            (small_disk / "filler").unlink()
            for _ in range(8):
                await shop.send()
            await shop.hears(shop.stored)

    with running("namesrv", "-p", "0", cwd=small_disk.parent) as name_server:
        address = name_server.address()
        arguments = broker_arguments(small_disk, address)
        with running("broker", *arguments, cwd=small_disk.parent) as broker:
            broker.address()
            stored = asyncio.run(before_and_during(address, broker))
            assert broker.signal(signal.SIGTERM) == 0, "".join(broker.log)
        with running("broker", *arguments, cwd=small_disk.parent) as broker:
            broker.address()
            asyncio.run(during_and_after(address, stored))
            assert broker.signal(signal.SIGTERM) == 0


# What waits: delayed and timed messages, transactions

WAIT_SECONDS = 15
EACH = 5
GENEROUS = 90.0
PLAIN: dict[str, str] = {}
ROLL_BACK = {"commit_or_rollback": TRANSACTION_ROLLBACK}


class Waiting:
    """Messages that wait while the disk is full, and their results.

    Attributes:
        due: When each delayed and timed message is due, in milliseconds since 1970, by its key.
        halves: Transactions that have not ended, by their keys.
    """

    def __init__(self) -> None:
        self.due: dict[str, int] = {}
        self.halves: dict[str, SendMessageResponseHeader] = {}

    async def store(self, client: RawClient) -> None:
        """Store a few of each kind."""
        for number in range(EACH):
            due = now_ms() + 1000 * WAIT_SECONDS
            for kind in ({"DELAY": "1"}, {"TIMER_DELIVER_MS": str(due)}):
                key = f"{next(iter(kind))}-{number}"
                await client.send(properties={"UNIQ_KEY": key} | kind)
                self.due[key] = due
            key = f"half-{number}"
            self.halves[key] = await begin(client, now_ms(), key=key)

    async def is_refused(self, client: RawClient) -> None:
        """Check that no kind of message is accepted, and no transaction ends."""
        for kind in PLAIN, {"DELAY": "1"}, {"TIMER_DELAY_SEC": "1"}, {"TRAN_MSG": "true", "PGROUP": GROUP}:
            await refused(client, kind)
        answer = await end(client, next(iter(self.halves.values())))
        assert answer.code != ResponseCode.SUCCESS

    async def comes(self, client: RawClient, asked: "asyncio.Queue[Question]") -> None:
        """Check that each is delivered once and not early, and each transaction ends as its producer says."""
        keys = {*self.due, "half-0", "half-1", "half-2"}
        assert (await end(client, self.halves["half-0"])).code == ResponseCode.SUCCESS
        assert (await end(client, self.halves["half-4"], **ROLL_BACK)).code == ResponseCode.SUCCESS
        await client.heartbeat(producers=(GROUP,))
        outcomes: dict[str, dict[str, int]] = {"half-1": {}, "half-2": {}, "half-3": ROLL_BACK}
        while outcomes:
            question = await asked.get()
            answer = await question.answer(client, **outcomes.pop(question.header.msg_id or "", ROLL_BACK))
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        found = await messages_until(client, keys)
        assert sorted(message.unique_key or "" for message in found) == sorted(keys)
        for message in found:
            assert message.store_timestamp >= self.due.get(message.unique_key or "", 0)


def now_ms() -> int:
    """Return the time."""
    return int(time.time() * 1000)


async def refused(client: RawClient, properties: dict[str, str]) -> None:
    """Send until a further message of the kind is refused, since files may still have space."""
    for size in (3000, 0):
        while (answer := await client.try_send("others", bytes(size), properties=properties)).code == 0:
            pass
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "service not available now" in (answer.remark or "")


async def messages_until(client: RawClient, keys: set[str]) -> list[MessageExt]:
    """Return the topic's messages, once all the keys are among them."""
    found: list[MessageExt] = []
    while not keys <= {message.unique_key for message in found}:
        found += (await client.pull(offset=len(found), sys_flag=HELD)).messages
    return found


def tables_are_written(store: Path) -> bool:
    """Return whether all additions to tables are in their files, which then need no space."""
    tables = {table.name for table in (store / "config").iterdir()}
    return "consumerOffset.json" in tables and not any(name.endswith(".log") for name in tables)


def tables_are_whole(store: Path) -> None:
    """Check that no table of the broker is torn or empty."""
    tables = sorted((store / "config").glob("*.json"))
    assert {"consumerOffset.json", "topics.json"} <= {table.name for table in tables}
    for table in tables:
        json.loads(table.read_bytes())


@pytest.mark.promise
@pytest.mark.parametrize("is_killed", [False, True], ids=["goes on", "is killed"])
def test_waiting_messages_survive_a_full_disk(small_disk: Path, *, is_killed: bool) -> None:
    """Due messages and ending transactions wait for space; then each is delivered once and not early."""
    waiting = Waiting()
    asked: asyncio.Queue[Question] = asyncio.Queue()

    async def connected(broker: ServerProcess) -> RawClient:
        return await RawClient.connect(
            TcpTransport(), broker.address(), answer=lambda request: asked.put_nowait(Question(request))
        )

    async def fills_and_waits(broker: ServerProcess) -> None:
        client = await connected(broker)
        for topic in ("orders", "others"):
            await client.create_topic(topic)
        await client.send("others")
        await waiting.store(client)
        await client.commit(1, topic="others")
        while not tables_are_written(small_disk / "store"):
            await client.pull(sys_flag=HELD, suspend_timeout_millis=50)
        fill(small_disk)
        await waiting.is_refused(client)
        await client.commit(2, topic="others")
        await all_are_due(client)
        await asyncio.to_thread(broker.wait_for_log, "config/consumerOffset.json.tmp")
        tables_are_whole(small_disk / "store")
        await client.connection.close()

    async def all_are_due(client: RawClient) -> None:
        """Wait beyond the due time of undeliverable messages."""
        late = max(waiting.due.values()) - now_ms() + 1000
        pulled = await client.pull(sys_flag=HELD, suspend_timeout_millis=late)
        assert pulled.messages == []

    async def frees_and_sees(broker: ServerProcess) -> None:
        client = await connected(broker)
        await waiting.is_refused(client)
        (small_disk / "filler").unlink()
        await waiting.comes(client, asked)
        await client.connection.close()

    async def limited(scene: Coroutine[None, None, None]) -> None:
        async with asyncio.timeout(GENEROUS):
            await scene

    with ExitStack() as running_:
        arguments = broker_arguments(
            small_disk,
            "127.0.0.1:1",
            messageDelayLevel=f"{WAIT_SECONDS}s",
            transactionCheckInterval="500",
            transactionCheckMax="10000",
            transactionTimeOut=str(1000 * WAIT_SECONDS),
            flushDelayOffsetInterval="100",
            mappedFileSizeTimerLog="52000",
        )
        broker = running_.enter_context(running("broker", *arguments, cwd=small_disk.parent))
        asyncio.run(limited(fills_and_waits(broker)))
        if is_killed:
            broker.signal(signal.SIGKILL)
            broker = running_.enter_context(running("broker", *arguments, cwd=small_disk.parent))
        asyncio.run(limited(frees_and_sees(broker)))
        assert broker.signal(signal.SIGTERM) == 0
        tables_are_whole(small_disk / "store")
