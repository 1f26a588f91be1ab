"""The feeder: sends the flights in batches, those of one aircraft to one queue in their order."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Self
from zlib import crc32

import msgspec

from rocket_client import Admin, MessageQueue, Producer
from rocket_client.settings import ClientSettings, ProducerSettings
from rocket_remoting import Message, RemotingError
from samples.pipeline.departures import Departure

TOPIC = "departures"
QUEUES = 4
# Half a day of flights, more or less. One such part is acknowledged before the next is sent, so no queue gets ahead.
TOGETHER = 500
RESEND_SECONDS = 0.2


async def create_topic(name_server: str) -> None:
    """Create the topic that the flights are sent to, and return when the name server knows its queues."""
    async with Admin(ClientSettings(name_servers=name_server)) as admin:
        await admin.create_topic(TOPIC, QUEUES)
        await admin.await_topic(TOPIC, queues=QUEUES)


class Feeder:
    """Sends flights, a limited number ahead of Spark.

    Args:
        name_server: The address of the broker's name server.
        lead: About so many flights are sent and not yet read, at most.
        resends: Whether flights that were refused are sent again until they are not; they may be stored twice then.

    Attributes:
        sent: How many flights are acknowledged.
    """

    def __init__(self, name_server: str, *, lead: int, resends: bool) -> None:
        self._producer = Producer("feeder", ProducerSettings(name_servers=name_server))
        self._queues: Sequence[MessageQueue] = ()
        self._lead = lead
        self._resends = resends
        self._room = asyncio.Event()
        self._read = 0
        self.sent = 0

    async def __aenter__(self) -> Self:
        """Connect."""
        await self._producer.start()
        self._queues = await self._producer.publish_queues(TOPIC)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        await self._producer.shutdown()

    async def feed(self, flights: Iterable[Departure]) -> None:
        """Send the flights, and return when every flight is acknowledged."""
        waiting = iter(flights)
        while together := list(islice(waiting, TOGETHER)):
            while self.sent - self._read >= self._lead:
                self._room.clear()
                await self._room.wait()
            await self.send(together)

    def note_read(self, flights: int) -> None:
        """Set the number of flights that have been read, so that more can be sent."""
        self._read = flights
        self._room.set()

    async def send(self, flights: Sequence[Departure]) -> None:
        """Send flights as a batch to each queue, and return when all are acknowledged."""
        batches: dict[MessageQueue, list[Message]] = defaultdict(list)
        for flight in flights:
            queue = self._queues[crc32(flight.aircraft.encode()) % QUEUES]
            batches[queue].append(Message(TOPIC, msgspec.json.encode(flight)))
        async with asyncio.TaskGroup() as senders:
            for queue, messages in batches.items():
                senders.create_task(self._send(messages, queue))
        self.sent += len(flights)

    async def _send(self, messages: Sequence[Message], queue: MessageQueue) -> None:
        while True:
            try:
                await self._producer.send_batch(messages, queue=queue)
            except RemotingError:
                if not self._resends:
                    raise
                await asyncio.sleep(RESEND_SECONDS)
            else:
                return
