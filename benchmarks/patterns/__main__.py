"""`python -m benchmarks.patterns`: measure outbox, idempotent listeners and local store, and write their section."""

import platform
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
from rich.console import Console
from sqlalchemy.engine import make_url

from benchmarks.page import Section, Table, console_tables, write_section
from benchmarks.patterns import inbox, local_store, outbox
from tests.peer.artifacts import PeersUnavailableError
from tests.peer.database_servers import SERVERS

DATABASES = ("postgresql", "mariadb", "redis")
"""The servers that are started; SQLite needs none."""
DRIVERS = {"postgresql": ("asyncpg", "psycopg"), "mariadb": ("aiomysql", "pymysql"), "sqlite": ("aiosqlite", "")}
"""For each database of the outbox, its asynchronous and its blocking driver."""


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Rounds; the median of each figure counts.")
@click.option("--scale", default=1.0, show_default=True, help="Number of messages, as a part of the usual one.")
@click.option("--without", multiple=True, type=click.Choice(DATABASES), help="Leave out these servers.")
@click.option("--report", type=click.Path(exists=True, path_type=Path), help="The page that gets the section.")
def main(*, rounds: int, scale: float, without: tuple[str, ...], report: Path | None) -> None:
    """Measure what the outbox, idempotent listeners and the local store cost, on each database that can be started."""
    console = Console(stderr=True)
    with servers([name for name in DATABASES if name not in without], console) as urls:
        section = made(urls, rounds, scale, console)
    for table in console_tables(section):
        console.print(table)
    if report is not None:
        write_section(report, section)


@contextmanager
def servers(names: Sequence[str], console: Console) -> Iterator[Mapping[str, str]]:
    """Start servers, and return the URL of each that this machine has or can get."""
    with ExitStack() as stack:
        urls = {}
        for name in names:
            try:
                urls[name] = stack.enter_context(SERVERS[name]()).url
            except PeersUnavailableError as error:
                console.print(f"left out: {name}: {error}")
        yield urls


def made(urls: Mapping[str, str], rounds: int, scale: float, console: Console) -> Section:
    """Measure everything in turns, and return the section."""
    rows, singles, messages = (max(1, round(count * scale)) for count in (5_000, 200, 2_000))
    outboxes: dict[str, list[outbox.OutboxFigures]] = {}
    inboxes: dict[str, list[inbox.InboxFigures]] = {}
    stores: dict[int, list[local_store.StoreFigures]] = {}
    for number in range(rounds):
        with tempfile.TemporaryDirectory(prefix="streamkit-patterns-") as home:
            files = {**urls, "sqlite": f"sqlite:///{home}/outbox.db"}
            for name in (each for each in ("postgresql", "mariadb", "sqlite") if each in files):
                console.print(f"round {number + 1}: outbox on {name}", style="dim")
                found = outbox.measure(with_driver(files[name], DRIVERS[name][0]), rows=rows, singles=singles)
                outboxes.setdefault(name, []).append(found)
            for title, url in inbox_stores(files).items():
                console.print(f"round {number + 1}: idempotent listener, {title}", style="dim")
                inboxes.setdefault(title, []).append(inbox.measure(url, messages=messages))
            for senders, usual in ((1, 1_000), (64, 10_000)):
                console.print(f"round {number + 1}: local store, senders: {senders}", style="dim")
                count = max(senders, round(usual * scale))
                measured = local_store.measure(Path(home) / f"{senders}.db", senders=senders, messages=count)
                stores.setdefault(senders, []).append(measured)
    return section(outboxes, inboxes, stores, rounds=rounds, rows=rows)


def inbox_stores(files: Mapping[str, str]) -> dict[str, str]:
    """Return the URL of each store of marks, by what the table calls it."""
    found = {"memory": "memory"}
    if "redis" in files:
        found["Redis"] = files["redis"]
    for name in (each for each in DRIVERS if each in files):
        asynchronous, blocking = DRIVERS[name]
        found[f"{name}, `async def`"] = with_driver(files[name], asynchronous)
        found[f"{name}, `def`"] = with_driver(files[name], blocking)
    return found


def with_driver(url: str, driver: str) -> str:
    """Return the URL with a driver, or with none if it is empty."""
    made = make_url(url)
    name = made.get_backend_name()
    return made.set(drivername=f"{name}+{driver}" if driver else name).render_as_string(hide_password=False)


def section(
    outboxes: Mapping[str, Sequence[outbox.OutboxFigures]],
    inboxes: Mapping[str, Sequence[inbox.InboxFigures]],
    stores: Mapping[int, Sequence[local_store.StoreFigures]],
    *,
    rounds: int,
    rows: int,
) -> Section:
    """Return the section of the page."""
    median = statistics.median
    return Section(
        "Outbox, idempotent listeners, local store",
        "patterns",
        [
            (
                "`python -m benchmarks.patterns --report docs/performance.md` wrote this section. Database servers, "
                "broker and application run on one machine, and the servers do not wait for the disk. The figures are "
                f"medians of {rounds} rounds. Python {platform.python_version()} on {platform.system()} "
                f"{platform.machine()}."
            ),
            (
                f"[The outbox](outbox.md), with payloads of 200 bytes: {rows:,} rows of one transaction, then rows "
                "that are committed one after the other, from the commit to the broker's answer; a plain send to the "
                "same broker stands beside them. [Idempotent listeners](idempotence.md) handle one message after the "
                "other and do nothing. [The local store](local-store.md) keeps messages of 500 bytes in a file."
            ),
        ],
        [
            Table(
                ["outbox", "inserted", "relayed", "commit to answer", "plain send"],
                [
                    [
                        name,
                        f"{median(each.inserted for each in found):,.0f}/s",
                        f"{median(each.relayed for each in found):,.0f}/s",
                        times([each.commits for each in found]),
                        times([each.sends for each in found]),
                    ]
                    for name, found in outboxes.items()
                ],
            ),
            Table(
                ["idempotent listener", "new message", "of it CPU here", "duplicate", "of it CPU here"],
                [
                    [
                        name,
                        *(
                            f"{median(getattr(each, figure) for each in found) * 1e6:,.0f} µs"
                            for figure in ("new", "new_cpu", "duplicate", "duplicate_cpu")
                        ),
                    ]
                    for name, found in inboxes.items()
                ],
            ),
            Table(
                ["local store", "kept", "CPU of each", "sent later"],
                [
                    [
                        "1 sender" if senders == 1 else f"{senders} senders",
                        f"{median(each.kept for each in found):,.0f}/s",
                        f"{median(each.kept_cpu for each in found) * 1e6:,.0f} µs",
                        f"{median(each.sent for each in found):,.0f}/s",
                    ]
                    for senders, found in stores.items()
                ],
            ),
        ],
    )


def times(rounds: Sequence[Sequence[float]]) -> str:
    """Return the medians, over rounds, of the median and of the 95th percentile of sorted times."""
    middle = statistics.median(statistics.median(each) for each in rounds)
    late = statistics.median(each[len(each) * 95 // 100] for each in rounds)
    return f"{middle * 1000:.2f} ms, 95 % below {late * 1000:.2f} ms"


if __name__ == "__main__":
    main()
