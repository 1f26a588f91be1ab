"""streamkit's applications while a real Kafka stops and returns, and while group members do."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import pytest

from binders.kafka.fetching import WINDOW
from streamkit import Message, StreamApplication
from streamkit.binder.binder import BindingState
from streamkit.errors import StreamkitError
from streamkit.messaging.headers import KEY, PARTITION
from streamkit.patterns.local_store import RECEIPT, SendReceipt, SendStatus
from tests.end_to_end.member_program import MEMBER
from tests.peer.kafka import KafkaServer

ROOT = Path(__file__).parents[2]
PATIENCE = 90.0
STREAM = "spring.cloud.stream"
# The time after which a silent member is removed, long enough for a slow one; and how soon the others learn of it.
SOON_MISSED = {"session.timeout.ms": "20000", "heartbeat.interval.ms": "500"}


def settings(brokers: str, **more: str) -> dict[str, str]:
    """Return settings of an application with topic `orders`, and further ones below `spring.cloud.stream`."""
    keys = {
        "default-binder": "kafka",
        "kafka.binder.brokers": brokers,
        "kafka.binder.min-partition-count": "4",
        "bindings.out.destination": "orders",
        "bindings.in.destination": "orders",
        "bindings.in.group": "kitchen",
        "output-bindings": "out",
        "binding-retry-interval": "1",
        **{f"kafka.bindings.in.consumer.configuration.{key}": value for key, value in SOON_MISSED.items()},
    }
    return {f"{STREAM}.{key}": value for key, value in (keys | more).items()}


class Shop:
    """An application that sends and receives numbers.

    Attributes:
        app: The application.
        heard: The numbers as they were heard.
        go_on: Calls for partition 0 end while it is set, as it is at first.
    """

    def __init__(self, brokers: str, *, unsent: Path | None = None, **more: str) -> None:
        """Make it; `unsent` is the file of its local store, if it has one, and `more` are further settings."""
        keys = settings(brokers, **more)
        if unsent is not None:
            keys |= {"streamkit.local-store.path": str(unsent), "streamkit.local-store.max-retry-interval": "1s"}
        self.app = StreamApplication(config_location="optional:/none", properties=keys)
        self.app.stream_listener("in")(self._hear)
        self.heard: list[int] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self._more = asyncio.Event()

    async def _hear(self, number: int) -> None:
        self.heard.append(number)
        self._more.set()
        if number % 4 == 0:
            await self.go_on.wait()

    async def send(self, numbers: Iterable[int]) -> None:
        """Send them one after the other, each until it is accepted."""
        for number in numbers:
            while True:
                try:
                    await self.app.bridge.asend("out", Message(number, {PARTITION: number % 4}))
                    break
                except StreamkitError:
                    await asyncio.sleep(0.1)

    async def send_or_keep(self, number: int) -> SendStatus:
        """Send a number once, and return whether Kafka has it or the local store; its key is its remainder by 4."""
        receipt = SendReceipt()
        assert await self.app.bridge.asend("out", Message(number, {KEY: f"k{number % 4}", RECEIPT: receipt}))
        return receipt.status

    async def hears(self, numbers: Iterable[int]) -> None:
        """Wait until each was received."""
        wanted = set(numbers)
        async with asyncio.timeout(PATIENCE):
            while not wanted <= set(self.heard):
                self._more.clear()
                await self._more.wait()

    def of_partition(self, partition: int) -> list[int]:
        """Return what was received of a partition, each number once at its first time."""
        return list(dict.fromkeys(number for number in self.heard if number % 4 == partition))


@pytest.mark.promise
@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_kafka_restart_loses_nothing(kafka_server_of_its_own: KafkaServer, end: str) -> None:
    """Sends wait meanwhile; accepted messages are received in the partitions' order."""
    server = kafka_server_of_its_own

    async def main() -> None:
        shop = Shop(server.address)
        async with shop.app:
            sending = asyncio.create_task(shop.send(range(600)))
            await shop.hears(range(100))
            await asyncio.to_thread(getattr(server, end))
            await asyncio.to_thread(server.start)
            async with asyncio.timeout(PATIENCE):
                await sending
            await shop.hears(range(600))
        for partition in range(4):
            assert shop.of_partition(partition) == list(range(partition, 600, 4))

    asyncio.run(main())


@pytest.mark.peer
@pytest.mark.slow
def test_application_waits_for_an_unavailable_broker_at_its_start(
    kafka_server_of_its_own: KafkaServer, tmp_path: Path
) -> None:
    """It is bound as soon as there is one. A local store keeps what is sent before, and each key's order."""
    server = kafka_server_of_its_own
    server.stop()
    timeout = {"kafka.binder.configuration.bootstrap.timeout.ms": "3000"}
    topic = {"bindings.in.destination": "kept", "bindings.out.destination": "kept"}

    async def main() -> None:
        shop = Shop(server.address, **timeout)
        keeping = Shop(server.address, unsent=tmp_path / "unsent.db", **timeout, **topic)
        async with shop.app, keeping.app:
            assert shop.app.binding("in").state is BindingState.STOPPED
            assert {await keeping.send_or_keep(number) for number in range(20)} == {SendStatus.KEPT}
            await asyncio.to_thread(server.start)
            await shop.send(range(20))
            await shop.hears(range(20))
            await keeping.hears(range(20))
            while await keeping.send_or_keep(20) is not SendStatus.STORED:  # noqa: ASYNC110 - the store says when it has sent all
                await asyncio.sleep(0.1)
        for key in range(4):
            assert [number for number in keeping.of_partition(key) if number < 20] == list(range(key, 20, 4))

    asyncio.run(main())


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.parametrize("is_answered", [False, True], ids=["in the call", "at its end"])
def test_stop_ends_although_a_transactions_end_is_unanswered(
    kafka_server_of_its_own: KafkaServer, is_answered: bool
) -> None:
    """Neither the application nor its threads wait for a broker that does not return."""
    keys = {
        "kafka.binder.transaction.transaction-id-prefix": "shop-",
        "bindings.in.consumer.max-attempts": "1",
        "bindings.out.destination": "receipts",
        "bindings.in.destination": "orders",
    }

    async def main() -> None:
        app = StreamApplication(
            config_location="optional:/none", properties=settings(kafka_server_of_its_own.address, **keys)
        )
        begun, go_on = asyncio.Event(), asyncio.Event()

        @app.stream_listener("in")
        async def answer(number: int) -> None:
            await app.bridge.asend("out", number)
            begun.set()
            await go_on.wait()

        await app.start(watch_loop=False)
        try:
            await app.bridge.asend("orders", 0)
            async with asyncio.timeout(PATIENCE):
                await begun.wait()
            await asyncio.to_thread(kafka_server_of_its_own.kill)
            if is_answered:
                go_on.set()
        finally:
            async with asyncio.timeout(PATIENCE):
                await app.stop(1)

    asyncio.run(main())


async def lag(app: StreamApplication, wanted: int) -> None:
    """Wait until the binder's health reports that lag of binding `in`."""
    (binder,) = app.container.binders().made.values()
    async with asyncio.timeout(PATIENCE):
        while (await binder.health()).details["lag.in"] != str(wanted):
            pass  # each call of health() asks the brokers, so the loop does not spin


def test_paused_binding_lags_and_catches_up(kafka_server: KafkaServer) -> None:
    """Its lag grows while it is paused; afterwards each message is received once."""

    async def main() -> None:
        topic = {"bindings.in.destination": "paused", "bindings.out.destination": "paused"}
        shop = Shop(kafka_server.address, **topic)
        async with shop.app:
            await shop.send(range(8))
            await shop.hears(range(8))
            await shop.app.controller.change_state("in", "PAUSED")
            await shop.send(range(8, 40))
            await lag(shop.app, 32)
            assert sorted(shop.heard) == list(range(8))
            await shop.app.controller.change_state("in", "RESUMED")
            await shop.hears(range(40))
            await lag(shop.app, 0)
        assert sorted(shop.heard) == list(range(40))

    asyncio.run(main())


def test_paused_partition_is_fetched_again(kafka_server: KafkaServer) -> None:
    """One is full and its handler waits; the others continue meanwhile, and so does it afterwards."""
    keys = {
        "bindings.in.destination": "full",
        "bindings.in.consumer.auto-startup": "false",
        "bindings.in.consumer.concurrency": "2",
        "bindings.out.destination": "full",
        "kafka.bindings.out.producer.sync": "false",
    }

    async def main() -> None:
        shop = Shop(kafka_server.address, **keys)
        held_back = range(0, 6 * WINDOW, 4)
        async with shop.app:
            await shop.send(held_back)
            shop.go_on.clear()
            await shop.app.controller.change_state("in", "STARTED")
            await shop.hears([0])
            for number in range(1, 80, 4):
                await shop.send([number])
                await shop.hears([number])
            shop.go_on.set()
            await shop.hears(held_back)

    asyncio.run(main())


class Member:
    """A process in the application's group.

    Attributes:
        heard: The numbers it printed.
    """

    def __init__(self, directory: Path, properties: dict[str, str]) -> None:
        """Make one that does not run yet."""
        self.heard: list[int] = []
        self._directory = directory
        self._arguments = [f"--{key}={value}" for key, value in properties.items()]
        self._some = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start it, and end it completely."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            MEMBER,
            *self._arguments,
            cwd=self._directory,
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": str(ROOT)},
        )
        self._reading = asyncio.create_task(self._read())
        try:
            yield
        finally:
            if self._process.returncode is None:
                await self.end(signal.SIGKILL)

    async def hears_something(self, shop: Shop, numbers: Iterator[int]) -> None:
        """Wait until it has partitions and receives a message."""
        async with asyncio.timeout(PATIENCE):
            while not self._some.is_set():
                await shop.send([next(numbers)])

    async def end(self, how: signal.Signals) -> None:
        """End it."""
        self._process.send_signal(how)
        await self._process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.heard.append(int(line))
            self._some.set()


@pytest.mark.promise
@pytest.mark.slow
def test_members_join_and_leave(kafka_server: KafkaServer, tmp_path: Path) -> None:
    """One joins and is stopped, another joins and is killed:

    every number is received. Nothing of the stopped one is repeated.
    """
    topic = {"bindings.in.destination": "members", "bindings.out.destination": "members"}

    async def main() -> None:
        shop = Shop(kafka_server.address, **topic)
        sent = count()
        first, second = (Member(tmp_path, settings(kafka_server.address, **topic)) for _ in range(2))
        async with shop.app:
            await shop.send([next(sent)])
            async with first.running():
                await first.hears_something(shop, sent)
                await first.end(signal.SIGTERM)
            assert not set(first.heard) & set(shop.heard)
            async with second.running():
                await second.hears_something(shop, sent)
                await second.end(signal.SIGKILL)
            await shop.send(next(sent) for _ in range(8))
            elsewhere = {*first.heard, *second.heard}
            await shop.hears(set(range(next(sent))) - elsewhere)
        assert first.heard
        assert second.heard

    asyncio.run(main())
