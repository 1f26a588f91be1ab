"""Orders from a shop to its stock, over the outbox, while everything between them is killed.

::

    shop ×1, relay ×1      one database, and a row of the outbox for each order; the shop relays, too
    broker                 the bundled one
    stock ×1               other tables of that database
    kill -9                of any of these, while orders are on their way; the next one is started at once
    kill of connections    all that the database has, by the server's own commands
    SIGSTOP                of the relay, for longer than its lease

In the end each order that the shop has taken is reserved, once, and the outbox knows that.
"""

import json
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from multiprocessing.process import BaseProcess
from random import Random
from typing import Any

from sqlalchemy import Select, func, select

from streamkit.patterns.outbox.status import MessageStatus
from streamkit.patterns.outbox.tables import CONSUMER_TABLES, PRODUCER_TABLES, ProducerMessage
from tests.outbox_campaign.services import LEASE_SECONDS, Place, Reserved, Taken, serve
from tests.outbox_campaign.stage import LEVELS, Stage, end, send
from tests.outbox_campaign.warm_processes import start

STOPPED_SECONDS = 1.5 * LEASE_SECONDS
PATIENCE_SECONDS = 240.0


@dataclass
class Report:
    """What happened.

    Attributes:
        database: One of `LEVELS`.
        level: The isolation level of the transactions.
        seed: Of all random choices.
        kills: How often each was killed or stopped, or ended by itself because it could not start without the others.
        orders: How many orders were taken.
        sent_again: How many sends the outbox has repeated because the consumer did not know the message.
        seconds: How long it took.
        wrong: How many orders are missing on either side, or were reserved more than once.
        problems: Broken promises; empty, if all is well.
        logs: The ends of the services' logs, if a promise is broken.
    """

    database: str
    level: str
    seed: int
    kills: dict[str, int] = field(default_factory=dict)
    orders: int = 0
    sent_again: int = 0
    seconds: float = 0.0
    wrong: int = 0
    problems: list[str] = field(default_factory=list)
    logs: dict[str, str] = field(default_factory=dict, repr=False)


class Campaign:
    """One run on a stage."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self._stage = stage
        self._random = Random(seed)
        levels = LEVELS[stage.kind]  # taken in turn by runs with one seed after the other
        self.report = Report(stage.kind, levels[seed % len(levels)], seed)
        self._services: dict[str, BaseProcess] = {}
        self._deadline = 0.0

    def run(self, orders: int, kills: int) -> Report:
        """Take the orders, kill so often, and return what was found."""
        begun = time.monotonic()
        self._deadline = begun + PATIENCE_SECONDS
        self._orders = orders
        with ExitStack() as stack:
            name = self._stage.next_name()
            database = stack.enter_context(self._stage.database(name))
            self._engine = database.engine
            for table in (*PRODUCER_TABLES, *CONSUMER_TABLES, Taken.__table__, Reserved.__table__):
                table.create(self._engine)  # type: ignore[attr-defined]
            self._place = Place(database.url, self.report.level, self._stage.name_server, name)
            stack.callback(self._end_services)
            for role in ("stock", "shop", "relay"):
                self._start(role)
            attacks: list[Callable[[], None]] = [self._kill_service, self._kill_service, self._kill_broker]
            attacks += [self._stop_relay]
            if database.has_connections:
                self._database = database
                attacks += [self._kill_connections, self._kill_connections]
            for moment in sorted(self._random.randrange(orders) for _ in range(kills)):
                self._await_progress(moment)
                self._random.choice(attacks)()
            self._await_end()
            self._compare(orders)
        self.report.seconds = round(time.monotonic() - begun, 1)
        return self.report

    # What is killed

    def _start(self, role: str) -> None:
        log = self._stage.directory / f"{self._place.namespace}-{role}.log"
        self._services[role] = start(serve, role, self._place, self._orders, log=log)

    def _count(self, what: str) -> None:
        self.report.kills[what] = self.report.kills.get(what, 0) + 1

    def _kill_service(self) -> None:
        role = self._random.choice(["shop", "relay", "stock"])
        end(self._services.pop(role))
        self._count(role)
        self._start(role)

    def _replace_ended(self) -> None:
        """Start the next of each service that has ended by itself, as a supervisor would."""
        for role, service in self._services.items():
            if not service.is_alive():
                end(service)
                self._count(f"{role} ended by itself")
                self._start(role)

    def _kill_broker(self) -> None:
        self._count("broker")
        self._stage.kill_broker()

    def _kill_connections(self) -> None:
        self._count("connections")
        self._database.kill_connections()

    def _stop_relay(self) -> None:
        self._count("relay stopped")
        send(self._services["relay"], signal.SIGSTOP)
        time.sleep(STOPPED_SECONDS)
        send(self._services["relay"], signal.SIGCONT)

    def _end_services(self) -> None:
        for service in self._services.values():
            end(service)

    # How far it is

    def _await_progress(self, orders: int) -> None:
        """Wait until more than so many orders are taken, or reserved, and a random while."""
        table = self._random.choice([Taken, Reserved])
        pause = self._random.uniform(0.0, 0.2)
        self._await(select(func.count()).select_from(table), orders + 1)
        time.sleep(pause)

    def _await_end(self) -> None:
        """Wait until every order is taken and confirmed."""
        confirmed = select(func.count()).where(ProducerMessage.message_status == str(MessageStatus.CONSUMED))
        if not self._await(confirmed, self._orders):
            self.report.problems.append(f"not every order is confirmed after {PATIENCE_SECONDS:g} s")

    def _await(self, count: Select[Any], least: int) -> bool:
        """Wait until a count is reached; return whether that came before the deadline of the run."""
        while time.monotonic() < self._deadline:
            self._replace_ended()
            with self._engine.connect() as connection:
                if (connection.scalar(count) or 0) >= least:
                    return True
            time.sleep(0.02)
        return False

    # What was promised

    def _compare(self, orders: int) -> None:
        with self._engine.connect() as connection:
            taken = sorted(connection.scalars(select(Taken.number)))
            reserved = sorted(connection.scalars(select(Reserved.number)))
            self.report.sent_again = int(connection.scalar(select(func.sum(ProducerMessage.send_times))) or 0)
        self.report.orders = len(taken)
        if taken != list(range(orders)):
            self.report.problems.append(f"{len(taken)} of {orders} orders were taken")
        missing, unasked = set(taken) - set(reserved), set(reserved) - set(taken)
        twice = {number for number, count in Counter(reserved).items() if count > 1}
        self.report.wrong = len(missing | unasked | twice)
        if missing:
            self.report.problems.append(f"orders were taken and not reserved: {sorted(missing)[:10]}")
        if twice:
            self.report.problems.append(f"orders were reserved more than once: {sorted(twice)[:10]}")
        if unasked:
            self.report.problems.append(f"orders were reserved and not taken: {sorted(unasked)[:10]}")
        if self.report.problems:
            logs = [
                *self._stage.directory.glob(f"{self._place.namespace}-*.log"),
                *self._stage.directory.glob("broker.log"),
            ]
            self.report.logs = {log.name: log.read_text(errors="replace")[-2000:] for log in sorted(logs)}


def as_json(reports: list[Report]) -> str:
    """Return the reports as JSON."""
    return json.dumps([asdict(report) for report in reports], indent=1)
