"""Settling by hand."""

import asyncio
import threading

from streamkit.binder.acknowledgment import Acknowledgment
from streamkit.settlement import ACCEPT, Reject


def test_only_one_of_many_threads_settles() -> None:
    """One call returns True, and its settlement counts."""

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


def test_settlement_before_the_wait_is_returned() -> None:
    """Waiting for a settled acknowledgment returns at once."""

    async def main() -> None:
        acknowledgment = Acknowledgment()
        assert acknowledgment.accept()
        assert not acknowledgment.requeue()
        assert await acknowledgment.settled() is ACCEPT

    asyncio.run(main())
