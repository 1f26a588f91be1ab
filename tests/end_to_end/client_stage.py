"""The bundled broker and its clients on one loop in virtual time: hours of redeliveries pass in milliseconds."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

from rocket_broker.broker import Broker
from rocket_broker.embedded import EmbeddedBroker
from rocket_client import (
    Admin,
    Capacity,
    ClientSettings,
    ConsumeContext,
    ConsumeFromWhere,
    LitePullConsumer,
    LitePullConsumerSettings,
    Producer,
    ProducerSettings,
    PullConsumer,
    PullConsumerSettings,
    PushConsumer,
    PushConsumerSettings,
    SendResult,
)
from rocket_remoting import MemoryTransport, Message, MessageExt, MessageQueue
from streamkit.chaos import Chaos
from streamkit.testing.virtual_time import VirtualTime

PATIENCE = 200_000.0
"""Virtual seconds: more than all sixteen redeliveries take."""


class RecordingListener:
    """A listener that records messages with their times and returns the outcome of `says`."""

    def __init__(self, says: Callable[[MessageExt], object] = lambda message: None) -> None:
        self.messages: list[MessageExt] = []
        self.times: list[float] = []
        self.batches: list[int] = []
        self._says = says
        self._more = asyncio.Event()

    async def __call__(self, messages: list[MessageExt], context: ConsumeContext) -> Any:
        self.batches.append(len(messages))
        said: object = None
        for message in messages:
            self.messages.append(message)
            self.times.append(asyncio.get_running_loop().time())
            said = self._says(message)
        self._more.set()
        if isinstance(said, BaseException):
            raise said
        if asyncio.iscoroutine(said):
            return await said
        return said

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    async def count(self, wanted: int, patience: float = 200.0) -> None:
        """Wait until that many messages were received."""
        async with asyncio.timeout(patience):
            while len(self.messages) < wanted:
                self._more.clear()
                await self._more.wait()


class ClientStage:
    """A broker, and factories of clients that use it."""

    def __init__(self, time: VirtualTime, broker: EmbeddedBroker, transport: MemoryTransport) -> None:
        self.time = time
        self.broker = broker
        self.transport = transport

    def producer(self, group: str = "shop", **settings: Any) -> Producer:
        return Producer(group, ProducerSettings(**self._with_address(settings)), **self._ends())

    def admin(self, **settings: Any) -> Admin:
        return Admin(ClientSettings(**self._with_address(settings)), **self._ends())

    def consumer(self, group: str = "kitchen", topic: str = "orders", tags: str = "*", **settings: Any) -> PushConsumer:
        settings.setdefault("consume_from_where", ConsumeFromWhere.FIRST_OFFSET)
        consumer = PushConsumer(group, PushConsumerSettings(**self._with_address(settings)), **self._ends())
        consumer.subscribe(topic, tags)
        return consumer

    def concurrent(self, listener: Any, group: str = "kitchen", **settings: Any) -> PushConsumer:
        consumer = self.consumer(group, **settings)
        consumer.listen_concurrently(listener)
        return consumer

    def orderly(
        self, listener: Any, group: str = "kitchen", *, capacity: Capacity | None = None, **settings: Any
    ) -> PushConsumer:
        consumer = self.consumer(group, **settings)
        consumer.listen_orderly(listener, capacity)
        return consumer

    def polling(self, group: str = "kitchen", topic: str = "orders", **settings: Any) -> LitePullConsumer:
        """Return a lite pull consumer, of topic `orders` by default, of none with an empty name."""
        settings.setdefault("consume_from_where", ConsumeFromWhere.FIRST_OFFSET)
        consumer = LitePullConsumer(group, LitePullConsumerSettings(**self._with_address(settings)), **self._ends())
        if topic:
            consumer.subscribe(topic)
        return consumer

    def pulling(self, group: str = "kitchen", **settings: Any) -> PullConsumer:
        return PullConsumer(group, PullConsumerSettings(**self._with_address(settings)), **self._ends())

    async def send(self, bodies: Iterable[bytes], topic: str = "orders", queue: int | None = None) -> list[SendResult]:
        """Send one message per body, all to one queue if it is given."""
        async with self.producer() as producer:
            target = None if queue is None else MessageQueue(topic, "broker-a", queue)
            return [await producer.send(Message(topic, body), queue=target) for body in bodies]

    async def topic(self, topic: str = "orders", queues: int = 4) -> None:
        """Create the topic."""
        async with self.admin() as admin:
            await admin.create_topic(topic, queues)
            await admin.await_topic(topic, queues=queues)

    def _with_address(self, settings: dict[str, Any]) -> dict[str, Any]:
        return {"name_servers": self.broker.name_server_address, **settings}

    def _ends(self) -> dict[str, Any]:
        return {"transport": self.transport, "clock": self.time.clock}


def play(
    scene: Callable[[ClientStage], Awaitable[None]], *, queues: int = 4, chaos: Chaos | None = None, **settings: str
) -> None:
    """Run the scene with a broker that has topic `orders`; settings are the broker's."""
    with VirtualTime() as time:

        async def main() -> None:
            transport = MemoryTransport()
            async with EmbeddedBroker(transport=transport, clock=time.clock, settings=settings, chaos=chaos) as broker:
                stage = ClientStage(time, broker, transport)
                await stage.topic(queues=queues)
                await scene(stage)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"tasks left behind: {left}"

        time.run(main())


async def cancel_own_task() -> None:
    """Cancel the running task from inside."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait until the condition holds, checking every 50 ms of loop time."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  # conditions on foreign state set no event
            await asyncio.sleep(0.05)


async def stop_and_restart(stage: ClientStage, seconds: float = 2) -> None:
    """Stop the broker, and later start another one with its store at its address."""
    port = int(stage.broker.broker_address.rpartition(":")[2])
    await stage.broker.broker.stop()
    await asyncio.sleep(seconds)
    await restart(stage, port)


async def restart(stage: ClientStage, port: int) -> None:
    """Start a broker with the store of the stopped one."""
    settings = replace(stage.broker._broker_settings(), listen_port=port)
    fresh = Broker(settings, transport=stage.transport, clock=stage.time.clock)
    await fresh.start()
    stage.broker.broker = fresh
    assert stage.broker._running is not None
    stage.broker._running.push_async_callback(fresh.stop)


def orders_of(consumer: PushConsumer) -> set[MessageQueue]:
    """Return the consumer's queues of topic `orders`, without those of the retry topic."""
    return {queue for queue in consumer.assigned if queue.topic == "orders"}
