"""Orders from a shop to its stock, over the outbox, while everything between them is killed.

::

    shop ×1, relay ×1      one database, and a row of the outbox for each order
    broker                 the bundled one
    stock ×1               a database of its own, or other tables of the same server
    kill -9                of any of these, after a random while; the next one is started at once
    kill of connections    all that the databases have, by the databases' own commands
    SIGSTOP                of the relay, for longer than its lease

In the end each order that the shop has taken is reserved, once, and the outbox knows that.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

from sqlalchemy import Engine, create_engine, func, select, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from streamkit.patterns.outbox.status import MessageStatus
from streamkit.patterns.outbox.tables import CONSUMER_TABLES, PRODUCER_TABLES, ProducerMessage
from tests.end_to_end.broker_process import PATIENT, ServerProcess
from tests.outbox_campaign.services import Reserved, Taken
from tests.peer.database_servers import SERVERS
from tests.ports import free_ports

LEVELS = {
    "postgresql": ("default", "READ_COMMITTED", "REPEATABLE_READ", "SERIALIZABLE"),
    "mariadb": ("default", "READ_COMMITTED", "REPEATABLE_READ", "SERIALIZABLE"),
    "sqlite": ("default",),
}
"""The databases, and the isolation levels of the sender's and the consumer's transactions."""
BLOCKING = {"postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql", "sqlite": "sqlite"}
ASYNCHRONOUS = {"postgresql": "postgresql+asyncpg", "mariadb": "mariadb+aiomysql", "sqlite": "sqlite+aiosqlite"}
CONNECTIONS = {
    "postgresql": "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"
    " and backend_type = 'client backend'",
    "mariadb": "select id from information_schema.processlist where id <> connection_id() and user = 'root'",
}
STOPPED_SECONDS = 4.0
"""Twice the lease."""
PATIENCE_SECONDS = 300.0


@dataclass
class Report:
    """What happened.

    Attributes:
        database: One of `LEVELS`.
        level: The isolation level of the transactions.
        seed: Of all random choices.
        kills: How often each was killed or stopped.
        orders: How many orders were taken.
        sent_again: How many sends the outbox has repeated because the consumer did not know the message.
        seconds: How long it took.
        problems: Broken promises; empty, if all is well.
    """

    database: str
    level: str
    seed: int
    kills: dict[str, int] = field(default_factory=dict)
    orders: int = 0
    sent_again: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


class Campaign:
    """One run on one database."""

    def __init__(self, directory: Path, database: str, seed: int) -> None:
        self._directory = directory
        self._random = Random(seed)
        self.report = Report(database, self._random.choice(LEVELS[database]), seed)
        self._services: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, orders: int, kills: int) -> Report:
        """Take the orders, kill so often, and return what was found."""
        begun = time.monotonic()
        with ExitStack() as stack:
            self._stack = stack
            self._url = self._start_database()
            self._engine = self._prepare_tables()
            name_server = ServerProcess("namesrv", "-p", "0", cwd=self._directory)
            stack.callback(name_server.end)
            self._name_server = name_server.address()
            self._write_broker_settings()
            self._start_broker()
            stack.callback(self._end_services)
            self._orders = orders
            for role in ("stock", "shop", "relay"):
                self._start(role)
            attacks: list[Callable[[], None]] = [self._kill_service, self._kill_service, self._kill_broker]
            attacks += [self._stop_relay]
            if self.report.database in CONNECTIONS:
                attacks += [self._kill_connections, self._kill_connections]
            for _ in range(kills):
                time.sleep(self._random.uniform(0.1, 4.0))
                self._random.choice(attacks)()
            self._await_end(orders)
            self._compare(orders)
        self.report.seconds = round(time.monotonic() - begun, 1)
        return self.report

    # What is killed

    def _start_database(self) -> str:
        if self.report.database == "sqlite":
            return f"sqlite:///{self._directory}/shop.db"
        return self._stack.enter_context(SERVERS[self.report.database]()).url

    def _prepare_tables(self) -> Engine:
        url = make_url(self._url).set(drivername=BLOCKING[self.report.database])
        engine = create_engine(url, pool_pre_ping=True, isolation_level="AUTOCOMMIT")
        self._stack.callback(engine.dispose)
        for table in (*PRODUCER_TABLES, *CONSUMER_TABLES, Taken.__table__, Reserved.__table__):
            table.create(engine)  # type: ignore[attr-defined]
        if self.report.database == "sqlite":
            with engine.connect() as connection:
                connection.execute(text("pragma journal_mode=wal"))
        return engine

    def _write_broker_settings(self) -> None:
        keys = {
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "listenPort": str(free_ports()[1]),
            "storePathRootDir": str(self._directory / "store"),
            "mappedFileSizeCommitLog": str(4 * 1024 * 1024),
            "diskSpaceWarningLevelRatio": "100",
            "cleanFileForciblyEnable": "false",
            **PATIENT,
        }
        self._conf = self._directory / "broker.conf"
        self._conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))

    def _start_broker(self) -> None:
        self._broker = ServerProcess("broker", "-c", str(self._conf), "-n", self._name_server, cwd=self._directory)
        self._stack.callback(self._broker.end)
        self._broker.address()

    def _start(self, role: str) -> None:
        url = make_url(self._url).set(drivername=ASYNCHRONOUS[self.report.database])
        log = (self._directory / f"{role}.log").open("ab")
        with log:
            self._services[role] = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.outbox_campaign.services",
                    role,
                    url.render_as_string(hide_password=False),
                    self._name_server,
                    self.report.level,
                    str(self._orders),
                ],
                stdin=subprocess.PIPE,
                stderr=log,
            )

    def _count(self, what: str) -> None:
        self.report.kills[what] = self.report.kills.get(what, 0) + 1

    def _kill_service(self) -> None:
        role = self._random.choice(["shop", "relay", "stock"])
        self._services[role].kill()
        self._services[role].communicate()
        self._count(role)
        self._start(role)

    def _kill_broker(self) -> None:
        self._broker.signal(signal.SIGKILL)
        self._count("broker")
        self._start_broker()

    def _kill_connections(self) -> None:
        self._count("connections")
        with self._engine.connect() as connection:
            found = connection.execute(text(CONNECTIONS[self.report.database])).scalars().all()
            if self.report.database == "mariadb":
                for id_ in found:
                    try:
                        connection.execute(text(f"kill {int(id_)}"))
                    except DBAPIError:
                        pass  # it ended by itself

    def _stop_relay(self) -> None:
        self._count("relay stopped")
        self._services["relay"].send_signal(signal.SIGSTOP)
        time.sleep(STOPPED_SECONDS)
        self._services["relay"].send_signal(signal.SIGCONT)

    def _end_services(self) -> None:
        for service in self._services.values():
            service.communicate()

    # What was promised

    def _await_end(self, orders: int) -> None:
        """Wait until every order is taken and confirmed."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        confirmed = select(func.count()).where(ProducerMessage.message_status == str(MessageStatus.CONSUMED))
        while time.monotonic() < deadline:
            with self._engine.connect() as connection:
                if connection.scalar(confirmed) == orders:
                    return
            time.sleep(0.2)
        self.report.problems.append(f"not every order is confirmed after {PATIENCE_SECONDS:g} s")

    def _compare(self, orders: int) -> None:
        with self._engine.connect() as connection:
            taken = sorted(connection.scalars(select(Taken.number)))
            reserved = sorted(connection.scalars(select(Reserved.number)))
            self.report.sent_again = connection.scalar(select(func.sum(ProducerMessage.send_times))) or 0
        self.report.orders = len(taken)
        if taken != list(range(orders)):
            self.report.problems.append(f"{len(taken)} of {orders} orders were taken")
        missing, twice = set(taken) - set(reserved), {each for each in reserved if reserved.count(each) > 1}
        if missing:
            self.report.problems.append(f"orders were taken and not reserved: {sorted(missing)[:10]}")
        if twice:
            self.report.problems.append(f"orders were reserved more than once: {sorted(twice)[:10]}")
        if set(reserved) - set(taken):
            self.report.problems.append("orders were reserved and not taken")


def as_json(reports: list[Report]) -> str:
    """Return the reports as JSON."""
    return json.dumps([asdict(report) for report in reports], indent=1)
