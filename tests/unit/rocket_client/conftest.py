"""Fixtures of the client's unit tests."""

from collections.abc import Iterator

import pytest

from streamkit.testing.virtual_time import VirtualTime


@pytest.fixture
def virtual() -> Iterator[VirtualTime]:
    """A loop that advances its clock instead of waiting."""
    with VirtualTime() as time:
        yield time
