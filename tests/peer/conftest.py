"""Fixtures of the peer tests: Apache's broker, Apache's Java client, and the two together; Kafka.

Each is started when first asked for and lives as long as the session: a JVM takes seconds to start.
"""

import os
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack

import pytest

from rocket_broker.threaded_broker import ThreadedBroker
from tests.contract.rocket_environment import MANY_CHECKS
from tests.peer.apache import ApacheBroker
from tests.peer.artifacts import (
    GENERATIONS,
    KAFKA_BINDERS,
    KAFKA_VERSION,
    SPRING_KAFKA,
    VERSIONS,
    PeersUnavailableError,
    class_path,
)
from tests.peer.database_servers import SERVERS
from tests.peer.go_client import VERSION as GO_VERSION
from tests.peer.go_client import GoClient
from tests.peer.java_client import JavaClient
from tests.peer.kafka import SOON_BACK, KafkaServer
from tests.peer.secured_kafka import SecuredKafka
from tests.peer.spring_apps import SpringPeer
from tests.peer.spring_on_kafka import SpringOnKafka
from tests.peer.spring_stage import SpringStage
from tests.peer.stage import DELAY_LEVELS, Stage

SETTINGS = {
    "messageDelayLevel": DELAY_LEVELS,
    # Transactions are checked soon and without a limit; tests of the limit use `few_checks`.
    "transactionTimeOut": "500",
    "transactionCheckInterval": "500",
    "transactionCheckMax": MANY_CHECKS,
    # 5.x records the ends of transactions at this interval; until then it may check and deliver them twice.
    "transactionOpBatchInterval": "50",
}


def of_version(version: str, *more: str) -> object:
    """Return a fixture parameter that names the version, by which parallel workers share the tests."""
    value = (version, *more) if more else version
    return pytest.param(value, marks=pytest.mark.peer, id="-on-".join((f"java{version}", *more)) if more else version)


class Peers:
    """Apache's programs of each version, started when first asked for."""

    def __init__(self, stack: ExitStack) -> None:
        """Start nothing yet; `stack` ends what is started."""
        self._stack = stack
        self._brokers: dict[str, ApacheBroker] = {}
        self._clients: dict[str, JavaClient] = {}
        self._springs: dict[str, SpringPeer] = {}
        self._bundled: ThreadedBroker | None = None
        self._kafka: KafkaServer | None = None

    def broker(self, version: str) -> ApacheBroker:
        """Return Apache's broker of a version."""
        if version not in self._brokers:
            require(version)
            broker = ApacheBroker(version, settings=SETTINGS)
            self._brokers[version] = self._stack.enter_context(broker)
        return self._brokers[version]

    def client(self, version: str) -> JavaClient:
        """Return Apache's Java client of a version."""
        if version not in self._clients:
            require(version)
            self._clients[version] = self._stack.enter_context(JavaClient(version))
        return self._clients[version]

    def spring(self, generation: str) -> SpringPeer:
        """Return a JVM for Spring's applications, of a generation of Alibaba's binder or a version of Kafka's."""
        if generation not in self._springs:
            require(generation)
            self._springs[generation] = self._stack.enter_context(SpringPeer(generation))
        return self._springs[generation]

    def bundled(self) -> ThreadedBroker:
        """Return our own broker, on free ports."""
        if self._bundled is None:
            self._bundled = self._stack.enter_context(ThreadedBroker(settings=SETTINGS))
        return self._bundled

    def kafka(self) -> KafkaServer:
        """Return Apache Kafka's broker; tests that stop it start one of their own."""
        if self._kafka is None:
            require(KAFKA_VERSION)
            self._kafka = self._stack.enter_context(KafkaServer())
        return self._kafka

    def logs(self) -> Iterator[tuple[str, str]]:
        """Yield what each foreign process logged last, under a name for it."""
        processes = [*self._brokers.values(), *self._clients.values(), *self._springs.values()]
        for process in [*processes, *([self._kafka] if self._kafka else [])]:
            yield repr(process), process.log()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests here `peer`, and allow each 300 s by default, because it may start several JVMs."""
    for item in items:
        if item.nodeid.startswith("tests/peer/"):
            item.add_marker(pytest.mark.peer)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach to a failure what the foreign processes logged."""
    report = yield
    peers = getattr(item, "funcargs", {}).get("peers")
    if report.failed and isinstance(peers, Peers):
        report.sections += [(f"log of {name}", text) for name, text in peers.logs()]
    return report


def require(version: str) -> None:
    """Skip the test when a foreign program can't run here; fail it where `STREAMKIT_REQUIRE_PEERS` is set."""
    try:
        class_path(version)
    except PeersUnavailableError as error:
        if os.environ.get("STREAMKIT_REQUIRE_PEERS"):
            raise
        pytest.skip(f"version {version} of a foreign program can't run: {error}")


@pytest.fixture(scope="session")
def peers() -> Iterator[Peers]:
    """Apache's programs of this session."""
    with ExitStack() as stack:
        yield Peers(stack)


@pytest.fixture(params=[of_version(version) for version in VERSIONS])
def apache_broker(request: pytest.FixtureRequest, peers: Peers) -> ApacheBroker:
    """Apache's broker, of each version in turn; its delay levels are those of `DELAY_LEVELS`."""
    return peers.broker(request.param)


@pytest.fixture(params=[of_version(f"kafka{KAFKA_VERSION}")])
def kafka_server(peers: Peers) -> KafkaServer:
    """Apache Kafka's broker, one for all tests."""
    return peers.kafka()


@pytest.fixture
def kafka_server_of_its_own() -> Iterator[KafkaServer]:
    """A Kafka broker that the test may stop, kill and start; mark such tests `peer`."""
    require(KAFKA_VERSION)
    with KafkaServer(settings=SOON_BACK) as server:
        yield server


@pytest.fixture(scope="session", params=[of_version(f"kafka{KAFKA_VERSION}")])
def secured_kafka() -> Iterator[SecuredKafka]:
    """A Kafka broker that wants to know who calls, one for all tests."""
    require(KAFKA_VERSION)
    with SecuredKafka() as server:
        yield server


@pytest.fixture
def java_client(peers: Peers) -> Callable[[str], JavaClient]:
    """Apache's Java client of a version."""
    return peers.client


@pytest.fixture
def apache_broker_factory() -> Iterator[Callable[..., ApacheBroker]]:
    """Start Apache brokers of a version with other settings, by `ApacheBroker`'s arguments."""
    with ExitStack() as stack:

        def start(version: str, **arguments: object) -> ApacheBroker:
            require(version)
            return stack.enter_context(ApacheBroker(version, **arguments))  # type: ignore[arg-type]

        yield start


@pytest.fixture(params=[of_version(version, kind) for version in VERSIONS for kind in ("apache", "bundled")])
def stage(request: pytest.FixtureRequest, peers: Peers) -> Iterator[Stage]:
    """Apache's Java client of each version before Apache's broker of that version, then before ours."""
    version, kind = request.param
    client = peers.client(version)
    broker = peers.broker(version) if kind == "apache" else peers.bundled()
    with Stage(client, broker.name_server, broker.address) as stage:
        yield stage


@pytest.fixture(scope="session")
def go_client() -> Iterator[GoClient]:
    """The Go client; its tests are skipped without Go on the machine, unless peers are required."""
    try:
        client = GoClient()
    except PeersUnavailableError as error:
        if os.environ.get("STREAMKIT_REQUIRE_PEERS"):
            raise
        pytest.skip(f"rocketmq-client-go {GO_VERSION} can't run: {error}")
    with client:
        yield client


def of_generation(generation: str, kind: str) -> object:
    """Return a fixture parameter that names the generation, by which parallel workers share the tests."""
    return pytest.param((generation, kind), marks=pytest.mark.peer, id=f"spring{generation}-on-{kind}")


@pytest.fixture(params=[of_generation(each, kind) for each in GENERATIONS for kind in ("apache", "bundled")])
def spring_stage(request: pytest.FixtureRequest, peers: Peers) -> Iterator[SpringStage]:
    """Spring Cloud Alibaba of each generation beside streamkit, on Apache's broker of its age, then on ours."""
    with spring_on(peers, *request.param) as stage:
        yield stage


@pytest.fixture(params=[of_generation(GENERATIONS[0], kind) for kind in ("apache", "bundled")])
def book(request: pytest.FixtureRequest, peers: Peers) -> Iterator[SpringStage]:
    """The book's generation beside streamkit, on Apache's broker, then on ours."""
    with spring_on(peers, *request.param) as stage:
        yield stage


def spring_on(peers: Peers, generation: str, kind: str) -> SpringStage:
    """Return a stage of a generation before a broker of that kind."""
    age = VERSIONS[-1] if generation == GENERATIONS[-1] else VERSIONS[0]
    broker = peers.broker(age) if kind == "apache" else peers.bundled()
    return SpringStage(peers.spring(generation), broker.name_server)


@pytest.fixture(
    params=[
        pytest.param(version, marks=pytest.mark.peer, id=f"kafka{KAFKA_VERSION}-spring{version}")
        for version in KAFKA_BINDERS
    ]
)
def spring_on_kafka(request: pytest.FixtureRequest, peers: Peers) -> Iterator[SpringOnKafka]:
    """Spring Cloud Stream of each version beside streamkit, on one Kafka broker."""
    peer = peers.spring(SPRING_KAFKA[request.param])
    with SpringOnKafka(peer, peers.kafka().address) as stage:
        yield stage


def database(name: str) -> object:
    """Return a fixture parameter that names a database server, by which parallel workers share the tests."""
    return pytest.param(name, marks=pytest.mark.peer, id=name)


def served(name: str) -> Iterator[str]:
    """Start a database server and yield its URL, without a driver; skip the test where the server can't be had."""
    try:
        server = SERVERS[name]()
    except PeersUnavailableError as error:
        if os.environ.get("STREAMKIT_REQUIRE_PEERS"):
            raise
        pytest.skip(f"{name} can't run: {error}")
    with server:
        yield server.url


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """The URL of a PostgreSQL database for tests that are marked `peer`."""
    yield from served("postgresql")


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[str]:
    """The URL of a MariaDB database for tests that are marked `peer`."""
    yield from served("mariadb")


@pytest.fixture(scope="session")
def redis_server() -> Iterator[str]:
    """The URL of a Redis server for tests that are marked `peer`."""
    yield from served("redis")


@pytest.fixture(params=[database("postgresql")])
def postgresql(postgresql_server: str) -> str:
    """The URL of a PostgreSQL database, one for all tests: `postgresql://…`, to be completed with a driver."""
    return postgresql_server


@pytest.fixture(params=[database("mariadb")])
def mariadb(mariadb_server: str) -> str:
    """The URL of a MariaDB database, one for all tests: `mariadb://…`, to be completed with a driver."""
    return mariadb_server


@pytest.fixture(params=[database("redis")])
def redis(redis_server: str) -> str:
    """The URL of a Redis server, one for all tests."""
    return redis_server
