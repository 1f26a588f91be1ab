"""A bound on what Python allocates in a block, for tests of data that would become large."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def memory_below(limit: int) -> Iterator[None]:
    """Fail if `limit` bytes or more, allocated in the block, are in use at once."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()
