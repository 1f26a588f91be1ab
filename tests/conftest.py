"""Distributes tests among parallel workers: each alone, but those of one Apache version or database server together."""

import gc
import logging
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import step_clock

# How long something takes is the machine's affair: other tests run beside.
settings.register_profile("streamkit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("streamkit")

MARK_OF_FOLDER = {Path(__file__).parent / mark: mark for mark in ("peer", "spark")}
"""The mark that all tests of a folder have."""
CAPABILITIES = Path(__file__).parents[1] / "docs" / "capabilities.md"
# Tests of stores start brokers of their own anyway.
APACHE_VERSION = re.compile(r"^tests/peer/(?!test_store_|test_pending_).*\[.*?(\d+\.\d+\.\d+)")
DATABASE = re.compile(r"^tests/peer/.*\[.*?(postgresql|mariadb|redis)")


def pytest_configure(config: pytest.Config) -> None:
    """Watch brokers' steps; compare the page of capabilities with the contract cases, unless these are to write it."""
    step_clock.install()
    if config.getoption("--contract-report") is None:
        from streamkit.testing.contract.report import ContractReport

        config.pluginmanager.register(ContractReport(CAPABILITIES, write=False), "capabilities-page")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Set TCP_NODELAY on the socket of the rerun counter.

    With `--reruns`, a worker reports each test and then asks for the count. The second packet would wait up to 40 ms
    for an acknowledgement of the first, longer than most tests take.
    """
    counter = getattr(session.config, "failures_db", None)
    if hasattr(counter, "sock"):
        counter.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the folders that `-m` leaves out: each of pytest's workers would import them and all that they need."""
    mark = MARK_OF_FOLDER.get(collection_path)
    return True if mark is not None and f"not {mark}" in config.getoption("markexpr") else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Exempt tests marked `promise` from CI's retry after a timeout: one lost message is a failure."""
    for item in items:
        if item.get_closest_marker("promise"):
            item.add_marker(pytest.mark.flaky(reruns=0))


def pytest_collection_finish() -> None:
    """Exempt modules and tests from garbage collection: a full one would look at 400,000 objects for 0.3 seconds.

    The collector runs for each 2,000 new objects instead of 700: at that rate it took a twentieth of all tests' time.
    With 10,000 a collection of all generations would take longer than a broker's step may.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000)


@pytest.fixture(autouse=True)
def logging_and_path() -> Iterator[None]:
    """Restore logging and the path, which commands in the test's process change."""
    before, handlers, path = _levels(), list(logging.root.handlers), list(sys.path)
    yield
    sys.path[:] = path
    for handler in set(logging.root.handlers).difference(handlers):
        logging.root.removeHandler(handler)
    for name, level in _levels().items():
        if level != before.get(name, logging.NOTSET):
            logging.getLogger(name).setLevel(before.get(name, logging.NOTSET))


class _SlowSteps(logging.Handler):
    """The records of the watchdog."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message."""
        self.messages.append(record.getMessage())


class SlowStepError(AssertionError):
    """A broker or name server worked for too long in one step.

    `.ci/check` runs such a test once more: a system call takes longer on a busy machine, a defect takes long again.
    """


@pytest.fixture(autouse=True)
def no_client_waits_for_another() -> Iterator[None]:
    """Raise `SlowStepError` after a test in which a step of its broker or name server took more than 50 ms of work."""
    logger, slow = logging.getLogger("rocket_broker.loop.watchdog"), _SlowSteps()
    logger.addHandler(slow)
    yield
    logger.removeHandler(slow)
    if slow.messages:
        raise SlowStepError("; ".join(slow.messages))


def _levels() -> dict[str, int]:
    named = logging.root.manager.loggerDict
    levels = {name: logger.level for name, logger in named.items() if isinstance(logger, logging.Logger)}
    return {"root": logging.root.level, **levels}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Hand out one test at a time, and as one: a group, the peer tests of one Apache version or database server."""
    from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]

    class LoadByVersion(LoadGroupScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            server = APACHE_VERSION.match(nodeid) or DATABASE.match(nodeid)
            return server[1] if server else super()._split_scope(nodeid)

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            # At each end of a test xdist looks at all that its worker was ever given: 10 million looks for 9,500 tests.
            nodeid = self.registered_collections[node][item_index]
            given, scope = self.assigned_work[node], self._split_scope(nodeid)
            given[scope][nodeid] = True
            if all(given[scope].values()):
                del given[scope]
            self._reschedule(node)

    return LoadByVersion(config, log)
