"""Settling by hand."""

import asyncio
import threading

from streamkit.binder.acknowledgment import Acknowledgment
from streamkit.settlement import ACCEPT, Reject


def test_of_many_threads_one_decides() -> None:
    """However many settle at once, one call returns True, and what it said holds."""

    async def main() -> None:
        acknowledgment = Acknowledgment()
        waiting = asyncio.ensure_future(acknowledgment.settled())
        barrier = threading.Barrier(8)
        decided: list[int] = []

        def settle(number: int) -> None:
            barrier.wait()
            if acknowledgment.reject(str(number)):
                decided.append(number)

        threads = [threading.Thread(target=settle, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        settlement = await waiting
        for thread in threads:
            thread.join()
        assert len(decided) == 1
        assert settlement == Reject(str(decided[0]))

    asyncio.run(main())


def test_what_was_decided_before_anybody_waits_is_there() -> None:
    """Waiting for a settled acknowledgment does not wait."""

    async def main() -> None:
        acknowledgment = Acknowledgment()
        assert acknowledgment.accept()
        assert not acknowledgment.requeue()
        assert await acknowledgment.settled() is ACCEPT

    asyncio.run(main())
