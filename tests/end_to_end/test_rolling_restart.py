"""Rolling restart of brokers under load without message loss."""

import asyncio
import signal
from collections import deque
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from rocket_client import (
    Admin,
    ClientSettings,
    ConsumeFromWhere,
    Producer,
    ProducerSettings,
    PushConsumer,
    PushConsumerSettings,
)
from rocket_remoting import Message
from tests.end_to_end.broker_process import PATIENT, ServerProcess, running
from tests.end_to_end.client_stage import RecordingListener
from tests.ports import free_ports

SOON = timedelta(milliseconds=100)
PATIENCE = 60.0
NAMES = ("broker-a", "broker-b")
QUEUES = 4


class Cluster:
    """A name server and two brokers."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self._stack = stack
        self._directory = directory
        self._ports = {name: free_ports()[1] for name in NAMES}
        self.name_server = self._run("namesrv", "-p", "0").address()
        self.brokers: dict[str, ServerProcess] = {}
        for name in NAMES:
            self.start(name)

    def start(self, name: str) -> None:
        """Start a broker on its port with its store."""
        conf = self._directory / f"{name}.conf"
        keys = {
            "brokerName": name,
            "brokerIP1": "127.0.0.1",
            "listenPort": str(self._ports[name]),
            "namesrvAddr": self.name_server,
            "storePathRootDir": str(self._directory / name),
            "mappedFileSizeCommitLog": "1048576",
            "maxHashSlotNum": "5000",
            "maxIndexNum": "20000",
            **PATIENT,
        }
        conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        self.brokers[name] = self._run("broker", "-c", str(conf))
        self.brokers[name].address()

    def stop(self, name: str) -> int:
        """Stop a broker in order, and return its exit code."""
        return self.brokers[name].signal(signal.SIGTERM)

    def _run(self, command: str, *arguments: str) -> ServerProcess:
        return self._stack.enter_context(running(command, *arguments, cwd=self._directory))


class Sender:
    """Sends one message after the other and never repeats a failed one."""

    def __init__(self, producer: Producer) -> None:
        self.sent: list[bytes] = []
        self._producer = producer
        self._last: deque[str] = deque(maxlen=4 * QUEUES)
        self._is_over = False
        self._progress = asyncio.Event()

    async def run(self) -> None:
        """Send until `stop`.

        Raises:
            SendError: A message was not stored.
        """
        while not self._is_over:
            body = b"%d" % len(self.sent)
            result = await self._producer.send(Message("orders", body))
            self.sent.append(body)
            self._last.append(result.message_queue.broker_name)
            self._progress.set()

    def stop(self) -> None:
        self._is_over = True

    async def reaches(self, *names: str) -> None:
        """Wait until the last sends, more than there are queues, went to exactly these brokers."""
        self._last.clear()
        async with asyncio.timeout(PATIENCE):
            while len(self._last) < 4 * QUEUES or set(self._last) != set(names):
                self._progress.clear()
                await self._progress.wait()


async def hears_all(heard: RecordingListener, sent: list[bytes]) -> None:
    """Wait until each message was received; some twice, if a commit did not reach its broker."""
    async with asyncio.timeout(PATIENCE):
        while missing := len(set(sent) - set(heard.bodies)):
            await heard.count(len(heard.messages) + missing, PATIENCE)


@pytest.mark.slow
def test_rolling_restart_of_brokers_fails_no_send(tmp_path: Path) -> None:
    """Each is made read-only first: no send fails or is retried, and all messages are received."""

    async def restart(cluster: Cluster, name: str, admin: Admin, sender: Sender) -> None:
        await admin.wipe_write_perm(name)
        await sender.reaches(*(other for other in NAMES if other != name))
        assert await asyncio.to_thread(cluster.stop, name) == 0
        await asyncio.to_thread(cluster.start, name)
        await sender.reaches(*NAMES)

    async def main(cluster: Cluster) -> None:
        heard = RecordingListener()
        producing = ProducerSettings(
            name_servers=cluster.name_server,
            poll_name_server_interval=SOON,
            retry_times_when_send_failed=0,
            send_timeout=timedelta(seconds=PATIENCE),
        )
        consuming = PushConsumerSettings(
            name_servers=cluster.name_server,
            poll_name_server_interval=SOON,
            consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
            pull_time_delay_when_exception=SOON,
        )
        consumer = PushConsumer("kitchen", consuming)
        consumer.subscribe("orders")
        consumer.listen_concurrently(heard)
        async with (
            Admin(ClientSettings(name_servers=cluster.name_server)) as admin,
            Producer("shop", producing) as producer,
        ):
            await admin.create_topic("orders", queues=QUEUES)
            await admin.await_topic("orders", queues=len(NAMES) * QUEUES, timeout=60)
            async with consumer:
                sender = Sender(producer)
                sending = asyncio.create_task(sender.run())
                try:
                    await sender.reaches(*NAMES)
                    for name in NAMES:
                        await restart(cluster, name, admin, sender)
                finally:
                    sender.stop()
                    await sending
                await hears_all(heard, sender.sent)

    with ExitStack() as stack:
        asyncio.run(main(Cluster(stack, tmp_path)))


@pytest.mark.slow
def test_draining_can_be_undone(tmp_path: Path) -> None:
    """The write permission can be restored while the broker runs."""

    async def main(cluster: Cluster) -> None:
        settings = ProducerSettings(name_servers=cluster.name_server, poll_name_server_interval=SOON)
        async with (
            Admin(ClientSettings(name_servers=cluster.name_server)) as admin,
            Producer("shop", settings) as producer,
        ):
            await admin.create_topic("orders", queues=QUEUES)
            await admin.await_topic("orders", queues=len(NAMES) * QUEUES, timeout=60)
            assert await admin.wipe_write_perm("broker-a") > 0
            sender = Sender(producer)
            sending = asyncio.create_task(sender.run())
            try:
                await sender.reaches("broker-b")
                assert await admin.add_write_perm("broker-a") > 0
                await sender.reaches(*NAMES)
            finally:
                sender.stop()
                await sending

    with ExitStack() as stack:
        asyncio.run(main(Cluster(stack, tmp_path)))
