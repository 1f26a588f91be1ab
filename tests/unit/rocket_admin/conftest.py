"""One embedded broker for all tests of a module, and the commands run against it."""

from collections.abc import Callable, Iterator

import pytest

from rocket_broker.threaded_broker import ThreadedBroker
from tests.unit.rocket_admin.terminal import Terminal


@pytest.fixture(scope="module")
def broker() -> Iterator[ThreadedBroker]:
    """A broker of the module's own."""
    with ThreadedBroker() as broker:
        yield broker


@pytest.fixture
def terminal(broker: ThreadedBroker) -> Terminal:
    """Commands against that broker."""
    return Terminal(broker.name_server)


@pytest.fixture
def terminal_of() -> Callable[[str], Terminal]:
    """Commands against any name server."""
    return Terminal
