"""A database server and a broker that many runs of the campaign share, one after the other.

Each run has a database, and topics and groups, of its own.
"""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Self

from sqlalchemy import Engine, create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from tests.end_to_end.broker_process import PATIENT, START_SECONDS, ServerProcess
from tests.outbox_campaign.services import serve_broker
from tests.outbox_campaign.warm_processes import start
from tests.ports import free_ports

LEVELS = {
    "postgresql": ("default", "READ_COMMITTED", "REPEATABLE_READ", "SERIALIZABLE"),
    "mariadb": ("default", "READ_UNCOMMITTED", "READ_COMMITTED", "REPEATABLE_READ", "SERIALIZABLE"),
    "sqlite": ("default",),
}
"""The databases, and the isolation levels of the sender's and the consumer's transactions."""
BLOCKING = {"postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql", "sqlite": "sqlite"}
ASYNCHRONOUS = {"postgresql": "postgresql+asyncpg", "mariadb": "mariadb+aiomysql", "sqlite": "sqlite+aiosqlite"}
CONNECTIONS = {
    "postgresql": "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"
    " and datname = current_database()",
    "mariadb": "select id from information_schema.processlist where id <> connection_id() and db = database()",
}
_SERVES = re.compile(rb"The broker\[[^\]]+\] boot success")


class Database:
    """The database of one run.

    Attributes:
        url: With an asynchronous driver.
        engine: A blocking one, whose statements are committed at once.
    """

    def __init__(self, kind: str, url: str) -> None:
        self._kind = kind
        made = make_url(url)
        self.url = made.set(drivername=ASYNCHRONOUS[kind]).render_as_string(hide_password=False)
        self.engine = _engine(kind, url)
        if kind == "sqlite":
            with self.engine.connect() as connection:
                connection.execute(text("pragma journal_mode=wal"))

    @property
    def has_connections(self) -> bool:
        """Return whether it is on a server, which can end connections."""
        return self._kind in CONNECTIONS

    def kill_connections(self) -> None:
        """End all connections to it but one, by the server's own commands."""
        with self.engine.connect() as connection:
            found = connection.execute(text(CONNECTIONS[self._kind])).scalars().all()
            if self._kind == "mariadb":
                for id_ in found:
                    try:
                        connection.execute(text(f"kill {int(id_)}"))
                    except DBAPIError:
                        pass  # it ended by itself


class Stage:
    """The servers of runs on one database, while the context lasts.

    Attributes:
        kind: The database, one of `LEVELS`.
        directory: For what the servers and runs write.
        name_server: Its address.
    """

    def __init__(self, directory: Path, kind: str, server: str) -> None:
        """Start nothing yet.

        Args:
            directory: See the attribute.
            kind: See the attribute.
            server: The URL of a database of a running server; for SQLite nothing.
        """
        self.kind = kind
        self.directory = directory
        self.name_server = ""
        self._server = server
        self._runs = 0
        self._broker: BaseProcess | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Start name server and broker."""
        with ExitStack() as stack:
            name_server = ServerProcess("namesrv", "-p", "0", cwd=self.directory)
            stack.callback(name_server.end)
            self.name_server = name_server.address()
            self._write_broker_settings()
            stack.callback(self._end_broker)
            self._start_broker()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End them."""
        self._stack.close()

    def next_name(self) -> str:
        """Return a name that no other run has."""
        self._runs += 1
        return f"run{self._runs}"

    @contextmanager
    def database(self, name: str) -> Iterator[Database]:
        """Make an empty database."""
        if self.kind == "sqlite":
            url = f"sqlite:///{self.directory}/{name}.db"
        else:
            engine = _engine(self.kind, self._server)
            with engine.connect() as connection:
                connection.execute(text(f"create database {name}"))
            engine.dispose()
            url = make_url(self._server).set(database=name).render_as_string(hide_password=False)
        database = Database(self.kind, url)
        try:
            yield database
        finally:
            database.engine.dispose()

    def kill_broker(self) -> None:
        """Kill the broker and start the next, which continues its store."""
        self._end_broker()
        self._start_broker()

    def _write_broker_settings(self) -> None:
        keys = {
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "listenPort": str(free_ports()[1]),
            "storePathRootDir": str(self.directory / "store"),
            "mappedFileSizeCommitLog": str(4 * 1024 * 1024),
            "diskSpaceWarningLevelRatio": "100",
            "cleanFileForciblyEnable": "false",
            **PATIENT,
        }
        self._settings = self.directory / "broker.conf"
        self._settings.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))

    def _start_broker(self) -> None:
        log = self.directory / "broker.log"
        before = log.stat().st_size if log.exists() else 0
        self._broker = start(serve_broker, str(self._settings), self.name_server, log=log)
        deadline = time.monotonic() + START_SECONDS
        while not (log.exists() and _SERVES.search(log.read_bytes()[before:])):
            if not self._broker.is_alive() or time.monotonic() > deadline:
                raise OSError(f"the broker does not serve:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)

    def _end_broker(self) -> None:
        if self._broker is not None:
            end(self._broker)


def end(process: BaseProcess) -> None:
    """Kill a process, stopped or not, and wait until it is gone."""
    process.kill()
    process.join()
    process.close()


def stop(process: BaseProcess) -> None:
    """Stop a process, and wait until all of its threads stand still."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{process.pid}/task")
    while any(task.joinpath("stat").read_text().rpartition(")")[2].split()[0] != "T" for task in tasks.iterdir()):
        time.sleep(0.001)


def resume(process: BaseProcess) -> None:
    """Continue a stopped process, with SIGCONT."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGCONT)


def _engine(kind: str, url: str) -> Engine:
    drivers = make_url(url).set(drivername=BLOCKING[kind])
    return create_engine(drivers, pool_pre_ping=True, isolation_level="AUTOCOMMIT")
