"""A pair of brokers of which one is killed again and again, and the slave promoted when it was the master.

::

    2 nodes                a SYNC_MASTER and its slave, at fixed ports; a name server
    8 senders              one message after the other, each once
    kill -9                after a random while: of the master, or of the slave
    after the master's     its slave is stopped in order and started as the master; the former master loses its store
                           and becomes the slave
    audit                  after each promotion: each message that was answered with SEND_OK is at its place

Messages that were answered otherwise may be there or not.
"""

import asyncio
import logging
import shutil
import signal
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random

from rocket_client import Producer, ProducerSettings
from rocket_client.blocking import BlockingClient
from rocket_client.core.send_result import SendStatus
from rocket_client.errors import SendError
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.message import Message, MessageQueue
from tests.end_to_end.broker_process import PATIENT, ServerProcess
from tests.ports import free_ports

logger = logging.getLogger(__name__)

TOPIC = "campaign"
QUEUES = 4
SENDERS = 8
PATIENCE = 120.0
PAUSE = 0.02
"""Seconds of a sender after each answer: each promotion copies and reads the whole log, so it must stay small."""


@dataclass
class Report:
    """What happened.

    Attributes:
        seed: Of all random choices.
        master_kills: How often the master was killed, and its slave promoted.
        slave_kills: How often the slave was killed.
        acknowledged: Messages that were answered with SEND_OK.
        without_slave: Messages that were answered with SLAVE_NOT_AVAILABLE or FLUSH_SLAVE_TIMEOUT.
        unknown: Messages whose sender got no answer.
        problems: Broken promises; empty, if all is well.
    """

    seed: int
    master_kills: int = 0
    slave_kills: int = 0
    acknowledged: int = 0
    without_slave: int = 0
    unknown: int = 0
    problems: list[str] = field(default_factory=list)


class Node:
    """A broker's directory and port, whatever its role is now."""

    def __init__(self, directory: Path, name_server: str) -> None:
        self.directory = directory
        self._keys = {
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "listenPort": str(free_ports()[1]),
            "namesrvAddr": name_server,
            "storePathRootDir": str(directory / "store"),
            "mappedFileSizeCommitLog": str(1024 * 1024),
            "maxHashSlotNum": "5000",
            "maxIndexNum": "20000",
            "defaultTopicQueueNums": str(QUEUES),
            "diskSpaceWarningLevelRatio": "100",
            "cleanFileForciblyEnable": "false",
            **PATIENT,
        }
        directory.mkdir()

    def start(self, processes: ExitStack, **role: str) -> ServerProcess:
        """Start the broker in a role."""
        conf = self.directory / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in (self._keys | role).items()))
        process = ServerProcess("broker", "-c", str(conf), cwd=self.directory)
        processes.callback(process.end)
        process.address()
        return process

    def start_master(self, processes: ExitStack) -> ServerProcess:
        """Start the broker as the master."""
        return self.start(processes, brokerRole="SYNC_MASTER", brokerId="0")

    def start_slave(self, processes: ExitStack) -> ServerProcess:
        """Start the broker as the slave."""
        return self.start(processes, brokerRole="SLAVE", brokerId="1")

    def forget(self) -> None:
        """Remove the store."""
        shutil.rmtree(self.directory / "store")


class Campaign:
    """One pair, many kills."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.report = Report(seed)
        self._directory = directory
        self._random = Random(seed)
        self._places: dict[tuple[int, int], str] = {}
        self._is_over = False
        self._new_success = asyncio.Event()

    async def run(self, kills: str) -> Report:
        """Kill the master (``m``) or the slave (``s``), one letter after the other, and return what was found."""
        with ExitStack() as processes:
            self._processes = processes
            name_server = ServerProcess("namesrv", "-p", "0", cwd=self._directory)
            processes.callback(name_server.end)
            self._name_server = await asyncio.to_thread(name_server.address)
            self._nodes = [Node(self._directory / name, self._name_server) for name in "ab"]
            self._master = await asyncio.to_thread(self._nodes[0].start_master, processes)
            self._slave = await asyncio.to_thread(self._nodes[1].start_slave, processes)
            settings = ProducerSettings(
                name_servers=[self._name_server],
                retry_times_when_send_failed=0,
                poll_name_server_interval=timedelta(milliseconds=200),
            )
            async with Producer("campaign-senders", settings) as producer:
                await producer.send(Message(TOPIC, b"first"), timeout=PATIENCE)
                senders = [asyncio.create_task(self._send(producer, number)) for number in range(SENDERS)]
                for number, kill in enumerate(kills, 1):
                    await self._until_followed()
                    await asyncio.sleep(self._random.uniform(0.05, 0.5))
                    await (self._kill_master() if kill == "m" else self._kill_slave())
                    self.report.acknowledged = len(self._places)
                    logger.info("kill %d of %d, so far %s", number, len(kills), self.report)
                await self._until_followed()
                self._is_over = True
                await asyncio.gather(*senders)
                await asyncio.to_thread(self._audit)
            self._slave.signal(signal.SIGTERM)
            self._master.signal(signal.SIGTERM)
        self.report.acknowledged = len(self._places)
        return self.report

    async def _kill_master(self) -> None:
        self.report.master_kills += 1
        self._master.signal(signal.SIGKILL)
        await asyncio.to_thread(self._slave.signal, signal.SIGTERM)
        self._nodes.reverse()
        self._master = await asyncio.to_thread(self._nodes[0].start_master, self._processes)
        await asyncio.to_thread(self._audit)
        await asyncio.to_thread(self._nodes[1].forget)
        self._slave = await asyncio.to_thread(self._nodes[1].start_slave, self._processes)

    async def _kill_slave(self) -> None:
        self.report.slave_kills += 1
        self._slave.signal(signal.SIGKILL)
        self._slave = await asyncio.to_thread(self._nodes[1].start_slave, self._processes)

    async def _until_followed(self) -> None:
        """Wait until a slave has copied a new message."""
        self._new_success.clear()
        async with asyncio.timeout(PATIENCE):
            await self._new_success.wait()

    async def _send(self, producer: Producer, sender: int) -> None:
        number = 0
        while not self._is_over:
            name = f"{sender}:{number}"
            number += 1
            queue = MessageQueue(TOPIC, "broker-a", self._random.randrange(QUEUES))
            try:
                result = await producer.send(Message(TOPIC, name.encode()), queue=queue, timeout=10)
            except (SendError, RemotingError):
                self.report.unknown += 1
                await asyncio.sleep(0.02)
                continue
            if result.status is not SendStatus.SEND_OK:
                self.report.without_slave += 1
                await asyncio.sleep(PAUSE)
                continue
            place = queue.queue_id, result.queue_offset
            if place in self._places:
                self.report.problems.append(f"{name} and {self._places[place]} were both told {place}")
            self._places[place] = name
            self._new_success.set()
            await asyncio.sleep(PAUSE)

    def _audit(self) -> None:
        """Check that each acknowledged message is at its place."""
        places = dict(self._places)
        found: dict[tuple[int, int], str] = {}
        settings = ProducerSettings(name_servers=[self._name_server])
        with BlockingClient("campaign-audit", settings) as client:
            for queue in client.queues(TOPIC):
                end, offset = client.max_offset(queue), 0
                while offset < end:
                    result = client.pull(queue, offset, max_messages=2000)
                    for message in result.messages():
                        found[queue.queue_id, message.queue_offset] = bytes(message.body).decode()
                    offset = result.next_offset
        for place, name in places.items():
            if found.get(place) != name:
                problem = f"{name} was answered with SEND_OK at {place}; there is {found.get(place)}"
                self.report.problems.append(problem)
