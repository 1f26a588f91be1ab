"""Applications with a listener that makes receipts of orders, at least once: rate, CPU and time to the receipt."""

import itertools
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

from benchmarks.brokers import MeasuredBroker
from benchmarks.page import Plot, Section, Table
from benchmarks.peers.apps.task import Task
from benchmarks.peers.client import fillers, make_topics
from benchmarks.peers.environment import PACKAGES
from benchmarks.peers.figures import Figures, Medians, cells, in_turns
from benchmarks.peers.run import Run
from benchmarks.peers.servers import SERVERS
from benchmarks.peers.worker import Worker, python_worker
from benchmarks.process import cpu_seconds

__all__ = ["measure", "measure_kafka"]

ORDERS = 6_000
"""Orders that wait, for each second of a measurement."""
RATE = 500
WARM_UP = 200
"""Orders before those that are sent at the rate; they have smaller numbers."""


@dataclass(frozen=True, slots=True)
class Application:
    """An application that can be started.

    Attributes:
        name: The name in tables.
        server: Which of `SERVERS` it works on.
        module: The program.
        system: What the program calls the server.
        handlers: How many orders it handles at once.
        policy: When FastStream acknowledges.
    """

    name: str
    server: str
    module: str
    system: str
    handlers: int
    policy: str = "reject_on_error"


APPLICATIONS = (
    Application("streamkit on its broker", "streamkit", "with_streamkit", "rocketmq", 32),
    Application("FastStream on NATS JetStream", "NATS", "with_faststream", "nats", 32),
    Application("FastStream on Redis streams", "Redis", "with_faststream", "redis", 32),
    Application("FastStream on Kafka", "Kafka", "with_faststream", "kafka", 4),
)
ON_KAFKA = (
    Application("streamkit (at least once)", "Kafka", "with_streamkit", "kafka", 1),
    Application("FastStream, at least once", "Kafka", "with_faststream", "kafka", 1),
    Application("FastStream, at most once (its default)", "Kafka", "with_faststream", "kafka", 1, "ack_first"),
)


def measure(run: Run) -> Section:
    """Measure an order's way to its receipt, on each system."""
    tasks = {"backlog": "a backlog of orders", "rate": f"{RATE} orders/s"}
    systems, medians = _measured(run, APPLICATIONS, tasks)
    return Section(
        "Applications: an order comes, a receipt leaves",
        "applications",
        [
            (
                "A listener receives an order as JSON, converts it to an object, and returns a receipt, which is "
                "published as JSON; the order is acknowledged when the server has the receipt (at least once). 32 "
                "orders are handled at once, on Kafka one for each of four partitions. FastStream "
                f"{PACKAGES['faststream']} has `AckPolicy.REJECT_ON_ERROR`, publishes to streams, and uses "
                "pydantic; all run on uvloop."
            ),
            (
                "Cells: orders per second · CPU of the application + CPU of the server for each order; for orders "
                "that come at a rate also the time from when an order is sent to when its receipt arrives. In "
                "brackets streamkit's rate, CPU of both and median time, as multiples of the row's."
            ),
        ],
        [Table(["application", *tasks.values()], cells(list(tasks), systems, medians))],
        _plot(tasks, systems, medians),
        run.notes(f"FastStream {PACKAGES['faststream']}", servers=run.servers),
    )


def measure_kafka(run: Run) -> Section:
    """Measure the Kafka binder with its default settings."""
    tasks = {"receive": "receive", "backlog": "receive, and publish a receipt"}
    systems, medians = _measured(run, ON_KAFKA, tasks)
    return Section(
        "The Kafka binder",
        "kafka",
        [
            (
                "The same listener on one Kafka broker with four partitions, one order at a time: the default of "
                "streamkit's binder, and FastStream's broker at least once and with its default, at most once. Cells "
                "as above."
            ),
        ],
        [Table(["application", *tasks.values()], cells(list(tasks), systems, medians))],
        _plot(tasks, systems, medians),
        run.notes(f"FastStream {PACKAGES['faststream']} with aiokafka {PACKAGES['aiokafka']}", servers=["Kafka"]),
    )


def _plot(tasks: dict[str, str], systems: Sequence[str], medians: Medians) -> Plot:
    totals = {
        system: [found.total_us if (found := medians.get((task, system))) else None for task in tasks]
        for system in systems
    }
    return Plot("CPU of application and server for each order, µs (less is better)", list(tasks.values()), totals)


def _measured(run: Run, applications: Sequence[Application], tasks: dict[str, str]) -> tuple[list[str], Medians]:
    chosen = {each.name: each for each in applications if each.server in run.servers}
    numbers = itertools.count()
    messages = int(ORDERS * run.seconds)
    with ExitStack() as stack:
        brokers = {name: stack.enter_context(SERVERS[name]()) for name in {each.server for each in chosen.values()}}
        filling = stack.enter_context(fillers(brokers))
        for name, broker in brokers.items():
            _make(name, broker, filling[name], "orders", messages)
            _make(name, broker, filling[name], "receipts", 1)

        def once(task: str, name: str) -> Figures:
            run.say(f"{name}: {tasks[task]} ...")
            application, number = chosen[name], next(numbers)
            broker, filler = brokers[application.server], filling[application.server]
            if task != "rate":
                receipts = "receipts" if task == "backlog" else ""
                own = Task(application.system, broker.name_server, "orders", f"app-{number}", messages, receipts)
                filler.do("make_group", topic=own.orders, group=own.group)
                with _started(application, own) as app:
                    return _handled(app, broker, messages)
            orders, receipts = f"orders-{number}", f"receipts-{number}"
            _make(application.server, broker, filler, orders, WARM_UP)
            _make(application.server, broker, filler, receipts, 1)
            own = Task(application.system, broker.name_server, orders, f"app-{number}", WARM_UP, receipts)
            filler.do("make_group", topic=own.orders, group=own.group)
            with _started(application, own) as app:
                _handled(app, broker, WARM_UP)
                return _exchanged(app, broker, filler, own, run.seconds)

        medians = in_turns(list(tasks), list(chosen), run.rounds, once)
    return list(chosen), medians


def _make(server: str, broker: MeasuredBroker, filler: Worker, topic: str, messages: int) -> None:
    """Make a topic, and put orders into it."""
    if server == "Kafka":
        make_topics(broker, topic)
    filler.do("fill", topic=topic, messages=messages, orders=True)


def _started(application: Application, task: Task) -> AbstractContextManager[Worker]:
    arguments = map(str, task._replace(handlers=application.handlers, policy=application.policy))
    return python_worker(f"apps.{application.module}", *arguments, own=application.module == "with_streamkit")


def _handled(app: Worker, broker: MeasuredBroker, messages: int) -> Figures:
    """Wait for the orders that waited."""
    app.read()
    server = cpu_seconds(broker.pid)
    done = app.read()
    server = cpu_seconds(broker.pid) - server
    return Figures(messages / done["seconds"], done["cpu"] / messages * 1e6, server / messages * 1e6)


def _exchanged(app: Worker, broker: MeasuredBroker, filler: Worker, task: Task, seconds: float) -> Figures:
    """Send orders at `RATE`."""
    own, server = cpu_seconds(app.pid), cpu_seconds(broker.pid)
    done = filler.do(
        "exchange",
        orders=task.orders,
        receipts=task.receipts,
        rate=RATE,
        seconds=seconds,
        group=f"{task.group}-receipts",
        first=WARM_UP,
        waiting=WARM_UP + 1,
    )
    count = done["messages"]
    own, server = cpu_seconds(app.pid) - own, cpu_seconds(broker.pid) - server
    return Figures(None, own / count * 1e6, server / count * 1e6, done["p50"], done["p99"])
