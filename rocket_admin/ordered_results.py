"""Results of the same work on many items, in the order of the items, while some of them are worked on."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from typing import Any, TypeVar

__all__ = ["ordered_results"]

Item = TypeVar("Item")
T = TypeVar("T")


async def ordered_results(
    work: Callable[[Item], Coroutine[Any, Any, T]], items: Iterable[Item], *, at_once: int
) -> AsyncGenerator[T, None]:
    """Yield the result of the work for each item, in the order of the items.

    The work on an item begins when fewer than `at_once` results are under way or waiting to be taken. So a caller gets
    the first result long before the work on the last item begins, and takes as many requests as it has use for.

    Args:
        work: Returns the result of an item. An error of it ends the iteration, and the work on all other items.
        items: The items.
        at_once: How many items are worked on at the same time.
    """
    under_way: deque[asyncio.Task[T]] = deque()
    try:
        for item in items:
            under_way.append(asyncio.create_task(work(item)))
            if len(under_way) == at_once:
                yield await under_way.popleft()
        while under_way:
            yield await under_way.popleft()
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
