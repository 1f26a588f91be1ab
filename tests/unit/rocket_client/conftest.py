"""Fixtures of the client's unit tests."""

from collections.abc import Iterator

import pytest

from streamkit.testing.virtual_time import VirtualTime


@pytest.fixture
def virtual() -> Iterator[VirtualTime]:
    """A loop whose clock jumps when it would wait."""
    with VirtualTime() as time:
        yield time
