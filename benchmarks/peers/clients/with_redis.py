"""redis-py on a Redis server, with streams; runs in a virtual environment of its own."""
# mypy: ignore-errors

import asyncio
from collections.abc import Awaitable, Callable

from redis.asyncio import Redis

from benchmarks.peers.clients.serving import BATCH, BODY, TOPIC, AsyncClient, run

FIELD = b"__data__"
"""The name that FastStream gives to the payload."""
_BLOCK_MS = 200
"""How long a read waits at most, and so an end."""


class RedisClient(AsyncClient):
    """Appends to streams; consumer groups read 32 entries at a time and acknowledge them."""

    async def connect(self, address: str) -> None:
        """Connect."""
        host, _, port = address.partition(":")
        self._address = (host, int(port))
        self._redis = Redis(host=host, port=int(port))
        await self._redis.ping()

    async def send(self) -> None:
        """Append an entry."""
        await self._redis.xadd(TOPIC, {FIELD: BODY})

    async def send_batch(self) -> None:
        """Append entries with one pipeline."""
        await self._append(TOPIC, [BODY] * BATCH)

    async def _append(self, topic: str, bodies: list[bytes]) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        for body in bodies:
            pipeline.xadd(topic, {FIELD: body})
        await pipeline.execute()

    async def fill(self, topic: str, bodies: list[bytes]) -> None:
        """Append entries."""
        for first in range(0, len(bodies), 500):
            await self._append(topic, bodies[first : first + 500])

    async def make_group(self, topic: str, group: str) -> None:
        """Make a group that begins with the first entry; FastStream would make one that begins with the next."""
        await self._redis.xgroup_create(topic, group, id="0", mkstream=True)

    async def receive(
        self, topic: str, group: str, on_message: Callable[[bytes], object]
    ) -> Callable[[], Awaitable[object]]:
        """Read as a new group, and acknowledge what was read."""
        reader = Redis(host=self._address[0], port=self._address[1])
        await self.make_group(topic, group)

        stopped = False

        async def read() -> None:
            while not stopped:
                for _, entries in await reader.xreadgroup(group, "one", {topic: ">"}, count=32, block=_BLOCK_MS):
                    for _, fields in entries:
                        on_message(fields[FIELD])
                    await reader.xack(topic, group, *(entry for entry, _ in entries))

        task = asyncio.create_task(read())

        async def stop() -> None:
            nonlocal stopped
            stopped = True
            await task
            await reader.aclose()

        return stop

    async def publish(self, topic: str, body: bytes) -> object:
        """Append an order."""
        return await self._redis.xadd(topic, {FIELD: body})


if __name__ == "__main__":
    run(RedisClient())
