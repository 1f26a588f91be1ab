"""The pytest plugin: fixtures for applications on memory and virtual time.

Importing it imports nothing of streamkit; what a fixture needs is imported when a test asks for it.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # every pytest run imports this module, few use it
    from streamkit.application import StreamApplication
    from streamkit.testing.harness import Harness
    from streamkit.testing.virtual_time import VirtualTime


@pytest.fixture
def stream_test() -> "Iterator[Callable[[StreamApplication], Harness]]":
    """Start applications for the test: ``test = stream_test(app)``; they are stopped after it."""
    with ExitStack() as stack:

        def start(app: "StreamApplication", *, strict: bool = False) -> "Harness":
            return stack.enter_context(app.test(strict=strict))

        yield start


@pytest.fixture
def virtual_time() -> "Iterator[VirtualTime]":
    """A virtual-time loop with its clock."""
    from streamkit.testing.virtual_time import VirtualTime

    with VirtualTime() as time:
        yield time
