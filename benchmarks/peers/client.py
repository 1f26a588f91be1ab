"""Clients: what a message costs to send and to receive, with the server that stores it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from benchmarks.brokers import MeasuredBroker
from benchmarks.page import Plot, Section, Table
from benchmarks.peers.environment import PACKAGES
from benchmarks.peers.figures import Figures, Medians, cells, in_turns
from benchmarks.peers.run import Run
from benchmarks.peers.servers import SERVERS
from benchmarks.peers.worker import Worker, java_worker, python_worker
from benchmarks.process import cpu_seconds

__all__ = ["fillers", "make_topics", "measure"]

TASKS = {
    "one": "produce, one at a time",
    "eight": "produce, 8 at once",
    "batch": "produce, 32 together",
    "consume": "consume a backlog",
}
BACKLOG = 20_000
"""Messages that are consumed for each second of a task."""
JAVA = "4.9.7"


@dataclass(frozen=True, slots=True)
class Client:
    """A client that can be started.

    Attributes:
        name: The name in tables.
        server: Which of `SERVERS` it talks to.
        module: The program; empty: Java's.
        tasks: Which of `TASKS` it can do.
    """

    name: str
    server: str
    module: str
    tasks: tuple[str, ...] = tuple(TASKS)

    def start(self, address: str) -> AbstractContextManager[Worker]:
        """Start it."""
        if not self.module:
            return java_worker(JAVA, address)
        return python_worker(f"clients.{self.module}", address, own=self.server == "streamkit" and self.is_own)

    @property
    def is_own(self) -> bool:
        """Whether it is this project's."""
        return self.module == "with_streamkit"


CLIENTS = (
    Client("streamkit's rocket_client", "streamkit", "with_streamkit"),
    Client(f"Apache's Java client {JAVA}", "streamkit", ""),
    Client(f"rocketmq {PACKAGES['rocketmq']} (C++)", "streamkit", "with_rocketmq", ("one", "eight", "consume")),
    Client(f"confluent-kafka {PACKAGES['confluent-kafka']} (C)", "Kafka", "with_confluent"),
    Client(f"aiokafka {PACKAGES['aiokafka']}", "Kafka", "with_aiokafka"),
    Client(f"nats-py {PACKAGES['nats-py']}", "NATS", "with_nats"),
    Client(f"redis-py {PACKAGES['redis']}", "Redis", "with_redis"),
)
FILLERS = {"streamkit": "with_streamkit", "Kafka": "with_aiokafka", "NATS": "with_nats", "Redis": "with_redis"}


def make_topics(broker: MeasuredBroker, *names: str) -> None:
    """Make topics of four partitions on a Kafka broker."""
    admin = KafkaAdminClient(bootstrap_servers=broker.address or broker.name_server)
    admin.create_topics([NewTopic(name, 4, 1) for name in names])
    admin.close()


@contextmanager
def fillers(brokers: dict[str, MeasuredBroker]) -> Iterator[dict[str, Worker]]:
    """Start a client on each server that puts messages there."""
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(
                python_worker(f"clients.{FILLERS[name]}", broker.name_server, own=name == "streamkit")
            )
            for name, broker in brokers.items()
        }


def measure(run: Run) -> Section:
    """Start all servers and clients, and let the clients work in turns."""
    with ExitStack() as stack:
        names = run.servers
        brokers = {name: stack.enter_context(SERVERS[name]()) for name in names}
        if "Kafka" in brokers:
            make_topics(brokers["Kafka"], "sent", "backlog")
        backlog = int(BACKLOG * run.seconds)
        with fillers(brokers) as filling:
            for worker in filling.values():
                worker.do("fill", topic="backlog", messages=backlog)
        chosen = [client for client in CLIENTS if client.server in brokers]
        workers = {}
        for client in chosen:
            run.say(f"starting {client.name} ...")
            workers[client.name] = stack.enter_context(client.start(brokers[client.server].name_server))
        able = {client.name: client.tasks for client in chosen}
        servers = {client.name: brokers[client.server] for client in chosen}
        groups = iter(range(1_000_000))

        def once(task: str, name: str) -> Figures | None:
            if task not in able[name]:
                return None
            run.say(f"{name}: {TASKS[task]} ...")
            server = cpu_seconds(servers[name].pid)
            own = {"seconds": run.seconds}
            if task == "consume":
                number = next(groups)
                done = workers[name].do(task, topic="backlog", messages=backlog, group=f"group-{number}")
            else:
                done = workers[name].do(task, **own)
            server = cpu_seconds(servers[name].pid) - server
            messages = done["messages"]
            return Figures(messages / done["seconds"], done["cpu"] / messages * 1e6, server / messages * 1e6)

        systems = [client.name for client in chosen]
        for task in TASKS:
            for name in systems:
                once(task, name)  # a warm-up, above all of the JVMs
        medians = in_turns(list(TASKS), systems, run.rounds, once)
    return _section(run, systems, medians)


def _section(run: Run, systems: list[str], medians: Medians) -> Section:
    rows = cells(list(TASKS), systems, medians)
    return Section(
        "Clients",
        "clients",
        [
            (
                "Each client sends and receives messages of 128 bytes, and each send is acknowledged: on the "
                "bundled broker, on Kafka, on NATS with JetStream, and on Redis with streams and an append-only "
                "file. *32 together* is a batch where the system has batches, a pipeline with Redis, and 32 "
                "publications whose acknowledgments are awaited together with NATS. Consumers have their default "
                "settings, and acknowledge or commit what they received. The asyncio clients run on uvloop. "
                "`rocketmq` compresses batches above 4 KiB as a whole, which the broker refuses, so it sends none."
            ),
            (
                "Cells: messages per second · CPU of the client + CPU of the server for each message, and in brackets "
                "streamkit's rate and CPU of both, as multiples of the row's. A rate above 1× and CPU below 1× are in "
                "favour of streamkit."
            ),
        ],
        [Table(["client", *TASKS.values()], rows)],
        Plot(
            "CPU of client and server for each message, µs (less is better)",
            list(TASKS.values()),
            {
                system: [found.total_us if (found := medians.get((task, system))) else None for task in TASKS]
                for system in systems
            },
        ),
        run.notes(servers=run.servers),
    )
