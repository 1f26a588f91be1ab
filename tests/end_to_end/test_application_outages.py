"""Applications whose name servers die, whose topics grow, and that are killed."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import Admin, ClientSettings
from tests.end_to_end.broker_process import PATIENT, ROOT, ServerProcess, running
from tests.end_to_end.honest_shop import HonestShop, settings
from tests.end_to_end.member_program import MEMBER
from tests.ports import free_ports

POLL = {"rocketmq.binder.poll-name-server-interval": "100ms"}


class Cluster:
    """A broker and two name servers, each a process."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self.name_servers = [self.start_name_server(free_ports()[0]) for _ in range(2)]
        self.addresses = ";".join(server.address() for server in self.name_servers)
        config = directory / "broker.conf"
        lines = {
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "listenPort": "0",
            "namesrvAddr": self.addresses,
            "storePathRootDir": str(directory / "store"),
            "mappedFileSizeCommitLog": str(1024 * 1024),
            **PATIENT,
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        self.broker = stack.enter_context(running("broker", "-c", str(config), cwd=directory))
        self.broker.address()

    def start_name_server(self, port: int) -> ServerProcess:
        """Start one on the port."""
        return self._stack.enter_context(running("namesrv", "-p", str(port), cwd=self._directory))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A broker and two name servers."""
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


@pytest.mark.promise
@pytest.mark.slow
@pytest.mark.parametrize("orderly", ["false", "true"])
def test_application_continues_without_name_servers(cluster: Cluster, orderly: str) -> None:
    """It has its routes. When a name server is back, new topics are found again."""

    async def main() -> None:
        keys = POLL | {"rocketmq.bindings.in.consumer.orderly": orderly}
        async with HonestShop(cluster.addresses, may_warn="routes stay as they are", **keys) as shop:
            for server in cluster.name_servers:
                await asyncio.to_thread(server.signal, signal.SIGKILL)
            async with asyncio.timeout(60):
                while not any("routes stay" in reported for reported in shop.warnings.reported):
                    await shop.goes_on(1)
            await shop.goes_on(300)
            port = int(cluster.addresses.partition(";")[0].rpartition(":")[2])
            again = cluster.start_name_server(port)
            await asyncio.to_thread(again.address)
            await asyncio.to_thread(cluster.broker.wait_for_log, ": registered with name server", 3)
            async with Admin(ClientSettings(name_servers=cluster.addresses)) as admin:
                await admin.create_topic("orders", 6)
            await shop.hears_from({4, 5})

    asyncio.run(main())


@pytest.mark.parametrize("orderly", ["false", "true"])
def test_queues_added_to_a_live_topic_are_used(orderly: str) -> None:
    """At the next poll of the routes, by senders and consumers, without loss or duplicates."""

    async def main(name_server: str) -> None:
        keys = POLL | {"rocketmq.bindings.in.consumer.orderly": orderly}
        async with HonestShop(name_server, **keys) as shop:
            await shop.hears_from({0, 1, 2, 3})
            assert shop.queues == {0, 1, 2, 3}
            async with Admin(ClientSettings(name_servers=name_server)) as admin:
                await admin.create_topic("orders", 8)
            await shop.hears_from({4, 5, 6, 7})

    with ThreadedBroker() as broker:
        asyncio.run(main(broker.name_server))


@pytest.mark.promise
@pytest.mark.slow
@pytest.mark.parametrize("orderly", ["false", "true"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_another_member_takes_over_from_an_ended_process(tmp_path: Path, number: signal.Signals, orderly: str) -> None:
    """Uncommitted messages of a killed member are redelivered;

    a stopped member leaves none, in order. Without order a queue may change its member during calls, whose messages may
    be delivered twice.
    """
    (tmp_path / "member.py").write_text(MEMBER)

    async def main(name_server: str) -> None:
        keys = {"rocketmq.bindings.in.consumer.orderly": orderly}
        arguments = {
            **settings(name_server, **keys),
            "spring.cloud.stream.bindings.in.destination": "orders",
            "spring.cloud.stream.bindings.in.group": "kitchen",
        }
        # A killed member's locks on its queues are waited for.
        may_warn = "" if number is signal.SIGKILL else "(?!)"
        shop = HonestShop(name_server, may_warn=may_warn, may_repeat=True, **keys)
        async with shop:
            member = await asyncio.create_subprocess_exec(
                sys.executable,
                "member.py",
                *(f"--{key}={value}" for key, value in arguments.items()),
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                env={"PYTHONPATH": str(ROOT)},
            )
            assert member.stdout is not None
            elsewhere = [int(await asyncio.wait_for(member.stdout.readline(), 60)) for _ in range(50)]
            member.send_signal(number)
            elsewhere += [int(line) for line in (await member.stdout.read()).split()]
            await member.wait()
            shop.heard += elsewhere
            await shop.goes_on()
        if number is signal.SIGTERM and orderly == "true":
            assert len(shop.heard) == len(set(shop.heard))

    with ThreadedBroker() as broker:
        asyncio.run(main(broker.name_server))
