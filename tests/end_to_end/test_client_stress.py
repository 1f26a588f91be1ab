"""Members that join and leave at random: no message is lost, and no queue of an orderly group has two owners."""

import asyncio
import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from rocket_broker.pytest_plugin import RocketBroker
from rocket_client import (
    Admin,
    ClientSettings,
    ConsumeContext,
    ConsumeFromWhere,
    Producer,
    ProducerSettings,
    PushConsumer,
    PushConsumerSettings,
)
from rocket_remoting import Message, MessageExt, MessageQueue
from tests.end_to_end.client_stage import ClientStage, play

TOPIC = "storm"
DRAIN_SECONDS = 120.0
STAY_SECONDS = (1.0, 8.0)


@dataclass
class Storm:
    """The participants, the duration, and the broker's address."""

    name_server: str
    seconds: float
    producers: int
    groups: int
    members: int
    sends_per_second: float
    ends: dict[str, Any] = field(default_factory=dict)
    seed: int = field(default_factory=lambda: int(os.environ.get("STREAMKIT_SEED", random.randrange(1 << 32))))

    def __post_init__(self) -> None:
        print(f"STREAMKIT_SEED={self.seed}")
        self.random = random.Random(self.seed)
        self.sent: set[bytes] = set()
        self.heard: dict[str, set[bytes]] = defaultdict(set)
        self.arrived = asyncio.Event()
        self.inside: dict[tuple[str, MessageQueue], str] = {}
        self.trouble: list[str] = []
        self.over = asyncio.Event()

    @property
    def group_names(self) -> list[str]:
        """Return group names, every other one orderly."""
        return [f"{'orderly' if number % 2 else 'concurrent'}-{number}" for number in range(self.groups)]

    # Those who send

    async def produce(self, name: str) -> None:
        """Send until the end, leaving and returning now and then."""
        while not self.over.is_set():
            async with self._producer(name) as producer:
                for _ in range(self.random.randint(1, 20)):
                    if self.over.is_set():
                        return
                    body = f"{name}-{len(self.sent)}-{self.random.random()}".encode()
                    await producer.send(Message(TOPIC, body))
                    self.sent.add(body)
                    await asyncio.sleep(self.random.expovariate(self.sends_per_second))

    def _producer(self, name: str) -> Producer:
        settings = ProducerSettings(name_servers=self.name_server, send_timeout=timedelta(seconds=30))
        return Producer(name, settings, **self.ends)

    # Those who listen

    async def consume(self, group: str, number: int) -> None:
        """Join and leave the group until the end."""
        while not self.over.is_set():
            await asyncio.sleep(self.random.uniform(0, 2))
            async with self._consumer(group, f"{group}-{number}"):
                try:
                    async with asyncio.timeout(self.random.uniform(*STAY_SECONDS)):
                        await self.over.wait()
                except TimeoutError:
                    pass

    def _consumer(self, group: str, member: str) -> PushConsumer:
        settings = PushConsumerSettings(
            name_servers=self.name_server, consume_from_where=ConsumeFromWhere.FIRST_OFFSET, concurrency=4
        )
        consumer = PushConsumer(group, settings, **self.ends)
        consumer.subscribe(TOPIC)
        if group.startswith("orderly"):
            last: dict[MessageQueue, int] = {}
            # A queue that comes back may bring again what was not committed when it left.
            consumer.on_rebalance(lambda topic, everything, mine: _forget(last, everything - mine))
            consumer.listen_orderly(self._orderly(group, member, last))
        else:
            consumer.listen_concurrently(self._concurrent(group))
        return consumer

    def _concurrent(self, group: str) -> Callable[..., Any]:
        async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            await asyncio.sleep(self.random.uniform(0, 0.002))
            self._note(group, messages)

        return listen

    def _orderly(self, group: str, member: str, last: dict[MessageQueue, int]) -> Callable[..., Any]:
        async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            queue, owner = context.message_queue, self.inside.get((group, context.message_queue))
            if owner is not None:
                self.trouble.append(f"{queue} of {group} has two owners: {owner} and {member}")
            if messages[0].queue_offset <= last.get(queue, -1):
                self.trouble.append(f"{queue} of {group} goes back at {member}: {messages[0].queue_offset}")
            last[queue] = messages[-1].queue_offset
            self.inside[group, queue] = member
            try:
                await asyncio.sleep(self.random.uniform(0, 0.005))
            finally:
                self.inside.pop((group, queue), None)
            self._note(group, messages)

        return listen

    def _note(self, group: str, messages: Iterable[MessageExt]) -> None:
        self.heard[group].update(message.body for message in messages)
        self.arrived.set()

    # The storm

    async def rage(self) -> None:
        """Run all participants, then let one member of each group receive the rest."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(self.producers):
                tasks.create_task(self.produce(f"producer-{number}"))
            for group in self.group_names:
                for number in range(self.members):
                    tasks.create_task(self.consume(group, number))
            tasks.create_task(self._end())
        consumers = [self._consumer(group, f"{group}-last") for group in self.group_names]
        for consumer in consumers:
            await consumer.start()
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while self.missing():
                    self.arrived.clear()
                    await self.arrived.wait()
        except TimeoutError:
            pass
        for consumer in consumers:
            await consumer.shutdown()
        assert not self.missing(), {group: len(lost) for group, lost in self.missing().items()}
        assert not self.trouble
        assert len(self.sent) > self.seconds * self.sends_per_second * self.producers / 4

    async def _end(self) -> None:
        await asyncio.sleep(self.seconds)
        self.over.set()

    def missing(self) -> dict[str, set[bytes]]:
        """Return the messages that each group has not received."""
        found = {group: self.sent - self.heard[group] for group in self.group_names}
        return {group: lost for group, lost in found.items() if lost}


def _forget(offsets: dict[MessageQueue, int], queues: Iterable[MessageQueue]) -> None:
    for queue in queues:
        offsets.pop(queue, None)


@pytest.mark.promise
def test_joining_and_leaving_for_a_minute_of_virtual_time() -> None:
    """Eight producers, and three members in each of four groups."""

    async def scene(stage: ClientStage) -> None:
        await stage.topic(TOPIC, queues=8)
        await Storm(
            stage.broker.name_server_address,
            seconds=60,
            producers=8,
            groups=4,
            members=3,
            sends_per_second=2,
            ends={"transport": stage.transport, "clock": stage.time.clock},
        ).rage()

    play(scene)


@pytest.mark.promise
@pytest.mark.slow
def test_joining_and_leaving_over_tcp(rocket_broker: RocketBroker) -> None:
    """64 producers, and 32 consumers in eight groups."""

    async def main() -> None:
        async with Admin(ClientSettings(name_servers=rocket_broker.name_server)) as admin:
            await admin.create_topic(TOPIC, 16)
            await admin.await_topic(TOPIC, queues=16)
        storm = Storm(rocket_broker.name_server, seconds=20, producers=64, groups=8, members=4, sends_per_second=1)
        await storm.rage()

    asyncio.run(main())
