"""The line of ordered queues that wait for the listener's capacity."""

import asyncio
from collections.abc import Callable

from rocket_client.consuming.consume_orderly import _CapacityQueue
from streamkit.testing.virtual_time import VirtualTime


def test_a_woken_driver_that_is_cancelled_leaves_its_turn_to_the_next(virtual: VirtualTime) -> None:
    """Its queue may be revoked in the same turn of the loop in which a call of another queue ended."""

    class Room:
        free = 0

        def watch(self, on_free: Callable[[], None]) -> None:
            pass

        unwatch = watch

    async def main() -> None:
        room = Room()
        line = _CapacityQueue(room)
        first, second = (asyncio.create_task(line.wait()) for _ in range(2))
        await asyncio.sleep(0)
        room.free = 1
        line.wake()
        first.cancel()
        await asyncio.wait([second], timeout=1)
        assert first.cancelled()
        assert second.done()
        second.cancel()

    virtual.run(main())
