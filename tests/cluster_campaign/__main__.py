"""``python -m tests.cluster_campaign``: kill masters of Apache's clusters, and report what was found.

The kills of a layout may be made in several sittings, each with a cluster of its own. What a sitting has found is in a
file, so the same command continues a campaign that was interrupted.
"""

import asyncio
import logging
import random
import signal
import statistics
import sys
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from tests.campaign_page import write_summary
from tests.campaign_record import Record, revision
from tests.cluster_campaign.campaign import LAYOUTS, Campaign
from tests.cluster_campaign.ledger import KINDS, Kind
from tests.cluster_campaign.report import Layout, Report
from tests.dates import next_time, period, today

RECORD: Final = Path(__file__).with_name("sittings.jsonl")
"""The file of the campaign that the documentation reports."""
NAMES: Final[dict[Layout, str]] = {
    "controller": "two replicas and their controller",
    "masters": "two masters with a slave each",
}
INTERRUPTS: Final = (signal.SIGINT, signal.SIGTERM)


@click.command()
@click.option("--layout", type=click.Choice(list(LAYOUTS)), required=True, help="The cluster's kind.")
@click.option(
    "--kills", default=20, show_default=True, help="Kills of a master altogether; those in the record are not repeated."
)
@click.option("--spark", "has_spark", is_flag=True, help="Have a query of Spark read a topic of the cluster as well.")
@click.option("--seed", type=int, help="Make all kills with the choices of this seed, without recording them.")
@click.option(
    "--until",
    type=click.DateTime(["%H:%M"]),
    help="Make no further kill if the campaign would then end after this time of day; a kill is expected to last as "
    "long as the longest one so far.",
)
@click.option(
    "--record", "file", type=click.Path(path_type=Path), default=RECORD, help="The file of sittings, to continue."
)
@click.option(
    "--report",
    "page",
    type=click.Path(path_type=Path, exists=True),
    help="Write the summary of all recorded sittings into this page, between the layout's two comments.",
)
def main(
    *,
    layout: Layout,
    kills: int,
    has_spark: bool,
    seed: int | None,
    until: datetime | None,
    file: Path,
    page: Path | None,
) -> None:
    """Kill a master under load again and again, and check what was promised to senders and receivers.

    Ctrl-C or SIGTERM finishes the present kill, waits until all is received, and reports what was found. A second one
    ends the campaign at once, without a report.

    The exit status is 1 if this sitting has broken a promise, or its cluster did not come back.
    """
    logging.basicConfig(level=logging.ERROR, format="%(asctime)s %(message)s")
    logging.getLogger("tests.cluster_campaign").setLevel(logging.INFO)
    end = None if until is None else next_time(until)
    made: Report | None = None
    if seed is not None:
        made = sit(layout, kills, seed, end, has_spark=has_spark)
        click.echo(summary([made], of=kills))
    else:
        record = Record(file, Report)
        rest = kills - sum(report.kills for report in record.reports if report.layout == layout)
        if rest > 0:
            made = sit(layout, rest, random.SystemRandom().randrange(2**32), end, has_spark=has_spark)
        if made is not None and (made.kills or made.problems):
            record.add(made)
        reports = [report for report in record.reports if report.layout == layout]
        if reports:
            text = summary(reports, of=kills)
            click.echo(text)
            if page is not None:
                write_summary(page, "cluster", text, part=layout)
                click.echo(f"The summary is in {page}")
    if made is not None and (made.problems or made.ended == "cluster lost"):
        sys.exit(1)


def sit(layout: Layout, kills: int, seed: int, until: datetime | None, *, has_spark: bool) -> Report:
    """Make so many kills, fewer if the process is interrupted or the time is over; return and print what was found."""
    with TemporaryDirectory(prefix="streamkit-cluster-", ignore_cleanup_errors=True) as directory:
        report = asyncio.run(run(Campaign(Path(directory), layout, seed, has_spark=has_spark), kills, until))
    report.day, report.revision = today(), revision()
    click.echo(report)
    return report


async def run(campaign: Campaign, kills: int, until: datetime | None) -> Report:
    """Run a campaign that the first interrupt ends in order, and the second one at once."""
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        for number in INTERRUPTS:
            loop.remove_signal_handler(number)
        click.echo("Finishing the present kill; interrupt again to end at once, without a report.", err=True)
        campaign.end_soon()

    for number in INTERRUPTS:
        loop.add_signal_handler(number, interrupt)
    return await campaign.run(kills, until)


def summary(reports: list[Report], *, of: int) -> str:
    """Return the reports of a layout as a paragraph and a table of the documentation, with the broken promises.

    Args:
        reports: At least one.
        of: How many kills the campaign has altogether.
    """
    pauses = {kind: [pause for report in reports for pause in report.pauses[kind]] or [0.0] for kind in KINDS}

    def total(counts: list[dict[Kind, int]]) -> list[str]:
        return [f"{sum(each[kind] for each in counts):,}" for kind in KINDS]

    rows = {
        "acknowledged": total([report.acknowledged for report in reports]),
        "acknowledged and not received": total([report.missing for report in reports]),
        "received more than once": total([report.repeated for report in reports]),
        "attempts to send that failed": total([report.failed for report in reports]),
        "longest send with all attempts, s": [
            f"{max(report.longest_send[kind] for report in reports):.1f}" for kind in KINDS
        ],
        "received again after a kill, median, s": [f"{statistics.median(pauses[kind]):.1f}" for kind in KINDS],
        "received again after a kill, longest, s": [f"{max(pauses[kind]):.1f}" for kind in KINDS],
    }
    layout = reports[0].layout
    versions = " and ".join(sorted({report.version for report in reports}))
    sittings = "one sitting" if len(reports) == 1 else f"{len(reports)} sittings"
    title = (
        f"{NAMES[layout].capitalize()}, Apache {versions}, {period(report.day for report in reports)}: "
        f"{sum(report.kills for report in reports)} of {of} kills of a master, in {sittings} of "
        f"{sum(report.seconds for report in reports) / 60:.0f} minutes altogether, "
        f"{sum(len(report.problems) for report in reports)} broken promises."
    )
    are_kept = not any(report.problems for report in reports)
    reserved = ", each reserved once" if are_kept else ""
    named = ", which named the server that did not answer" if are_kept else ""
    beside = (
        f"Beside it {sum(report.orders for report in reports):,} orders went through the outbox{reserved}; "
        f"the longest time without a confirmation was {max(report.orders_pause for report in reports):.0f} s. Of "
        f"{sum(report.pages for report in reports):,} pages of the console "
        f"{sum(report.page_errors for report in reports):,} showed an error{named}; "
        f"the slowest took {max(report.slowest_page for report in reports):.1f} s."
    )
    if counted := sum(report.counted for report in reports):
        restarts = sum(report.query_restarts for report in reports)
        once = ", each once" if are_kept else ""
        beside += f" A query of Spark counted {counted:,} ordered messages{once}; it was restarted {restarts} times."
    lines = [
        title,
        "",
        "| | " + " | ".join(KINDS) + " |",
        "|---" * (len(KINDS) + 1) + "|",
        *(f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items()),
        "",
        beside,
    ]
    for report in reports:
        for problem in report.problems:
            lines += ["", f"Seed {report.seed}, at {report.revision}: {problem}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
