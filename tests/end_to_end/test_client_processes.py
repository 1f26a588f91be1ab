"""The client over TCP with name servers and brokers in processes that are killed."""

import asyncio
import signal
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import (
    ConsumeFromWhere,
    NameServersUnreachableError,
    Producer,
    ProducerSettings,
    PushConsumer,
    PushConsumerSettings,
    SendError,
)
from rocket_remoting import Message
from tests.end_to_end.broker_process import PATIENT, ServerProcess, running
from tests.end_to_end.client_stage import RecordingListener, until
from tests.ports import free_ports

SOON = timedelta(milliseconds=200)


def consumer(name_servers: str, listener: RecordingListener) -> PushConsumer:
    settings = PushConsumerSettings(
        name_servers=name_servers,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
        pull_time_delay_when_exception=SOON,
    )
    made = PushConsumer("kitchen", settings)
    made.subscribe("orders")
    made.listen_concurrently(listener)
    return made


def test_messages_are_sent_over_tcp() -> None:
    """A thousand concurrently on one connection, each delivered once."""

    async def main(name_server: str) -> None:
        heard = RecordingListener()
        settings = ProducerSettings(name_servers=name_server, send_timeout=timedelta(seconds=30))
        async with Producer("shop", settings) as producer:
            sent = [b"%d" % number for number in range(1000)]
            await asyncio.gather(*(producer.send_async(Message("orders", body)) for body in sent))
            async with consumer(name_server, heard):
                await heard.count(1000, patience=60)
        assert sorted(heard.bodies) == sorted(sent)

    with ThreadedBroker() as broker:
        asyncio.run(main(broker.name_server))


def test_unreachable_name_server_is_an_error() -> None:
    """At a consumer's start and at a producer's first send."""

    async def main() -> None:
        with pytest.raises(NameServersUnreachableError, match=r"127\.0\.0\.1:1\b"):
            await consumer("127.0.0.1:1", RecordingListener()).start()
        async with Producer("shop", ProducerSettings(name_servers="127.0.0.1:1")) as producer:
            with pytest.raises(NameServersUnreachableError):
                await producer.send(Message("orders", b"x"))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


class Processes:
    """Two name servers, and a broker registered with them."""

    def __init__(self, stack: ExitStack, directory: Path) -> None:
        self._stack = stack
        self._directory = directory
        (directory / "namesrv.conf").write_text("listenPort=0\n")
        servers = [self._start("namesrv", "-c", str(directory / "namesrv.conf")) for _ in range(2)]
        self.name_servers = servers
        self.addresses = ";".join(server.address() for server in servers)
        self._port = free_ports()[1]
        self.broker = self._start_broker()

    def _start(self, command: str, *arguments: str) -> ServerProcess:
        return self._stack.enter_context(running(command, *arguments, cwd=self._directory))

    def _start_broker(self) -> ServerProcess:
        conf = self._directory / "broker.conf"
        settings = {
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "listenPort": str(self._port),
            "namesrvAddr": self.addresses,
            "storePathRootDir": str(self._directory / "store"),
            "mappedFileSizeCommitLog": "1048576",
            **PATIENT,
        }
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        broker = self._start("broker", "-c", str(conf))
        broker.address()
        return broker

    def restart_broker(self) -> None:
        """Kill the broker with kill -9, then start it again on its port with its store."""
        self.broker.signal(signal.SIGKILL)
        self.broker = self._start_broker()


@pytest.mark.promise
@pytest.mark.slow
def test_acknowledged_messages_of_a_killed_broker_are_delivered(tmp_path: Path) -> None:
    """kill -9 during traffic: failed sends are retried, and each message is delivered at least once."""

    async def main(processes: Processes) -> None:
        heard = RecordingListener()
        settings = ProducerSettings(name_servers=processes.addresses, send_timeout=timedelta(seconds=30))
        async with (
            Producer("shop", settings) as producer,
            consumer(processes.addresses, heard),
        ):

            async def send_until_stored(number: int) -> None:
                while True:
                    try:
                        await producer.send(Message("orders", b"%d" % number))
                    except SendError:
                        await asyncio.sleep(0.1)
                    else:
                        return

            first = [asyncio.create_task(send_until_stored(number)) for number in range(300)]
            await heard.count(100, patience=60)
            second = [asyncio.create_task(send_until_stored(number)) for number in range(300, 600)]
            await asyncio.to_thread(processes.restart_broker)
            await asyncio.gather(*first, *second)
            await until(lambda: {int(body) for body in heard.bodies} == set(range(600)), seconds=60)

    with ExitStack() as stack:
        asyncio.run(main(Processes(stack, tmp_path)))


@pytest.mark.promise
@pytest.mark.slow
def test_traffic_continues_without_name_servers(tmp_path: Path) -> None:
    """Running producers and consumers have their routes; only new topics cannot be found."""

    async def main(processes: Processes) -> None:
        heard = RecordingListener()
        settings = ProducerSettings(name_servers=processes.addresses, send_timeout=timedelta(seconds=30))
        async with (
            Producer("shop", settings) as producer,
            consumer(processes.addresses, heard),
        ):
            await producer.send(Message("orders", b"0"))
            await heard.count(1, patience=60)
            processes.name_servers[0].signal(signal.SIGKILL)
            await producer.send(Message("bills", b"still found"))
            processes.name_servers[1].signal(signal.SIGKILL)
            for number in range(1, 50):
                await producer.send(Message("orders", b"%d" % number))
            await heard.count(50, patience=60)
            with pytest.raises(NameServersUnreachableError):
                await producer.send(Message("receipts", b"x"))

    with ExitStack() as stack:
        asyncio.run(main(Processes(stack, tmp_path)))
