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

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from random import Random
from typing import NamedTuple

from sqlalchemy import func, select

from streamkit.patterns.outbox.status import MessageStatus
from streamkit.patterns.outbox.tables import CONSUMER_TABLES, PRODUCER_TABLES, ProducerMessage
from tests.outbox_campaign.services import LEASE_SECONDS, Place, Reserved, Taken, serve
from tests.outbox_campaign.stage import LEVELS, Stage, end, resume, stop
from tests.outbox_campaign.warm_processes import start

STOPPED_SECONDS = 1.5 * LEASE_SECONDS
PATIENCE_SECONDS = 120.0
"""The longest time without progress; a loaded machine is slow, but does not stand still."""
LONGEST_SECONDS = 1200.0
LOOK_SECONDS = 0.05


class Progress(NamedTuple):
    """How many orders are taken, reserved, and confirmed by the stock."""

    taken: int
    reserved: int
    confirmed: int


_PROGRESS = select(
    select(func.count()).select_from(Taken).scalar_subquery(),
    select(func.count()).select_from(Reserved).scalar_subquery(),
    select(func.count())
    .where(ProducerMessage.message_status == str(MessageStatus.CONSUMED))
    .select_from(ProducerMessage)
    .scalar_subquery(),
)


@dataclass
class Report:
    """What happened.

    Attributes:
        database: One of `LEVELS`.
        level: The isolation level of the transactions.
        seed: Of all random choices.
        asked: How many orders were to be taken.
        day: When it ended, such as 2026-11-26.
        revision: The commit of the checkout.
        kills: How often each was killed or stopped, or ended by itself because it could not start without the others.
        orders: How many orders were taken.
        sent_again: How many sends the outbox has repeated because the consumer did not know the message.
        seconds: How long it took.
        pause: The longest time, in seconds, in which no order was taken, reserved or confirmed.
        pause_after: What was killed last before that.
        wrong: How many orders are missing on either side, or were reserved more than once.
        problems: Broken promises; empty, if all is well.
        logs: The ends of the services' logs, if a promise is broken.
    """

    database: str
    level: str
    seed: int
    asked: int = 0
    day: str = ""
    revision: str = ""
    kills: dict[str, int] = field(default_factory=dict)
    orders: int = 0
    sent_again: int = 0
    seconds: float = 0.0
    pause: float = 0.0
    pause_after: str = ""
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
        self._begun = 0.0
        self._last_kill = "the start"
        self._progress = Progress(0, 0, 0)
        self._progress_at = 0.0

    def run(self, orders: int, kills: int) -> Report:
        """Take the orders, kill so often, and return what was found."""
        self._begun = self._progress_at = time.monotonic()
        self._orders = self.report.asked = orders
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
        self.report.seconds = round(time.monotonic() - self._begun, 1)
        self.report.pause = round(self.report.pause, 1)
        return self.report

    # What is killed

    def _start(self, role: str) -> None:
        log = self._stage.directory / f"{self._place.namespace}-{role}.log"
        self._services[role] = start(serve, role, self._place, self._orders, log=log)

    def _count(self, what: str) -> None:
        self.report.kills[what] = self.report.kills.get(what, 0) + 1
        self._last_kill = what

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
        stop(self._services["relay"])
        time.sleep(STOPPED_SECONDS)
        resume(self._services["relay"])

    def _end_services(self) -> None:
        for service in self._services.values():
            end(service)

    # How far it is

    def _await_progress(self, orders: int) -> None:
        """Wait until more than so many orders are taken, or reserved, and a random while."""
        wants_reserved = self._random.choice([False, True])
        pause = self._random.uniform(0.0, 0.2)
        self._await(lambda progress: (progress.reserved if wants_reserved else progress.taken) > orders)
        time.sleep(pause)

    def _await_end(self) -> None:
        """Wait until every order is taken and confirmed."""
        if not self._await(lambda progress: progress.confirmed >= self._orders):
            seconds = time.monotonic() - self._begun
            self.report.problems.append(f"{self._progress.confirmed} orders are confirmed after {seconds:.0f} s")

    def _await(self, is_reached: Callable[[Progress], bool]) -> bool:
        """Wait until orders have come so far; return False if there is no progress, or none that leads there."""
        while True:
            self._replace_ended()
            if is_reached(self._look()):
                return True
            now = time.monotonic()
            if now - self._progress_at > PATIENCE_SECONDS or now - self._begun > LONGEST_SECONDS:
                return False
            time.sleep(LOOK_SECONDS)

    def _look(self) -> Progress:
        """Return how far the orders are, and note the longest time without progress."""
        with self._engine.connect() as connection:
            progress = Progress(*connection.execute(_PROGRESS).one())
        now = time.monotonic()
        if now - self._progress_at > self.report.pause:
            self.report.pause, self.report.pause_after = now - self._progress_at, self._last_kill
        if progress != self._progress:
            self._progress, self._progress_at = progress, now
        return progress

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
