"""The pytest plugin: fixtures for applications on memory and virtual time.

Importing it imports nothing of streamkit; what a fixture needs is imported when a test asks for it.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # every pytest run imports this module, few use it
    from streamkit.application import StreamApplication
    from streamkit.testing.harness import Harness
    from streamkit.testing.virtual_time import VirtualTime


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    parser.getgroup("streamkit").addoption(
        "--contract-report",
        metavar="FILE",
        help="write which cases of streamkit's binder contract held in which environment",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Have the report of a contract run written, if that is asked."""
    path = config.getoption("--contract-report")
    if path is not None:
        from streamkit.testing.contract.report import ContractReport

        config.pluginmanager.register(ContractReport(Path(path), write=True), "streamkit-contract-report")


@pytest.fixture
def stream_test() -> "Iterator[Callable[..., Harness]]":
    """Start applications for the test, as ``app.test()`` does: ``test = stream_test(app, strict=True)``.

    They are stopped after it.
    """
    with ExitStack() as stack:

        def start(app: "StreamApplication", **options: Any) -> "Harness":
            return stack.enter_context(app.test(**options))

        yield start


@pytest.fixture
def virtual_time() -> "Iterator[VirtualTime]":
    """A virtual-time loop with its clock."""
    from streamkit.testing.virtual_time import VirtualTime

    with VirtualTime() as time:
        yield time
