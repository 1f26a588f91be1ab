"""pytest fixtures: a real RocketMQ name server and broker for a test, removed after the test.

::

    def test_orders(rocket_broker):
        producer.set_name_server(rocket_broker.name_server)

pytest imports this module in every run wherever the package is installed, so this module imports nothing heavy.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

__all__ = ["RocketBroker", "RocketBrokerFactory", "rocket_broker", "rocket_broker_factory"]


class RocketBroker(Protocol):
    """A running name server and broker.

    Attributes:
        name_server: Address of the name server, ``127.0.0.1:port``.
        address: Address of the broker.
    """

    name_server: str
    address: str

    def stop(self) -> None:
        """Stop both and wait until they have stopped. Does nothing if they are stopped already."""


class RocketBrokerFactory(Protocol):
    """Starts brokers, and stops those still running at the end of the test."""

    def __call__(self, store: Path | None = None, *, chaos: str | None = None, **settings: str) -> RocketBroker:
        """Return a started broker.

        Args:
            store: Directory of the store; a temporary directory if not given.
            chaos: Faults that the broker injects: ``seed=7,duplicate=1%,reorder=2%,drop-connection=0.5%,delay=20ms``.
                Without a seed one is chosen. A failure of the test shows the seed.
            settings: Settings of the broker, by the keys of ``broker.conf``.
        """


@pytest.fixture
def rocket_broker_factory(request: pytest.FixtureRequest) -> Iterator[RocketBrokerFactory]:
    """Start any number of brokers, each with a name server, on free ports of 127.0.0.1."""
    from rocket_broker.threaded_broker import ThreadedBroker
    from streamkit.chaos import Chaos

    with ExitStack() as running:

        def start(store: Path | None = None, *, chaos: str | None = None, **settings: str) -> RocketBroker:
            faults = None if chaos is None else Chaos.parse(chaos)
            if faults is not None:
                request.node.add_report_section("call", "chaos", f"To repeat it: chaos={str(faults)!r}")
            return running.enter_context(ThreadedBroker(store, settings=settings, chaos=faults))

        yield start


@pytest.fixture
def rocket_broker(rocket_broker_factory: RocketBrokerFactory) -> RocketBroker:
    """A name server (`.name_server`) and a broker (`.address`) with an empty store, for this test alone."""
    return rocket_broker_factory()
