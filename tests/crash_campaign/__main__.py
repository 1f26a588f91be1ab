"""``python -m tests.crash_campaign``: kill the broker many times, in every flush mode, and tell what was found."""

import asyncio
import logging
import random
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console
from rich.table import Table

from tests.campaign_page import write_summary
from tests.crash_campaign.campaign import MODES, Campaign, Report, as_json


@click.command()
@click.option("--kills", default=200, show_default=True, help="Kills altogether, shared by the flush modes.")
@click.option("--seed", type=int, help="Repeats the choices of a run.")
@click.option("--json", "json_output", is_flag=True, help="Print the reports as JSON.")
@click.option(
    "--report",
    "page",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Write the table into this page, between its two comments, if every promise was kept.",
)
def main(*, kills: int, seed: int | None, json_output: bool, page: Path | None) -> None:
    """Kill the broker under load again and again, and check every promise after each start."""
    logging.getLogger("rocket_client").setLevel(logging.ERROR)  # a broker that is away is the point here
    console = Console(stderr=json_output)
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    reports = []
    for mode in MODES:
        with (
            console.status(f"{mode}, seed {seed}: killing ..."),
            TemporaryDirectory(prefix="streamkit-crash-") as store,
        ):
            campaign = Campaign(Path(store), mode, seed)
            reports.append(asyncio.run(campaign.run(-(-kills // len(MODES)))))
    if json_output:
        print(as_json(reports))
    else:
        console.print(table(reports))
    problems = [problem for report in reports for problem in report.problems]
    for problem in problems:
        console.print(f"✗ {problem}", style="red")
    if problems:
        sys.exit(1)
    if page is not None:
        write_summary(page, "crash", markdown(reports))
        console.print(f"✓ Every promise was kept; the table is in {page}", style="green")


def rows(reports: list[Report]) -> dict[str, list[str]]:
    """Return what was found, by its name, with a cell for each report."""
    return {
        "kills": [f"{r.kills} ({r.kills_during_start} during a start)" for r in reports],
        "acknowledged messages": [f"{r.acknowledged:,}" for r in reports],
        "acknowledged and lost": [f"{r.lost:,}" for r in reports],
        "longest time between answer and kill of a lost one": [f"{r.lost_ms} ms" if r.lost else "–" for r in reports],
        "promises broken": [f"{len(r.problems)}" for r in reports],
        "sends without an answer, of them stored": [f"{r.unknown:,}, {r.unknown_stored:,}" for r in reports],
        "consumed more than once": [f"{r.repeated:,}" for r in reports],
        "start of the process, median": [f"{sorted(r.starts_ms)[len(r.starts_ms) // 2] / 1000:.1f} s" for r in reports],
        "start of the process, longest": [f"{max(r.starts_ms) / 1000:.1f} s" for r in reports],
    }


def table(reports: list[Report]) -> Table:
    """Return the reports side by side, for a terminal."""
    made = Table("", *(report.mode for report in reports), title=f"Crash campaign, seed {reports[0].seed}")
    for name, cells in rows(reports).items():
        made.add_row(name, *cells)
    return made


def markdown(reports: list[Report]) -> str:
    """Return the reports as a paragraph and a table of the documentation."""
    today = datetime.now(UTC)
    lines = [
        f"A run of {today.day} {today:%B %Y}, seed {reports[0].seed}:",
        "",
        "| | " + " | ".join(report.mode for report in reports) + " |",
        "|---" * (len(reports) + 1) + "|",
        *(f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows(reports).items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
