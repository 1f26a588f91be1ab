"""The broker beside Apache's, by figures that are no rate of sends: start and memory, growth, flushes, backlogs."""

import asyncio
import compileall
import functools
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.brokers import MeasuredBroker
from benchmarks.load.frames import SendFrames
from benchmarks.load.generator import Load, pull_again, send_closed_loop, send_count, waiting_consumers
from benchmarks.load.servers import Server, apache, bundled
from benchmarks.page import Plot, Section, Table
from benchmarks.peers.figures import Figures, cells, in_turns
from benchmarks.peers.run import Run
from benchmarks.peers.worker import ROOT, java_worker, python_worker
from benchmarks.process import anonymous_mib, cpu_seconds
from rocket_client import Admin, ClientSettings
from tests.ports import free_ports

__all__ = ["measure_backlog", "measure_flush", "measure_growth", "measure_start"]

APACHE = "4.9.7"
BODY = b"x" * 128
FILLED_AT_ONCE = 100
SENDERS = 32
START_SECONDS = 90.0


def _servers() -> list[Server]:
    return [bundled("streamkit", ROOT), apache(APACHE)]


def _fill(broker: MeasuredBroker, topic: str, messages: int, queues: int = 4) -> None:
    """Make a topic and send messages in batches."""
    _make_topic(broker, topic, queues)
    frames = SendFrames(topic, BODY, batch=FILLED_AT_ONCE, queues=queues)
    send_count(broker.address, frames, messages // FILLED_AT_ONCE, in_flight=8)


def _make_topic(broker: MeasuredBroker, topic: str, queues: int) -> None:
    async def make() -> None:
        async with Admin(ClientSettings(name_servers=broker.name_server)) as admin:
            await admin.create_topic(topic, queues=queues)

    asyncio.run(make())


def measure_start(run: Run) -> Section:
    """Measure the time from a start to the first message that is stored, and memory before and after many messages."""
    for package in ("rocket_broker", "rocket_remoting", "streamkit"):
        # As an installation does. Otherwise each start would compile modules that have changed, if the environment
        # says that Python writes no bytecode.
        compileall.compile_dir(ROOT / package, quiet=1)
    names = ["start to the first message", "memory, idle", f"after {run.backlog:,} messages"]
    found: dict[str, list[tuple[float, float, float]]] = {}
    for number in range(run.rounds):
        for server in _servers():
            run.say(f"{server.name}: start ...")
            with ExitStack() as stack:
                broker, seconds = _first_message(stack, server)
                idle = after = anonymous_mib(broker.pid)
                if not number:  # the memory after many messages is measured once
                    _fill(broker, "filled", run.backlog)
                    after = anonymous_mib(broker.pid)
                found.setdefault(server.name, []).append((seconds, idle, after))
    rows = []
    for name, rounds in found.items():
        seconds, idle = median(each[0] for each in rounds), median(each[1] for each in rounds)
        rows.append([name, f"{seconds:.2f} s", f"{idle:.0f} MiB", f"{rounds[0][2]:.0f} MiB"])
    return Section(
        "Start and memory",
        "start",
        [
            (
                "From the start of the process, name server included, until a client's message to a new topic is "
                "stored. Memory is anonymous memory: mapped files of the store are not counted. Apache's JVM has a "
                "heap of 1 GiB."
            ),
        ],
        [Table(["broker", *names], rows)],
        notes=run.notes(),
    )


def _first_message(stack: ExitStack, server: Server) -> tuple[MeasuredBroker, float]:
    ports = free_ports()
    with ThreadPoolExecutor(1) as pool:
        answered = pool.submit(_until_stored, f"127.0.0.1:{ports[1]}", time.perf_counter())
        broker = stack.enter_context(server.start(ports=ports))
        return broker, answered.result()


def _until_stored(address: str, begun: float) -> float:
    """Send a message again and again until it is stored; return the seconds since `begun`."""
    frames = SendFrames("first", BODY)
    while time.perf_counter() - begun < START_SECONDS:
        try:
            send_count(address, frames, 1)
        except OSError:  # nobody listens yet, or the broker does not serve yet
            time.sleep(0.005)
        else:
            return time.perf_counter() - begun
    raise TimeoutError(f"the broker at {address} stored nothing in {START_SECONDS:.0f} s")


def measure_growth(run: Run) -> Section:
    """Measure the broker's CPU for each message with more queues, more stored messages, and more consumers."""
    (server, _) = _servers()

    def cost(broker: MeasuredBroker, load: Callable[[], Load]) -> float:
        costs = []
        for _ in range(run.rounds + 1):
            cpu = cpu_seconds(broker.pid)
            messages = load().messages
            costs.append((cpu_seconds(broker.pid) - cpu) / messages * 1e6)
        return median(costs[1:])  # the first one is a warm-up

    def sends(broker: MeasuredBroker, topic: str, queues: int) -> float:
        frames = SendFrames(topic, BODY, queues=queues)
        return cost(
            broker,
            lambda: send_closed_loop(broker.address, frames, connections=4, in_flight=64, seconds=run.seconds),
        )

    tables = []
    with server.start() as broker:
        sizes, costs = (1, 10, 100, 1_000), []
        for queues in sizes:
            run.say(f"growth: {queues} queues ...")
            _make_topic(broker, f"queues-{queues}", queues)
            send_count(broker.address, SendFrames(f"queues-{queues}", BODY, queues=queues), 2 * queues)
            costs.append(sends(broker, f"queues-{queues}", queues))
        tables.append(_growth("queues of the topic; sends, 4 connections × 64 in flight", sizes, [("send", costs)]))
    with server.start() as broker:
        counts = [count for count in (10_000, 100_000, 1_000_000, 10_000_000) if count <= run.backlog]
        stored, sending, pulling = 0, [], []
        for count in counts:
            run.say(f"growth: {count:,} messages stored ...")
            _fill(broker, "stored", count - stored)
            stored = count
            pulling.append(
                cost(broker, lambda: pull_again(broker.address, "stored", "load", 2_000, most=32, seconds=run.seconds))
            )
            sending.append(sends(broker, "stored", 4))
        tables.append(_growth("messages stored", counts, [("send", sending), ("pull the oldest", pulling)]))
    with server.start() as broker:
        sizes, costs = (1, 10, 100, 1_000), []
        for consumers in sizes:
            run.say(f"growth: {consumers} consumers ...")
            _make_topic(broker, f"consumers-{consumers}", consumers)
            with waiting_consumers(broker.address, f"consumers-{consumers}", consumers) as deliver:
                costs.append(cost(broker, functools.partial(deliver, run.seconds)))
        title = "consumers, each with a connection that waits for its own queue; one message at a time"
        tables.append(_growth(title, sizes, [("send, wake, pull", costs)]))
    return Section(
        "Growth",
        "growth",
        [
            "CPU of the bundled broker for each message, in microseconds, and as multiples of the first column's.",
        ],
        tables,
        notes=run.notes(),
    )


def _growth(title: str, sizes: Sequence[int], rows: Sequence[tuple[str, Sequence[float]]]) -> Table:
    def cells_of(costs: Sequence[float]) -> list[str]:
        return [f"{each:.3g} µs ({each / costs[0]:.2f}×)" for each in costs]

    return Table([title, *(f"{size:,}" for size in sizes)], [[name, *cells_of(costs)] for name, costs in rows])


def measure_flush(run: Run) -> Section:
    """Measure SYNC_FLUSH with 32 senders beside the disk's own rate."""
    with ExitStack() as stack:
        brokers = {
            server.name: stack.enter_context(server.start(settings={"flushDiskType": "SYNC_FLUSH"}))
            for server in _servers()
        }
        frames = SendFrames("flushed", BODY)
        for broker in brokers.values():
            _make_topic(broker, "flushed", 4)
        bound = "the disk: fdatasync × 32"

        def once(_: str, name: str) -> Figures:
            run.say(f"{name}: flushes ...")
            if name == bound:
                return Figures(SENDERS * _flushes(run.seconds))
            broker = brokers[name]
            cpu = cpu_seconds(broker.pid)
            load = send_closed_loop(broker.address, frames, connections=SENDERS, in_flight=1, seconds=run.seconds)
            spent = cpu_seconds(broker.pid) - cpu
            return Figures(load.messages / load.seconds, server_us=spent / load.messages * 1e6)

        systems = [*brokers, bound]
        for name in systems:
            once("", name)
        medians = in_turns(["flush"], systems, run.rounds, once)
    return Section(
        "SYNC_FLUSH",
        "flush",
        [
            (
                f"{SENDERS} connections send one message at a time, and each is answered when it is on the disk. "
                f"The bound is {SENDERS} times the rate at which this disk makes a page of a file durable, one "
                "after the other (a program that writes 8 KiB and calls `fdatasync`). Cells as above."
            ),
        ],
        [Table(["", "messages/s"], cells(["flush"], systems, medians))],
        notes=run.notes(),
    )


def _flushes(seconds: float) -> float:
    """Return how often in a second the disk makes two dirty pages durable."""
    with tempfile.TemporaryDirectory(prefix="streamkit-flush-") as home:
        file = os.open(Path(home) / "pages", os.O_RDWR | os.O_CREAT)
        try:
            os.write(file, bytes(64 * 1024 * 1024))
            os.fsync(file)
            page, count, until = bytes(2 * mmap.PAGESIZE), 0, time.perf_counter() + seconds
            begun = time.perf_counter()
            while time.perf_counter() < until:
                os.pwrite(file, page, count * len(page) % (64 * 1024 * 1024))
                os.fdatasync(file)
                count += 1
            return count / (time.perf_counter() - begun)
        finally:
            os.close(file)


def measure_backlog(run: Run) -> Section:
    """Measure push consumers on a large backlog, and on messages that are being sent."""
    together = run.backlog // 5
    tasks = {"backlog": f"a backlog of {run.backlog:,}", "together": f"{together:,}, sent meanwhile"}
    with ExitStack() as stack:
        brokers, workers = {}, {}
        for server in _servers():
            broker = stack.enter_context(server.start())
            run.say(f"{server.name}: filling ...")
            _fill(broker, "backlog", run.backlog)
            _make_topic(broker, "together", 4)
            java = stack.enter_context(java_worker(APACHE, broker.name_server))
            ours = stack.enter_context(python_worker("clients.with_streamkit", broker.name_server, own=True))
            for client, worker in ((f"Apache's client {APACHE}", java), ("rocket_client", ours)):
                brokers[f"{client} on {server.name}"], workers[f"{client} on {server.name}"] = broker, worker
        groups = iter(range(1_000_000))

        def once(task: str, name: str) -> Figures:
            run.say(f"{name}: {tasks[task]} ...")
            broker, worker = brokers[name], workers[name]
            cpu, messages = cpu_seconds(broker.pid), run.backlog
            topic, group = "backlog", f"group-{next(groups)}"
            if task == "together":
                messages, topic = together, f"together-{group}"
                _make_topic(broker, topic, 4)
                worker.begin("consume", topic=topic, messages=messages, group=group)
                send_count(broker.address, SendFrames(topic, BODY), messages)
                done = worker.read()
            else:
                done = worker.do("consume", topic=topic, messages=messages, group=group)
            cpu = cpu_seconds(broker.pid) - cpu
            return Figures(messages / done["seconds"], done["cpu"] / messages * 1e6, cpu / messages * 1e6)

        systems = [
            f"{client} on {server.name}"
            for client in (f"Apache's client {APACHE}", "rocket_client")
            for server in _servers()
        ]
        medians = in_turns(list(tasks), systems, run.rounds, once)
    return Section(
        "Consumption",
        "consumption",
        [
            (
                "Push consumers with default settings, of messages that wait, and of messages that one connection "
                "sends at the same time, 64 in flight. Cells: messages per second · CPU of the client + CPU of the "
                "broker for each message; in brackets the first row's rate and CPU as multiples of the row's."
            ),
        ],
        [Table(["", *tasks.values()], cells(list(tasks), systems, medians))],
        Plot(
            "messages/s (more is better)",
            list(tasks.values()),
            {system: [medians[task, system].per_second for task in tasks] for system in systems},
        ),
        run.notes(),
    )
