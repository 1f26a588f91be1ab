"""``python -m tests.replication_campaign``: kill master or slave many times, and tell what was found."""

import asyncio
import logging
import random
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from tests.campaign_page import write_summary
from tests.replication_campaign.campaign import Campaign, Report


@click.command()
@click.option("--kills", default=50, show_default=True, help="Kills of master or slave.")
@click.option("--seed", type=int, help="Repeats the choices of a run.")
@click.option(
    "--report",
    "page",
    type=click.Path(path_type=Path, exists=True),
    help="Write the summary into this page, between its two comments, if every promise was kept.",
)
def main(*, kills: int, seed: int | None, page: Path | None) -> None:
    """Kill the master or the slave under load again and again, and check what senders were promised."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("tests.replication_campaign").setLevel(logging.INFO)
    logging.getLogger("rocket_client").setLevel(logging.ERROR)  # a broker that is away is the point here
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    chosen = "".join(random.Random(seed).choices("ms", weights=(2, 1), k=kills))
    with TemporaryDirectory(prefix="streamkit-replication-") as directory:
        report = asyncio.run(Campaign(Path(directory), seed).run(chosen))
    click.echo(report)
    if report.problems:
        sys.exit(1)
    if page is not None:
        write_summary(page, "replication", summary(report))


def summary(report: Report) -> str:
    """Return the report of a run that kept every promise, as a paragraph of the documentation."""
    today = datetime.now(UTC)
    return (
        f"A run of {today.day} {today:%B %Y}, seed {report.seed}: {report.master_kills} kills of the master and "
        f"{report.slave_kills} of the slave; {report.acknowledged:,} messages answered with `SEND_OK`, none lost; "
        f"{report.without_slave:,} answered that no slave has them, {report.unknown:,} without an answer.\n"
    )


if __name__ == "__main__":
    main()
