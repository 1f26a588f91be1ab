"""The pytest plugin: fixtures for applications with in-memory binders and virtual time.

Importing this module imports nothing else of streamkit; a fixture imports what it needs when a test uses it.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # every pytest run imports this module, and few use it
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
    """Write the report of a contract run, if the option asks for it."""
    path = config.getoption("--contract-report")
    if path is not None:
        from streamkit.testing.contract.report import ContractReport

        config.pluginmanager.register(ContractReport(Path(path), write=True), "streamkit-contract-report")


@pytest.fixture
def stream_test() -> "Iterator[Callable[..., Harness]]":
    """Start applications for the test, as ``app.test()`` does: ``test = stream_test(app, strict=True)``.

    The applications are stopped after the test.
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
