"""A broker that is killed again and again while it is sent to and read from.

::

    4 ordered senders      one queue each, the next message when the last is answered
    8 hasty senders        any queue, without a look at the others
    1 consumer group       all that comes
    kill -9                after a random while, every fifth time again during the start
    audit                  after each start: what was acknowledged is at its place, what is there was sent

Nobody sends again what failed, so that each message has one fate: acknowledged at a place, or unknown. With the
transient store pool the last ones acknowledged before a kill may be lost: how long before is measured, and that they
are the last ones of their queues, which nobody had consumed.
"""

import asyncio
import contextlib
import json
import signal
import time
from contextlib import AsyncExitStack, ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

from rocket_client import ConsumeFromWhere, Producer, ProducerSettings, PushConsumer, PushConsumerSettings
from rocket_client.blocking import BlockingClient
from rocket_client.consuming.listener import ConsumeContext
from rocket_client.core.send_result import SendStatus
from rocket_client.errors import SendError
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.message import Message, MessageExt, MessageQueue
from tests.end_to_end.broker_process import PATIENT, ServerProcess
from tests.ports import free_ports

TOPIC = "campaign"
GROUP = "campaign-readers"
QUEUES = 4
HASTY = 8
LOOK_BACK = 500
PATIENCE = 120.0

MODES = {
    "ASYNC_FLUSH": {"flushDiskType": "ASYNC_FLUSH"},
    "SYNC_FLUSH": {"flushDiskType": "SYNC_FLUSH"},
    "store pool": {"flushDiskType": "ASYNC_FLUSH", "transientStorePoolEnable": "true"},
}
"""Settings of the flush modes."""
LONGEST_LOSS_MS = 2_000
"""Of acknowledged messages with the pool: a commit interval is 200 ms, and how late a commit is the machine decides."""


@dataclass
class Report:
    """What happened.

    Attributes:
        mode: The flush mode, one of `MODES`.
        seed: Of all random choices.
        kills: How often the broker was killed.
        kills_during_start: How many of those hit a broker that had not come up again.
        acknowledged: Messages whose sender was told that they are stored.
        unknown: Messages whose sender was told nothing.
        unknown_stored: How many of those are there.
        lost: Acknowledged messages that were gone after a kill, as the store pool allows.
        lost_ms: How long before its kill the earliest of them was acknowledged.
        repeated: Messages the consumer got again.
        starts_ms: How long each start took, until the broker served.
        problems: Broken promises; empty, if all is well.
    """

    mode: str
    seed: int
    kills: int = 0
    kills_during_start: int = 0
    acknowledged: int = 0
    unknown: int = 0
    unknown_stored: int = 0
    lost: int = 0
    lost_ms: int = 0
    repeated: int = 0
    starts_ms: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class Campaign:
    """One store, one flush mode, many kills."""

    def __init__(self, directory: Path, mode: str, seed: int) -> None:
        self.report = Report(mode, seed)
        self._directory = directory
        self._random = Random(seed)
        self._up = asyncio.Event()
        self._is_over = False
        self._sent: set[str] = set()
        self._unknown: set[str] = set()
        self._places: dict[tuple[int, int], str] = {}
        self._acknowledged_at: dict[str, float] = {}
        self._killed_at = 0.0
        self._stored: dict[int, dict[int, str]] = {queue: {} for queue in range(QUEUES)}
        self._audited = dict.fromkeys(range(QUEUES), 0)
        self._received: dict[str, int] = {}
        self._awaited: set[str] = set()
        self._all_received = asyncio.Event()

    async def run(self, kills: int) -> Report:
        """Kill the broker so often, and return what was found."""
        with ExitStack() as processes:
            self._processes = processes
            name_server = self._started("namesrv", "-p", "0")
            self._name_server = name_server.address()
            self._write_settings()
            self._broker = await self._start()
            async with AsyncExitStack() as clients:
                await self._connect(clients)
                senders = [asyncio.create_task(self._send(number)) for number in range(QUEUES + HASTY)]
                self._up.set()
                while self.report.kills < kills:
                    await asyncio.sleep(self._random.uniform(0.05, 1.0))
                    await self._kill_and_start()
                self._is_over = True
                await asyncio.gather(*senders)
                await self._audit(whole=True)
                await self._await_consumer()
            self._broker.signal(signal.SIGTERM)
        self._sum_up()
        return self.report

    # The broker

    def _started(self, command: str, *arguments: str) -> ServerProcess:
        process = ServerProcess(command, *arguments, cwd=self._directory)
        self._processes.callback(process.end)
        return process

    def _write_settings(self) -> None:
        keys = {
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "listenPort": str(free_ports()[1]),
            "storePathRootDir": str(self._directory / "store"),
            "mappedFileSizeCommitLog": str(4 * 1024 * 1024),
            "mappedFileSizeConsumeQueue": "20000",
            "maxHashSlotNum": "5000",
            "maxIndexNum": "20000",
            "defaultTopicQueueNums": str(QUEUES),
            "diskSpaceWarningLevelRatio": "100",
            "cleanFileForciblyEnable": "false",
            **PATIENT,
            **MODES[self.report.mode],
        }
        self._conf = self._directory / "broker.conf"
        self._conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))

    async def _start(self) -> ServerProcess:
        begun = time.monotonic()
        broker = self._started("broker", "-c", str(self._conf), "-n", self._name_server)
        await asyncio.to_thread(broker.address)
        self.report.starts_ms.append(round((time.monotonic() - begun) * 1000))
        return broker

    async def _kill_and_start(self) -> None:
        self._up.clear()
        self._kill(self._broker)
        while self._random.random() < 0.2:
            broker = self._started("broker", "-c", str(self._conf), "-n", self._name_server)
            await asyncio.sleep(self._random.uniform(0.05, 0.4))
            self._kill(broker)
            self.report.kills_during_start += 1
        self._broker = await self._start()
        await self._audit(whole=False)
        self._up.set()

    def _kill(self, broker: ServerProcess) -> None:
        if broker is self._broker:
            self._killed_at = time.monotonic()
        broker.signal(signal.SIGKILL)
        self.report.kills += 1

    # Clients

    async def _connect(self, clients: AsyncExitStack) -> None:
        addresses = [self._name_server]
        settings = ProducerSettings(name_servers=addresses, retry_times_when_send_failed=0)
        self._producer = await clients.enter_async_context(Producer("campaign-senders", settings))
        await self._producer.send(Message(TOPIC, b"first"), timeout=PATIENCE)
        self._sent.add("first")
        consumer = PushConsumer(
            GROUP,
            PushConsumerSettings(
                name_servers=addresses,
                consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
            ),
        )
        consumer.subscribe(TOPIC)
        consumer.listen_concurrently(self._receive)
        await clients.enter_async_context(consumer)

    async def _receive(self, messages: list[MessageExt], context: ConsumeContext) -> None:
        for message in messages:
            name = bytes(message.body).decode()
            self._received[name] = self._received.get(name, 0) + 1
            if name in self._awaited:
                self._awaited.discard(name)
                if not self._awaited:
                    self._all_received.set()

    async def _send(self, sender: int) -> None:
        number = 0
        while True:
            await self._up.wait()
            if self._is_over:
                return
            queue_id = sender if sender < QUEUES else self._random.randrange(QUEUES)
            name = f"{sender}:{number}"
            number += 1
            self._sent.add(name)
            try:
                result = await self._producer.send(
                    Message(TOPIC, name.encode()), queue=MessageQueue(TOPIC, "broker-a", queue_id), timeout=10
                )
            except (SendError, RemotingError):
                self._unknown.add(name)
                await asyncio.sleep(0.01)
                continue
            if result.status is not SendStatus.SEND_OK:
                self._unknown.add(name)  # FLUSH_DISK_TIMEOUT: stored, but for how long nobody says
                continue
            place = queue_id, result.queue_offset
            if place in self._places:
                self._problem(f"{name} and {self._places[place]} were both told {place}")
            self._places[place] = name
            self._acknowledged_at[name] = time.monotonic()

    async def _await_consumer(self) -> None:
        self._awaited = set(self._places.values()) - self._received.keys()
        if self._awaited:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_received.wait(), PATIENCE)
        for name in sorted(self._awaited):
            self._problem(f"{name} was acknowledged and never consumed")

    # What was promised

    async def _audit(self, *, whole: bool) -> None:
        await asyncio.to_thread(self._read_queues, whole)
        for (queue_id, offset), name in list(self._places.items()):
            if offset >= self._audited[queue_id]:
                found = self._stored[queue_id].get(offset)
                if found is None and self._may_be_lost(name):
                    del self._places[queue_id, offset]
                elif found != name:
                    self._problem(f"{name} was acknowledged at {offset} of queue {queue_id}; there is {found}")
        if whole:
            for queue_id, stored in self._stored.items():
                self._check_queue(queue_id, stored)

    def _may_be_lost(self, name: str) -> bool:
        """Note the loss of a message that was acknowledged; return whether the store pool allows it."""
        if "transientStorePoolEnable" not in MODES[self.report.mode]:
            return False
        before_ms = round((self._killed_at - self._acknowledged_at[name]) * 1000)
        self.report.lost += 1
        self.report.lost_ms = max(self.report.lost_ms, before_ms)
        if before_ms > LONGEST_LOSS_MS:
            self._problem(f"{name} is lost, and was acknowledged {before_ms} ms before the kill")
        if name in self._received:
            self._problem(f"{name} is lost, and was consumed: a reader saw what was not committed")
        return True

    def _read_queues(self, whole: bool) -> None:
        settings = ProducerSettings(name_servers=[self._name_server])
        with BlockingClient("campaign-audit", settings) as client:
            for queue in client.queues(TOPIC):
                end = client.max_offset(queue)
                stored = self._stored[queue.queue_id]
                offset = 0 if whole else max(0, end - LOOK_BACK)
                self._audited[queue.queue_id] = offset
                while offset < end:
                    result = client.pull(queue, offset, max_messages=2000)
                    for message in result.messages():
                        stored[message.queue_offset] = bytes(message.body).decode()
                    offset = result.next_offset
                if any(known >= end for known in stored):
                    self._problem(f"queue {queue.queue_id} ends at {end}, and had more before")

    def _check_queue(self, queue_id: int, stored: dict[int, str]) -> None:
        if sorted(stored) != list(range(len(stored))):
            self._problem(f"queue {queue_id} has gaps")
        for name in set(stored.values()) - self._sent:
            self._problem(f"queue {queue_id} has {name}, which nobody sent")
        if len(set(stored.values())) != len(stored):
            self._problem(f"queue {queue_id} has a message twice")
        own = [int(name.partition(":")[2]) for _, name in sorted(stored.items()) if name.startswith(f"{queue_id}:")]
        if own != sorted(own):
            self._problem(f"queue {queue_id} has its ordered sender's messages out of order")

    def _problem(self, text: str) -> None:
        if text not in self.report.problems:
            self.report.problems.append(text)

    def _sum_up(self) -> None:
        stored = {name for queue in self._stored.values() for name in queue.values()}
        self.report.acknowledged = len(self._places) + self.report.lost
        self.report.unknown = len(self._unknown)
        self.report.unknown_stored = len(self._unknown & stored)
        self.report.repeated = sum(times - 1 for times in self._received.values())


def as_json(reports: list[Report]) -> str:
    """Return the reports as JSON."""
    return json.dumps([asdict(report) for report in reports], indent=1)
