"""One Spark for all tests, and its clusters, each started on first use."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from streamkit.spark import JavaNotFoundError, session
from tests.peer.apache import ApacheBroker
from tests.peer.artifacts import PeersUnavailableError, class_path
from tests.spark.java import SHORT_LIVED
from tests.spark.stand import BUNDLED, Stand, bundled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APACHE = "5.3.3"

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.sql.streaming.pollingDelay": "20ms",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Assign all tests here to one process, for one Spark."""
    for item in items:
        if item.nodeid.startswith("tests/spark/"):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.xdist_group("spark"))
            if item.get_closest_marker("timeout") is None:
                # Cut short, a call to the JVM leaves half an answer behind, which the next test would read.
                item.add_marker(pytest.mark.timeout(400))
            # Spark's gateway leaves its sockets to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """A session with two cores, whose tasks are tried four times."""
    try:
        made = session("tests", master="local[2,4]", low_latency=True, settings=SETTINGS)
    except JavaNotFoundError as error:
        if os.environ.get("STREAMKIT_REQUIRE_PEERS"):
            raise
        pytest.skip(str(error))
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def stands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Stand]]:
    """The running clusters by kind."""
    with ExitStack() as stack:

        class Stands(dict[str, Stand]):
            def __missing__(self, kind: str) -> Stand:
                if kind == BUNDLED:
                    stand = stack.enter_context(bundled(tmp_path_factory.mktemp("bundled")))
                else:
                    broker = stack.enter_context(_apache(kind))
                    stand = Stand(kind, broker.name_server)
                    stack.enter_context(stand.client)
                self[kind] = stand
                return stand

        yield Stands()


@pytest.fixture(params=[BUNDLED, pytest.param(APACHE, marks=pytest.mark.peer)])
def stand(request: pytest.FixtureRequest, stands: dict[str, Stand]) -> Stand:
    """The bundled broker, then Apache's."""
    return stands[request.param]


@pytest.fixture
def bundled_stand(stands: dict[str, Stand]) -> Stand:
    """The bundled broker."""
    return stands[BUNDLED]


@pytest.fixture
def apache_stand(stands: dict[str, Stand]) -> Stand:
    """Apache's broker."""
    return stands[APACHE]


def require_apache(version: str) -> None:
    """Skip the test where Apache's brokers cannot run."""
    try:
        class_path(version)
    except PeersUnavailableError as error:
        if os.environ.get("STREAMKIT_REQUIRE_PEERS"):
            raise
        pytest.skip(f"Apache RocketMQ {version} can't run: {error}")


def _apache(version: str) -> ApacheBroker:
    require_apache(version)
    return ApacheBroker(version)
