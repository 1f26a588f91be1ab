"""`python -m benchmarks.large_clusters`: what clusters of a size that no test machine has would cost.

Nothing here starts a cluster. The division of queues among members is simulated on virtual time with the client's own
strategies; a name server and a broker run in this process, and what they do once is measured and multiplied. Each
product is shown with its factors.
"""

import asyncio
import gc
import itertools
import math
import multiprocessing
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console

from benchmarks.load.scenarios import SCENARIOS, make_topics, measure
from benchmarks.load.servers import bundled
from benchmarks.page import Section, Table, console_tables, write_section
from benchmarks.process import anonymous_mib
from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.namesrv.server import NameServer
from rocket_broker.namesrv.settings import NameServerSettings
from rocket_broker.namesrv.topic_routes import MAX_ROUTES
from rocket_broker.process.service import COLLECTED_AFTER
from rocket_broker.settings.properties_file import entries_of
from rocket_client import (
    AllocateMessageQueueStrategy,
    ClientSettings,
    ConsistentHash,
    PushConsumerSettings,
    averagely,
    averagely_by_circle,
)
from rocket_client.consuming.rebalance import TAKE_OVER_PAUSE
from rocket_remoting import MemoryTransport, MessageQueue
from rocket_remoting.session.limits import Limits
from rocket_remoting.wire.bodies import (
    DataVersion,
    GetConsumerListByGroupResponseBody,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    encode_body,
    encode_register_broker_body,
)
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.headers import GetRouteInfoRequestHeader, RegisterBrokerRequestHeader
from streamkit.testing.virtual_time import VirtualTime
from tests import step_clock
from tests.end_to_end.raw_client import RawClient

T = TypeVar("T")

HERE = Path(__file__).parents[1]

MEMBERS = 1_000
QUEUES = 10_000
BROKERS = 200
TOPICS = 100_000
BROKERS_OF_TOPIC = 4
CLIENTS = 50_000
MESSAGES_A_DAY = 10_000_000_000

NOTICE_SECONDS = 0.05
"""Assumed: a member hears of a change within this time, or at its next poll if the notice is lost."""
LOST_NOTICES = 0.01
"""Assumed: the share of members that hear of a change at their next poll only."""
PEAK = 3
"""Assumed: the load of the busiest hour, over the average."""
BUSY = 0.7
"""Assumed: the share of a core's time that a broker may use in the busiest hour."""
SAMPLED = 100
"""Members whose share is computed with a strategy that looks at every queue for each member."""
CONNECTED = 1_000
"""Clients that are connected in this process."""
AT_ONCE = 50
"""Requests under way at once, so that the turns of the loop are shared, as on a busy server."""

_DAY = 24 * 3600
_POLL = PushConsumerSettings(name_servers="127.0.0.1:1").rebalance_interval.total_seconds()
_HEARTBEAT = ClientSettings(name_servers="127.0.0.1:1").heartbeat_broker_interval.total_seconds()
_ROUTE = ClientSettings(name_servers="127.0.0.1:1").poll_name_server_interval.total_seconds()
_REGISTRATION = 30.0


# Rebalancing


@dataclass(frozen=True, slots=True)
class Division:
    """What one change of the members costs.

    Attributes:
        strategy: How the queues are divided.
        cpu_ms: CPU of one member for the division, in milliseconds.
        moved: Queues that get another member.
        without: For each queue that moves, the seconds without a member; negative if it has two for a while.
    """

    strategy: str
    cpu_ms: float
    moved: float
    without: Sequence[float]


def divide_again(name: str, strategy: AllocateMessageQueueStrategy, *, samples: bool) -> Division:
    """Simulate that a member joins a group, on virtual time; each member divides the queues with the strategy."""
    queues = sorted(
        MessageQueue("orders", f"broker-{number % BROKERS:03}", number // BROKERS) for number in range(QUEUES)
    )
    before = sorted(f"10.0.{number // 250}.{number % 250}@{number}" for number in range(MEMBERS))
    joining = "10.0.2.1@joining"
    after = sorted([*before, joining])
    chosen = random.Random(7)
    looked_at = [joining, *(chosen.sample(before, SAMPLED) if samples else before)]
    dropped: dict[MessageQueue, float] = {}
    taken: dict[MessageQueue, float] = {}
    cpu: list[float] = []

    def share(member: str, members: Sequence[str]) -> set[MessageQueue]:
        begun = time.thread_time()
        found = set(strategy("kitchen", member, queues, members))
        cpu.append(time.thread_time() - begun)
        return found

    async def rebalance(member: str) -> None:
        is_lost = chosen.random() < LOST_NOTICES and member != joining
        await asyncio.sleep(chosen.uniform(0, _POLL if is_lost else NOTICE_SECONDS))
        now, old = share(member, after), share(member, before) if member != joining else set()
        loop = asyncio.get_running_loop()
        dropped.update(dict.fromkeys(old - now, loop.time()))
        await asyncio.sleep(TAKE_OVER_PAUSE)
        taken.update(dict.fromkeys(now - old, loop.time()))

    async def main() -> None:
        await asyncio.gather(*map(rebalance, looked_at))

    gained_by_joining = len(share(joining, after))
    with VirtualTime() as virtual:
        virtual.run(main())
    gained = len(taken) - gained_by_joining
    moved = gained_by_joining + gained * (MEMBERS / SAMPLED if samples else 1)
    without = [taken[queue] - dropped[queue] for queue in dropped.keys() & taken.keys()]
    return Division(name, statistics.mean(cpu) * 1e3, moved, without)


def rebalancing() -> Section:
    """Return the section about rebalancing."""
    divisions = [
        divide_again("`averagely`, the default", averagely, samples=False),
        divide_again("`averagely_by_circle`", averagely_by_circle, samples=False),
        divide_again("`ConsistentHash()`", ConsistentHash(), samples=True),
    ]
    ids = [f"10.0.{number // 250}.{number % 250}@{number}#123456789" for number in range(MEMBERS)]
    answer = len(encode_body(GetConsumerListByGroupResponseBody(consumer_id_list=ids)))
    settings = PushConsumerSettings(name_servers="127.0.0.1:1")
    hold = settings.broker_suspend_max_time.total_seconds()
    commit = settings.persist_consumer_offset_interval.total_seconds()
    return Section(
        "Rebalancing: 1,000 members and 10,000 queues",
        "rebalancing",
        [
            (
                f"A member joins a group of {MEMBERS:,} that shares {QUEUES:,} queues of {BROKERS} brokers. Each "
                "member divides the queues with the client's own code, on virtual time. Members hear of the change "
                f"within {NOTICE_SECONDS * 1000:g} ms, {LOST_NOTICES:.0%} of them only at their next poll, within "
                f"{_POLL:g} s. A queue is taken over {TAKE_OVER_PAUSE:g} s after its new member has heard."
            )
        ],
        [
            Table(
                [
                    "strategy",
                    "CPU of a division",
                    "queues that move",
                    "time without a member: median, longest",
                    "longest time with two members",
                ],
                [_division_row(each) for each in divisions],
            ),
            Table(
                ["each change of the members", "formula", "result"],
                [
                    [
                        "notices of brokers to members",
                        f"{BROKERS} brokers × {MEMBERS:,} members",
                        f"{BROKERS * MEMBERS:,}",
                    ],
                    [
                        "bytes of lists of members",
                        f"{MEMBERS:,} members × {answer:,} bytes, measured",
                        _bytes(MEMBERS * answer),
                    ],
                    [
                        "the same when all members restart, one by one",
                        f"2 × {MEMBERS:,} changes × {_bytes(MEMBERS * answer)}",
                        _bytes(2 * MEMBERS * MEMBERS * answer),
                    ],
                ],
            ),
            Table(
                ["without any change or message", "formula", "result"],
                [
                    ["pulls that find nothing", f"{QUEUES:,} queues ÷ {hold:g} s", f"{QUEUES / hold:,.0f}/s"],
                    [
                        "commits of offsets, if all queues have messages",
                        f"{QUEUES:,} queues ÷ {commit:g} s",
                        f"{QUEUES / commit:,.0f}/s",
                    ],
                ],
            ),
        ],
        notes=[
            (
                f"With `ConsistentHash` every member looks at every queue, so the shares of {SAMPLED} members and of "
                "the new one were computed; the others' are taken to be alike. Its few moves are all to the new "
                "member. How many queues the other two strategies move depends on the place of the new member's id "
                "among the sorted ones."
            ),
            (
                "A queue has two members while its former one has not heard of the change yet: messages may be "
                "delivered twice, as at any rebalance. In ordered mode the broker's lock prevents that, and the queue "
                "waits instead."
            ),
        ],
    )


def _division_row(division: Division) -> Sequence[str]:
    times = sorted(division.without)
    longest = f"{statistics.median(times):.2f} s, {times[-1]:.2f} s" if times else "-"
    both = f"{-times[0]:.1f} s" if times and times[0] < 0 else "none"
    return [
        division.strategy,
        f"{division.cpu_ms:.3g} ms",
        f"{division.moved:,.0f} of {QUEUES:,}",
        longest,
        both,
    ]


# The name server


@dataclass(frozen=True, slots=True)
class NameServerCosts:
    """What a name server with many topics costs, in this process: both ends of each request.

    Attributes:
        mib: Memory of the routes, in MiB.
        first_ms: CPU of a broker's first registration, in milliseconds.
        again_ms: CPU of a registration without a change.
        changed_ms: CPU of a registration with one changed topic.
        route_us: CPU of a client's request for a route, in microseconds.
        body: Bytes of a registration.
    """

    mib: float
    first_ms: float
    again_ms: float
    changed_ms: float
    route_us: float
    body: int


async def ask_name_server() -> NameServerCosts:
    """Register the brokers at a name server, and ask it for routes."""
    transport = MemoryTransport()
    topics_of_broker = TOPICS * BROKERS_OF_TOPIC // BROKERS
    with tempfile.TemporaryDirectory() as directory:
        keys = {"kvConfigPath": f"{directory}/kvConfig.json", "maxAddressConnectionsRatio": "100"}
        server = NameServer(NameServerSettings.from_entries(entries_of(keys, "benchmark")), transport=transport)
        await server.start()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(server.stop)
            brokers = [await _connected(stack, transport, server.address, number) for number in range(BROKERS)]
            encoded = {
                version: [_registration(number, topics_of_broker, version) for number in range(BROKERS)]
                for version in (1, 2)
            }

            async def register(version: int) -> float:
                return await _cpu(
                    broker.ask_ok(RequestCode.REGISTER_BROKER, header, body)
                    for broker, (header, body) in zip(brokers, encoded[version], strict=True)
                )

            before = anonymous_mib(os.getpid())
            first = await register(1)
            mib = anonymous_mib(os.getpid()) - before
            again, changed = await register(1), await register(2)
            client = await _connected(stack, transport, server.address, BROKERS)
            asked = random.Random(7).sample(range(TOPICS), CONNECTED)
            routes = await _cpu(
                client.ask_ok(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=_topic(number)))
                for number in asked
            )
    body = len(_registration(0, topics_of_broker, 1)[1])
    return NameServerCosts(mib, first * 1e3, again * 1e3, changed * 1e3, routes * 1e6, body)


def _topic(number: int) -> str:
    return f"topic-of-a-department-{number:06}"


def _registration(broker: int, topics: int, version: int) -> tuple[RegisterBrokerRequestHeader, bytes]:
    first = broker // BROKERS_OF_TOPIC * topics  # so many neighbouring brokers have the same topics
    names = [_topic(number) for number in range(first, first + topics)]
    wrapper = TopicConfigSerializeWrapper(
        topic_config_table={
            name: TopicConfig(topic_name=name, read_queue_nums=8, write_queue_nums=8) for name in names
        },
        data_version=DataVersion(timestamp=1, counter=version),
    )
    body = encode_register_broker_body(RegisterBrokerBody(topic_config_serialize_wrapper=wrapper), compressed=False)
    header = RegisterBrokerRequestHeader(
        broker_name=f"broker-{broker:03}",
        broker_addr=f"{_host(broker)}:10911",
        cluster_name="DefaultCluster",
        ha_server_addr=f"{_host(broker)}:10912",
        broker_id=0,
        compressed=False,
    )
    return header, body


def name_server(costs: NameServerCosts) -> Section:
    """Return the section about the name server."""
    each = TOPICS * BROKERS_OF_TOPIC // BROKERS
    registrations = BROKERS * costs.again_ms / 1e3 / _REGISTRATION
    routes = CLIENTS / _ROUTE
    return Section(
        "A name server with 100,000 topics and 200 brokers",
        "name-server",
        [
            (
                f"Each topic is on {BROKERS_OF_TOPIC} brokers, so each broker has {each:,} topics, and the name server "
                f"{TOPICS * BROKERS_OF_TOPIC:,} routes. Both ends of each request ran in one process: the name server "
                "alone takes less."
            )
        ],
        [
            Table(
                ["measured", "result"],
                [
                    ["memory of the routes", f"{costs.mib:.0f} MiB"],
                    [
                        f"a broker's registration: {costs.body:,} bytes, the first time",
                        f"{costs.first_ms:.3g} ms of CPU",
                    ],
                    ["the same without a change", f"{costs.again_ms:.3g} ms of CPU"],
                    ["the same with a new version", f"{costs.changed_ms:.3g} ms of CPU"],
                    ["a client's request for a route", f"{costs.route_us:.0f} µs of CPU"],
                ],
            ),
            Table(
                ["of the name server", "formula", "result"],
                [
                    [
                        "registrations",
                        f"{BROKERS} brokers × {costs.again_ms:.3g} ms ÷ {_REGISTRATION:g} s",
                        f"{registrations:.1%} of a core",
                    ],
                    [
                        f"routes for {CLIENTS:,} clients of one topic each",
                        f"{CLIENTS:,} ÷ {_ROUTE:g} s × {costs.route_us:.0f} µs",
                        f"{routes:,.0f}/s, {routes * costs.route_us / 1e6:.1%} of a core",
                    ],
                    [
                        "start of a name server: all brokers register at once",
                        f"{BROKERS} × {costs.first_ms:.3g} ms",
                        f"{BROKERS * costs.first_ms / 1e3:.1f} s",
                    ],
                    [
                        "a topic is created",
                        f"{BROKERS_OF_TOPIC} brokers × {costs.changed_ms:.3g} ms",
                        f"{BROKERS_OF_TOPIC * costs.changed_ms:.0f} ms",
                    ],
                ],
            ),
        ],
    )


# Heartbeats


@dataclass(frozen=True, slots=True)
class ClientCosts:
    """What a client costs a broker, in this process: both ends of each request.

    Attributes:
        first_us: CPU of a client's first heartbeat, in microseconds.
        again_us: CPU of a further heartbeat.
        kib: Memory of a client, both ends of its connection included, in KiB.
        record_bytes: Bytes of the commit log, by the bytes of the body.
    """

    first_us: float
    again_us: float
    kib: float
    record_bytes: Mapping[int, int]


async def ask_broker() -> ClientCosts:
    """Connect clients to a broker, and let them send heartbeats."""
    transport = MemoryTransport()
    settings = {"maxAddressConnectionsRatio": "100"}
    with tempfile.TemporaryDirectory() as directory:
        async with (
            EmbeddedBroker(Path(directory), transport=transport, settings=settings) as embedded,
            AsyncExitStack() as stack,
        ):
            before = anonymous_mib(os.getpid())
            clients = [
                await _connected(stack, transport, embedded.broker_address, number) for number in range(CONNECTED)
            ]
            await clients[0].create_topic("orders", 8)

            def beat() -> Iterator[Awaitable[object]]:
                for number, client in enumerate(clients):
                    group = f"group-{number % 50}"
                    yield client.heartbeat(f"client@{number}", consumers={group: {"orders": "*"}}, producers=(group,))

            first, again = await _cpu(beat()), await _cpu(beat())
            kib = (anonymous_mib(os.getpid()) - before) * 1024 / CONNECTED
            records = {}
            for size in (128, 1024):
                begin = embedded.broker.store.max_commit_log_offset
                await clients[0].send("orders", b"x" * size, properties={"UNIQ_KEY": "7F0" * 10 + "00", "WAIT": "true"})
                records[size] = embedded.broker.store.max_commit_log_offset - begin
    return ClientCosts(first * 1e6, again * 1e6, kib, records)


def heartbeats(costs: ClientCosts) -> Section:
    """Return the section about heartbeats."""
    most = Limits().max_connections
    rate = CLIENTS / _HEARTBEAT
    return Section(
        "Heartbeats of 50,000 clients",
        "heartbeats",
        [
            (
                f"{CONNECTED:,} clients, each a producer and a consumer, sent heartbeats to a broker in the same "
                "process; both ends of each request count."
            )
        ],
        [
            Table(
                ["", "formula", "result"],
                [
                    ["a client's first heartbeat", "measured", f"{costs.first_us:.0f} µs of CPU"],
                    ["a further heartbeat", "measured", f"{costs.again_us:.0f} µs of CPU"],
                    ["memory of a client, both ends of its connection", "measured", f"{costs.kib:.1f} KiB"],
                    [
                        f"heartbeats of {CLIENTS:,} clients at one broker",
                        f"{CLIENTS:,} ÷ {_HEARTBEAT:g} s × {costs.again_us:.0f} µs",
                        f"{rate:,.0f}/s, {rate * costs.again_us / 1e6:.1%} of a core",
                    ],
                    [
                        "all clients connect again after a restart of the broker",
                        f"{CLIENTS:,} × {costs.first_us:.0f} µs",
                        f"{CLIENTS * costs.first_us / 1e6:.1f} s of CPU",
                    ],
                    [
                        "memory of all clients, the same",
                        f"{CLIENTS:,} × {costs.kib:.1f} KiB",
                        f"{CLIENTS * costs.kib / 1024:,.0f} MiB",
                    ],
                    [
                        "brokers among which the clients must be divided",
                        f"{CLIENTS:,} ÷ {most:,} connections of a port",
                        f"{-(-CLIENTS // most)}",
                    ],
                ],
            )
        ],
    )


# A day


def day(costs: ClientCosts, seconds: float) -> Section:
    """Measure what a message costs a broker, and return the section about a day."""
    titles = {
        "sync-8": "one by one, by 8 clients",
        "pipelined": "one by one, 256 under way",
        "pipelined-1k": "the same, bodies of 1 KiB",
        "batch-32": "in batches of 32, by 8 clients",
    }
    names = [*titles, "pull"]
    with bundled("streamkit", HERE).start() as broker:
        make_topics(broker, names)
        cpu = {name: measure(SCENARIOS[name], broker, seconds).broker_cpu_us for name in names}
    average = MESSAGES_A_DAY / _DAY
    rows = []
    for name, title in titles.items():
        each = cpu[name] + cpu["pull"]
        cores = average * PEAK * each / 1e6 / BUSY
        rows.append(
            [
                title,
                f"{cpu[name]:.3g} µs + {cpu['pull']:.3g} µs",
                f"{average * PEAK:,.0f}/s × {each:.3g} µs ÷ {BUSY:g}",
                f"{math.ceil(cores)}",
            ]
        )
    disk = []
    for size, record in costs.record_bytes.items():
        stored = record + 20 + 20
        disk.append(
            [
                f"bodies of {size:,} bytes",
                f"{record} bytes of log + 20 of queue + 20 of index",
                f"{average * PEAK * stored / 1e6:,.0f} MB/s",
                f"{MESSAGES_A_DAY * stored / 1e12:.1f} TB",
            ]
        )
    return Section(
        "A day of 10 billion messages",
        "day",
        [
            (
                f"10 billion messages a day are {average:,.0f} a second. The busiest hour is assumed to have {PEAK} "
                f"times that, and a broker to use at most {BUSY:.0%} of its core then. Each message is sent once and "
                f"pulled by one group. The costs of a message were measured on one broker, for {seconds:g} s each."
            )
        ],
        [
            Table(["how messages are sent", "CPU to send + to pull", "formula", "brokers, one core each"], rows),
            Table(["disk", "of a message", "in the busiest hour", "a day"], disk),
        ],
        notes=[
            (
                "Each further group adds the CPU to pull. A slave doubles the disk and the network. With TLS or access "
                "control a single send costs several times as much: see [Performance](performance.md)."
            )
        ],
    )


def limits_of_design(costs: NameServerCosts) -> Section:
    """Return the section about what breaks first."""
    most = Limits().max_connections
    per_route = costs.mib * 1024 / (TOPICS * BROKERS_OF_TOPIC)
    return Section(
        "What breaks first",
        "limits",
        ["In the order in which a growing cluster meets it:"],
        [
            Table(
                ["limit", "reached by", "instead"],
                [
                    [
                        f"{most:,} connections of a broker's port",
                        "clients of a topic on every broker: each connects to all brokers of its topics",
                        (
                            "topics on some of the brokers only (`streamkit topic create NAME --broker broker-a`), or "
                            "Apache's proxy (5.x), to which clients connect in place of brokers"
                        ),
                    ],
                    [
                        "one core of a broker",
                        "single sends, above all with TLS and access control",
                        (
                            "`streamkit broker --processes 4`, then brokers on more machines; Apache's broker, which "
                            "uses all cores of a machine with one store"
                        ),
                    ],
                    [
                        "lists and notices of a group's members, which grow with the square of their number",
                        f"groups of more than {MEMBERS:,} members",
                        (
                            "several groups with a topic each; on Apache's cluster it is the same, unless its proxy "
                            "distributes the messages (POP)"
                        ),
                    ],
                    [
                        f"{MAX_ROUTES:,} routes of a name server, {per_route:.2f} KiB each",
                        f"{TOPICS:,} topics on more than {MAX_ROUTES // TOPICS} brokers each",
                        "topics on some of the brokers only; Apache's name server has no limit but its memory",
                    ],
                    [
                        "one disk of a broker",
                        "the amounts of a day, above",
                        "more brokers; Apache's tiered storage (5.x) for messages that are kept for long",
                    ],
                ],
            )
        ],
        notes=[
            (
                "Clients, topics and groups stay as they are when the brokers become Apache's: the protocol is the "
                "same, and so is the store."
            )
        ],
    )


def _in_own_process(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run work in a fresh process, whose memory shows what the work keeps."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as processes:
        return processes.submit(_as_a_server, work).result()


def _as_a_server(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run work with the garbage collections of a server's process, on virtual time: no limit of time is exceeded."""
    step_clock.install()  # so that other work of this machine does not make steps look long
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)
    with VirtualTime() as virtual:
        return virtual.run(work())


async def _connected(stack: AsyncExitStack, transport: MemoryTransport, address: str, number: int) -> RawClient:
    client = await RawClient.connect(transport.at(_host(number)), address)
    stack.push_async_callback(client.connection.close)
    return client


def _host(number: int) -> str:
    return f"10.1.{number // 250}.{number % 250 + 1}"


async def _cpu(requests: Iterable[Awaitable[object]]) -> float:
    """Await the requests, some at once; return the mean CPU seconds of one, all threads included."""
    begun, answered = time.process_time(), 0
    remaining = iter(requests)
    while group := list(itertools.islice(remaining, AT_ONCE)):
        await asyncio.gather(*group)
        answered += len(group)
    return (time.process_time() - begun) / answered


def _bytes(number: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


@click.command()
@click.option("--seconds", default=2.0, show_default=True, help="Seconds of each load on a broker.")
@click.option("--report", type=click.Path(exists=True, path_type=Path), help="The page that gets the sections.")
def main(*, seconds: float, report: Path | None) -> None:
    """Simulate and measure; print the tables."""
    console = Console(stderr=True)
    with console.status("") as status:
        status.update("rebalancing ...")
        sections = [rebalancing()]
        status.update("a name server ...")
        of_name_server = _in_own_process(ask_name_server)
        sections.append(name_server(of_name_server))
        status.update("heartbeats ...")
        of_client = _in_own_process(ask_broker)
        sections.append(heartbeats(of_client))
        status.update("messages ...")
        sections += [day(of_client, seconds), limits_of_design(of_name_server)]
    for section in sections:
        for table in console_tables(section):
            console.print(table)
        if report is not None:
            write_section(report, section)
    if report is not None:
        console.print(f"{report} was written. {platform.python_version()}")


if __name__ == "__main__":
    main()
