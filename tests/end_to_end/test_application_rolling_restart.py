"""Rolling restart of applications in one group under load, without message loss."""

import asyncio
import itertools
import os
import signal
import sys
from asyncio.subprocess import Process
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import Admin, ClientSettings, Producer, ProducerSettings
from rocket_remoting import Message
from tests.end_to_end.broker_process import ROOT
from tests.end_to_end.honest_shop import settings

pytestmark = pytest.mark.slow

PATIENCE = 120.0
QUEUES = 6

MEMBER = """
import asyncio
import os

from streamkit import Message, StreamApplication
from streamkit.messaging.headers import PARTITION

app = StreamApplication()


@app.stream_listener("in")
async def take(message: Message[int]) -> None:
    what = f"{os.getpid()} {message.headers[PARTITION]} {message.payload} {app.environment.text('edition')}"
    os.write(1, f"begun {what}\\n".encode())  # in one piece, between those of others
    await asyncio.sleep(0.02)
    os.write(1, f"ended {what}\\n".encode())
"""


@dataclass(frozen=True)
class Call:
    """One listener call in one process."""

    process: int
    queue: str
    number: int
    edition: str


@dataclass
class Journal:
    """The events of all processes in order, read from one pipe.

    Attributes:
        lines: All lines.
        begun: The calls that began.
        ended: The calls that ended.
        gone: How many calls had begun when each process was gone.
    """

    lines: list[str] = field(default_factory=list)
    begun: list[Call] = field(default_factory=list)
    ended: list[Call] = field(default_factory=list)
    gone: dict[int, int] = field(default_factory=dict)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self, pipe: asyncio.StreamReader) -> None:
        """Read until no process is left."""
        while line := (await pipe.readline()).decode():
            self.lines.append(line)
            kind, *words = line.split()
            if kind in {"begun", "ended"}:
                process, queue, number, edition = words
                calls = self.begun if kind == "begun" else self.ended
                calls.append(Call(int(process), queue, int(number), edition))
            self._news.set()

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Wait until the events read make the condition true."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not is_true():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError("".join(self.lines[-200:])) from None

    async def tells(self, text: str) -> None:
        """Wait for a further line with the text."""
        known = len(self.lines)
        await self.until(lambda: any(text in line for line in self.lines[known:]))


class Group:
    """A topic with a sender, and processes that handle its messages.

    Attributes:
        journal: What they tell.
        sent: How many messages were sent.
    """

    def __init__(self, name_server: str, directory: Path, orderly: str) -> None:
        self.journal = Journal()
        self.sent = 0
        self._name_server = name_server
        self._directory = directory
        self._processes: list[Process] = []
        (directory / "member.py").write_text(MEMBER)
        self._settings = settings(
            name_server,
            **{
                "bindings.in.destination": "orders",
                "bindings.in.group": "kitchen",
                "bindings.in.consumer.concurrency": "3",
                "rocketmq.bindings.in.consumer.orderly": orderly,
            },
        )
        self.set(edition="first")

    def set(self, **changed: str) -> None:
        """Write the settings file, with these settings beside the group's common ones."""
        lines = (f"{key}={value}\n" for key, value in (self._settings | changed).items())
        (self._directory / "application.properties").write_text("".join(lines))

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Send continuously; at the end check that no message was lost and no call interrupted."""
        async with Admin(ClientSettings(name_servers=self._name_server)) as admin:
            await admin.create_topic("orders", queues=QUEUES)
        ours, self._pipe = os.pipe()
        pipe = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(pipe), os.fdopen(ours, "rb")
        )
        reading = asyncio.create_task(self.journal.read(pipe))
        over = asyncio.Event()
        sending = asyncio.create_task(self._send(over))
        try:
            yield
            over.set()
            await sending
            await self.has_handled_all()
            for process in self._processes:
                if process.returncode is None:
                    await self.stop(process)
        finally:
            sending.cancel()
            for process in self._processes:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            os.close(self._pipe)
            await reading
            transport.close()
        self._check()

    async def _send(self, over: asyncio.Event) -> None:
        settings = ProducerSettings(name_servers=self._name_server, send_timeout=timedelta(seconds=30))
        async with Producer("shop", settings) as producer:
            for number in itertools.count():
                if over.is_set():
                    return
                await producer.send(Message("orders", b"%d" % number))
                self.sent += 1
                await asyncio.sleep(0.008)

    async def start(self, *options: str) -> Process:
        """Start a process, and wait until it reports its start."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "streamkit.cli", "run", *options, "member"),
            cwd=self._directory,
            stdout=self._pipe,
            stderr=self._pipe,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self._processes.append(process)
        await self.journal.tells("Started: ")
        return process

    async def stop(self, process: Process) -> None:
        """Stop a process in order."""
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        self.journal.gone[process.pid] = len(self.journal.begun)

    async def takes_part(self, process: Process) -> None:
        """Wait until a process has handled messages, and everything sent before was handled."""
        await self.journal.until(lambda: any(call.process == process.pid for call in self.journal.ended))
        await self.has_handled_all()

    async def has_handled_all(self) -> None:
        """Wait until everything sent before was handled."""
        sent = set(range(self.sent))
        await self.journal.until(lambda: sent <= {call.number for call in self.journal.ended})

    def _check(self) -> None:
        begun, ended = self.journal.begun, self.journal.ended
        assert {call.number for call in ended} == set(range(self.sent))
        assert sorted(map(hash, begun)) == sorted(map(hash, ended)), "a call was cut off in the middle"
        for process, position in self.journal.gone.items():
            done = {call.number for call in ended if call.process == process}
            again = done & {call.number for call in begun[position:]}
            assert not again, f"what process {process} had handled came again after its end: {again}"


def check_order(journal: Journal) -> None:
    """Check that each queue's messages were handled once, in order, and by one process at a time."""
    calls = defaultdict(list)
    for line in journal.lines:
        if line.startswith(("begun", "ended")):
            _, process, queue, number, _ = line.split()
            calls[queue].append((int(number), process))
    for reported in calls.values():
        assert reported[::2] == reported[1::2], "two processes handled one queue at a time"
        assert reported[::2] == sorted(set(reported))


@pytest.mark.promise
@pytest.mark.parametrize(("orderly", "count"), [("false", 2), ("true", 3)])
def test_rolling_restart_loses_no_message(tmp_path: Path, orderly: str, count: int) -> None:
    """Messages handled by a stopped process are not redelivered;

    in ordered mode there are no duplicates at all. Without order, queues also move among the remaining processes, if
    there are several. A machine too busy to do that within a moment may handle some messages twice.
    """

    async def main(name_server: str) -> None:
        group = Group(name_server, tmp_path, orderly)
        async with group.open():
            members = [await group.start() for _ in range(count)]
            for member in members:
                await group.takes_part(member)
            for member in members:
                await group.stop(member)
                await group.takes_part(await group.start())
        if orderly == "true":
            check_order(group.journal)

    with ThreadedBroker() as broker:
        asyncio.run(main(broker.name_server))


@pytest.mark.promise
@pytest.mark.parametrize("orderly", ["false", "true"])
def test_rolling_restart_of_workers_loads_new_settings(tmp_path: Path, orderly: str) -> None:
    """SIGHUP applies changed files; wrong ones change nothing."""

    async def main(name_server: str) -> None:
        group = Group(name_server, tmp_path, orderly)
        journal = group.journal
        async with group.open():
            supervisor = await group.start("--workers", "2")
            await group.has_handled_all()

            group.set(edition="second", **{"spring.cloud.stream.bindings.in.groop": "kitchen"})
            supervisor.send_signal(signal.SIGHUP)
            await journal.tells("the processes keep running with the old ones")
            await group.has_handled_all()
            assert {call.edition for call in journal.begun} == {"first"}

            group.set(edition="second")
            supervisor.send_signal(signal.SIGHUP)
            await journal.tells("every process was restarted")
            known = len(journal.begun)
            await journal.until(lambda: len(journal.begun) > known + 20)
            assert {call.edition for call in journal.begun[known:]} == {"second"}
        if orderly == "true":
            check_order(journal)

    with ThreadedBroker() as broker:
        asyncio.run(main(broker.name_server))
