"""`python -m benchmarks.console`: how long the console's pages take on a cluster with many topics, groups and messages.

A broker, the console and this program are three processes. Each page is loaded once after the start of the console, and
then again: the first figure includes what the console keeps between pages.
"""

import asyncio
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import click
import httpx
from rich.console import Console

from benchmarks.brokers import bundled_broker_of
from benchmarks.page import Section, Table, console_tables, write_section
from benchmarks.process import cpu_seconds
from rocket_client import Producer, ProducerSettings
from rocket_remoting import Message
from rocket_remoting.wire.topics import dlq_topic

TITLE: Final = "The console"
LIMIT: Final = 1.0
"""Seconds in which a page should be there."""

_PATIENCE: Final = timedelta(minutes=1)
_BATCH: Final = 500
_AT_ONCE: Final = 32
_ORDERS: Final = "topic-00007"
_GROUP: Final = "group-0007"
_PADDING: Final = "x" * 64


@dataclass(frozen=True, slots=True)
class Timed:
    """How long a page took.

    Attributes:
        name: What the page shows.
        first: Seconds of the first load.
        again: Seconds of each further load.
        console_cpu: Seconds of CPU of the console for each further load.
        broker_cpu: Those of the broker.
        size: Bytes of the page.
    """

    name: str
    first: float
    again: Sequence[float]
    console_cpu: float
    broker_cpu: float
    size: int


def write_tables(home: Path, topics: int, groups: int, *, queues: int = 4) -> None:
    """Write the tables of a broker that has topics and groups: to create them one by one would take minutes.

    Args:
        home: The store's directory.
        topics: The number of topics.
        groups: The number of groups; each has committed offsets in one topic, and every tenth has dead letters.
        queues: The number of queues of each topic.
    """
    names = [f"group-{number:04}" for number in range(groups)]
    counts = {f"topic-{number:05}": queues for number in range(topics)} | {dlq_topic(name): 1 for name in names[7::10]}
    configs = {
        name: {"topicName": name, "readQueueNums": count, "writeQueueNums": count, "perm": 6}
        for name, count in counts.items()
    }
    committed = dict.fromkeys(map(str, range(queues)), 0)
    offsets = {f"topic-{number % topics:05}@{name}": committed for number, name in enumerate(names)}
    tables: dict[str, dict[str, object]] = {
        "topics": {"topicConfigTable": configs},
        "subscriptionGroup": {"subscriptionGroupTable": {name: {"groupName": name} for name in names}},
        "consumerOffset": {"offsetTable": offsets},
    }
    directory = home / "config"
    directory.mkdir(parents=True)
    for name, table in tables.items():
        version = {"timestamp": int(time.time() * 1000), "counter": 1}
        (directory / f"{name}.json").write_text(json.dumps({"dataVersion": version, **table}))


async def send(name_server: str, messages: int, say: Callable[[str], None]) -> str:
    """Send messages and dead letters; return the sender's id of one message.

    Args:
        name_server: The name server of the broker.
        messages: The number of messages in one of the topics.
        say: Called with what is being done.
    """
    turns = asyncio.Semaphore(_AT_ONCE)
    settings = ProducerSettings(name_servers=name_server, send_timeout=_PATIENCE)
    async with Producer("bench", settings) as producer:
        sent = await producer.send(Message(_ORDERS, b'{"order": -1}', keys="first"))
        for number in range(50):
            await producer.send(Message(dlq_topic(_GROUP), b"letter %d" % number, keys=f"l{number}"))

        async def send_from(begin: int) -> None:
            async with turns:
                batch = [
                    Message(_ORDERS, f'{{"order": {number}, "text": "{_PADDING}"}}'.encode(), keys=f"k{number}")
                    for number in range(begin, min(begin + _BATCH, messages))
                ]
                await producer.send_batch(batch)

        for begin in range(0, messages, _BATCH * _AT_ONCE):
            say(f"{begin:,} of {messages:,} messages ...")
            end = min(begin + _BATCH * _AT_ONCE, messages)
            await asyncio.gather(*map(send_from, range(begin, end, _BATCH)))
    return sent.msg_id


@contextmanager
def console_of(name_server: str, directory: Path) -> Iterator[tuple[str, int]]:
    """`streamkit console` as a process; yield its address and the id of the process."""
    command = [sys.executable, "-m", "streamkit.cli", "console", "--name-server", name_server, "--port", "0"]
    command += ["--audit-log", str(directory / "audit.log")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split(" at ")[1].partition(";")[0], process.pid
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def pages(message_id: str) -> dict[str, str]:
    """Return the addresses of pages by what they show."""
    return {
        "overview": "/",
        "topics": "/topics",
        "topics, filtered": "/topics?topics.q=99",
        "topics, the last page": "/topics?topics.page=100000",
        "topics as JSON": "/topics?export=topics.json",
        "a topic": f"/topics/{_ORDERS}",
        "its newest messages": f"/topics/{_ORDERS}/messages",
        "its oldest messages": f"/topics/{_ORDERS}/messages?from=oldest",
        "its live tail": f"/topics/{_ORDERS}/tail",
        "its producers and consumers": f"/topics/{_ORDERS}/clients",
        "groups": "/groups",
        "groups by lag": "/groups?groups.order=-lag",
        "a group": f"/groups/{_GROUP}",
        "its members": f"/groups/{_GROUP}/members",
        "its reset of offsets": f"/groups/{_GROUP}/reset",
        "search by key": f"/messages?topic={_ORDERS}&key=k7",
        "search by text, a part": f"/messages?topic={_ORDERS}&where=body~nothing",
        "search by JSON path, a part": f"/messages?topic={_ORDERS}&where=%24.order=-7",
        "search by id in a topic": f"/messages?topic={_ORDERS}&id={message_id}",
        "search by id in all topics": "/messages?id=7F0000010000000000000000000000FF",
        "a message": f"/messages/{message_id}?topic={_ORDERS}",
        "half messages": "/half-messages",
        "dead letters": "/dead-letters",
        "dead letters of a group": f"/dead-letters/{_GROUP}",
        "brokers": "/brokers",
        "a broker": "/brokers/broker-a",
    }


def load(url: str, message_id: str, rounds: int, console: int, broker: int) -> list[Timed]:
    """Load all pages, and return how long each took.

    Args:
        url: The address of the console.
        message_id: The id of a message.
        rounds: The number of loads of each page after the first.
        console: The id of the console's process.
        broker: That of the broker's.
    """
    found = []
    with httpx.Client(base_url=url, timeout=60) as browser:

        def seconds_of(address: str) -> tuple[float, int]:
            begun = time.perf_counter()
            answer = browser.get(address)
            if answer.status_code not in (httpx.codes.OK, httpx.codes.GATEWAY_TIMEOUT):
                raise RuntimeError(f"{address}: {answer.status_code} {answer.text[:500]}")
            return time.perf_counter() - begun, len(answer.content)

        for name, address in pages(message_id).items():
            first, size = seconds_of(address)
            before = cpu_seconds(console), cpu_seconds(broker)
            again = [seconds_of(address)[0] for _ in range(rounds)]
            used = cpu_seconds(console) - before[0], cpu_seconds(broker) - before[1]
            found.append(Timed(name, first, again, used[0] / rounds, used[1] / rounds, size))
    return found


def section(timed: Sequence[Timed], topics: int, groups: int, messages: int) -> Section:
    """Return the section of the page of figures."""
    text = (
        "`python -m benchmarks.console --report docs/performance.md` wrote this section. Each page was loaded from "
        "`streamkit console` over HTTP, once and then again; the figures are the first load, the median of the "
        "others, and the CPU that each of those took. "
        f"The bundled broker had {topics:,} topics, {groups:,} groups and {messages:,} messages in one topic. "
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}."
    )
    rows = []
    for each in timed:
        first, again = _milliseconds(each.first), _milliseconds(statistics.median(each.again))
        cpu = f"{each.console_cpu * 1000:,.0f} + {each.broker_cpu * 1000:,.0f} ms"
        rows.append((each.name, first, again, cpu, f"{each.size / 1024:,.0f} KiB"))
    note = (
        "A search without an index reads up to 20,000 messages in each of its parts, or as many as it can in 0.6 s. A "
        "list that is sorted by what only brokers know, such as the lag of groups, has what was asked within that time."
    )
    return Section(
        TITLE,
        "console",
        [text],
        [Table(("page", "first", "again", "CPU: console + broker", "size"), rows)],
        notes=[note],
    )


def _milliseconds(seconds: float) -> str:
    return f"{'**' if seconds > LIMIT else ''}{seconds * 1000:,.0f} ms{'**' if seconds > LIMIT else ''}"


@click.command()
@click.option("--topics", default=10_000, show_default=True, help="The number of topics.")
@click.option("--groups", default=1_000, show_default=True, help="The number of groups.")
@click.option("--messages", default=1_000_000, show_default=True, help="The number of messages in one topic.")
@click.option("--rounds", default=5, show_default=True, help="Loads of each page after the first.")
@click.option("--report", type=click.Path(exists=True, path_type=Path), help="The page that gets the section.")
def main(*, topics: int, groups: int, messages: int, rounds: int, report: Path | None) -> None:
    """Fill a broker, load the console's pages, and print the table."""
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="streamkit-bench-") as home, console.status("") as status:
        directory = Path(home)
        write_tables(directory, topics, groups)
        with bundled_broker_of(directory) as broker:
            message_id = asyncio.run(send(broker.name_server, messages, status.update))
            status.update("pages ...")
            with console_of(broker.name_server, directory) as (url, pid):
                timed = load(url, message_id, rounds, pid, broker.pid)
    found = section(timed, topics, groups, messages)
    for table in console_tables(found):
        console.print(table)
    if report is not None:
        write_section(report, found)


if __name__ == "__main__":
    main()
