"""``python -m tests.outbox_campaign``: kill shop, relay, stock, broker and connections, and compare the tables.

The campaign is a list of runs, each with a number, which is its seed. Its database and its isolation level follow from
the number. A run that has ended is in a file, so the campaign can be made in several goes. The databases are tested
side by side.
"""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console
from rich.table import Table

from tests.campaign_page import write_summary
from tests.campaign_record import Record, revision
from tests.dates import next_time, period, today
from tests.outbox_campaign.campaign import Campaign, Report
from tests.outbox_campaign.stage import LEVELS, Stage
from tests.peer.database_servers import SERVERS

RECORD = Path(__file__).with_name("runs.jsonl")
"""The file of the campaign that the documentation reports."""
ALL = tuple(LEVELS)
FIRST_SECONDS = 60.0
"""How long the first run is expected to last, of several before a time of day; others as long as the one before."""


@click.command()
@click.option("--runs", default=200, show_default=True, help="Runs altogether; those in the record are not repeated.")
@click.option("--orders", default=1000, show_default=True, help="Orders of each run.")
@click.option("--kills", default=10, show_default=True, help="Kills of each run.")
@click.option("--database", "databases", type=click.Choice(ALL), multiple=True, help="Only its runs; may be repeated.")
@click.option("--seed", type=int, help="Repeat this run alone, without recording it.")
@click.option(
    "--until",
    type=click.DateTime(["%H:%M"]),
    help="Begin no run that would end after this time of day, if it lasted as long as the last one.",
)
@click.option(
    "--record", "file", type=click.Path(path_type=Path), default=RECORD, help="The file of finished runs, to continue."
)
@click.option("--report", "page", type=click.Path(path_type=Path, exists=True), help="Page to write the table into.")
def main(
    *,
    runs: int,
    orders: int,
    kills: int,
    databases: tuple[str, ...],
    seed: int | None,
    until: datetime | None,
    file: Path,
    page: Path | None,
) -> None:
    """Take orders over the outbox while everything is killed, and compare the tables of shop and stock.

    The exit status is 1 if a run of this call has broken a promise.
    """
    console = Console(soft_wrap=True)
    if seed is not None:
        database = databases[0] if databases else database_of(seed)
        with stage(database) as alone:
            reports = [Campaign(alone, seed).run(orders, kills)]
        show(console, reports[0], "1/1")
    else:
        record = Record(file, Report)
        refuse_other_sizes(record, orders, file)
        end = None if until is None else next_time(until)
        rest = Rest(console, record, runs, end)
        with ThreadPoolExecutor(len(ALL)) as threads:
            works = [threads.submit(rest.make, database, orders, kills) for database in databases or ALL]
            reports = [report for work in works for report in work.result()]
        if record.reports:
            console.print(table(record.reports))
            if page is not None:
                write_summary(page, "outbox", markdown(record.reports, of=runs))
                console.print(f"The table is in {page}")
    if any(report.problems for report in reports):
        sys.exit(1)


def database_of(seed: int) -> str:
    """Return the database of a run of the campaign."""
    return ALL[seed % len(ALL)]


def refuse_other_sizes(record: Record[Report], orders: int, file: Path) -> None:
    """Refuse to add runs to others that had more or fewer orders.

    Raises:
        UsageError: The record has other runs.
    """
    others = {report.asked for report in record.reports} - {orders}
    if others:
        raise click.UsageError(f"{file} has runs of {others.pop()} orders: name another file with --record")


class Rest:
    """The runs of a campaign that are not in its record yet."""

    def __init__(self, console: Console, record: Record[Report], runs: int, until: datetime | None) -> None:
        """Prepare them.

        Args:
            console: Gets a line for each run.
            record: Gets each run when it has ended.
            runs: How many the campaign has, with those of the record.
            until: When they have to be over; None for any time.
        """
        self._console = console
        self._record = record
        self._runs = runs
        self._until = until
        self._revision = revision()

    def make(self, database: str, orders: int, kills: int) -> list[Report]:
        """Make the runs on one database, one after the other; return their reports."""
        done = {report.seed for report in self._record.reports}
        seeds = [seed for seed in range(self._runs) if database_of(seed) == database and seed not in done]
        reports: list[Report] = []
        seconds = FIRST_SECONDS
        with ExitStack() as stack:
            servers: Stage | None = None
            for seed in seeds:
                if self._until is not None and datetime.now(UTC) + timedelta(seconds=seconds) > self._until:
                    self._console.print(f"{database}: stopped; the same command continues.")
                    break
                servers = servers or stack.enter_context(stage(database))
                report = Campaign(servers, seed).run(orders, kills)
                report.day, report.revision = today(), self._revision
                self._record.add(report)
                reports.append(report)
                seconds = report.seconds
                show(self._console, report, f"{len(self._record.reports)}/{self._runs}")
        return reports


def show(console: Console, report: Report, progress: str) -> None:
    """Print a report."""
    console.print(f"{progress} {report}", style="red" if report.problems else None, markup=False)
    for log, text in report.logs.items():
        console.print(f"{log}: {text}", markup=False)


@contextmanager
def stage(database: str) -> Iterator[Stage]:
    """Start a database and a broker for runs."""
    with ExitStack() as stack:
        home = stack.enter_context(TemporaryDirectory(prefix="streamkit-outbox-", ignore_cleanup_errors=True))
        server = stack.enter_context(SERVERS[database]()).url if database in SERVERS else ""
        yield stack.enter_context(Stage(Path(home), database, server))


def rows(reports: list[Report]) -> dict[str, list[str]]:
    """Return what was found, by its name, with a cell for each database."""
    columns = [[each for each in reports if each.database == database] for database in databases_of(reports)]
    attacks = {
        "shop": "kills of the sender",
        "relay": "kills of the relay",
        "stock": "kills of the consumer",
        "broker": "kills of the broker",
        "connections": "kills of all connections of the database",
        "relay stopped": "stops of the relay beyond its lease",
    }
    return {
        "runs": [f"{len(own)}" for own in columns],
        "isolation levels": [", ".join(sorted({each.level for each in own})) for own in columns],
        "orders": [f"{sum(each.orders for each in own):,}" for own in columns],
        **{
            name: [f"{sum(each.kills.get(attack, 0) for each in own)}" for own in columns]
            for attack, name in attacks.items()
        },
        "services that ended by themselves, and were started again": [
            f"{sum(count for each in own for attack, count in each.kills.items() if attack not in attacks)}"
            for own in columns
        ],
        "orders missing or reserved twice": [f"{sum(each.wrong for each in own)}" for own in columns],
        "runs with a broken promise": [f"{sum(bool(each.problems) for each in own)}" for own in columns],
        "sent again, because the consumer did not know it": [
            f"{sum(each.sent_again for each in own):,}" for own in columns
        ],
        "seconds of a run, median": [f"{sorted(each.seconds for each in own)[len(own) // 2]:.0f}" for own in columns],
        "seconds of a run, longest": [f"{max(each.seconds for each in own):.0f}" for own in columns],
        "seconds without progress, longest": [f"{max(each.pause for each in own):.1f}" for own in columns],
    }


def databases_of(reports: list[Report]) -> list[str]:
    """Return the databases that have runs."""
    return [database for database in ALL if any(report.database == database for report in reports)]


def table(reports: list[Report]) -> Table:
    """Return what was found, for a terminal."""
    made = Table("", *databases_of(reports), title="Outbox campaign")
    for name, cells in rows(reports).items():
        made.add_row(name, *cells)
    return made


def markdown(reports: list[Report], *, of: int) -> str:
    """Return the reports as a paragraph and a table of the documentation, with the runs that broke a promise."""
    minutes = sum(report.seconds for report in reports) / 60
    days = period(report.day for report in reports)
    names = databases_of(reports)
    lines = [
        f"{len(reports)} of {of} runs, of {days}, in {minutes:.0f} minutes altogether:",
        "",
        "| | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
        *(f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows(reports).items()),
    ]
    for report in sorted(reports, key=lambda report: report.seed):
        for problem in report.problems:
            lines += ["", f"Run {report.seed}, {report.database} with {report.level}, at {report.revision}: {problem}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
