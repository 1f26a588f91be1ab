"""``python -m tests.crash_campaign``: kill the broker many times, in every flush mode, and print what was found."""

import asyncio
import logging
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console
from rich.table import Table

from tests.crash_campaign.campaign import Campaign, Report, as_json

MODES = ("ASYNC_FLUSH", "SYNC_FLUSH")


@click.command()
@click.option("--kills", default=200, show_default=True, help="Kills altogether, shared by the flush modes.")
@click.option("--seed", type=int, help="Repeats the choices of a run.")
@click.option("--json", "json_output", is_flag=True, help="Print the reports as JSON.")
def main(*, kills: int, seed: int | None, json_output: bool) -> None:
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
        for problem in (problem for report in reports for problem in report.problems):
            console.print(f"✗ {problem}", style="red")
    if any(report.problems for report in reports):
        sys.exit(1)


def table(reports: list[Report]) -> Table:
    """Return the reports side by side."""
    made = Table("", *(report.mode for report in reports), title=f"Crash campaign, seed {reports[0].seed}")
    rows = {
        "kills": [f"{r.kills} ({r.kills_during_start} during a start)" for r in reports],
        "acknowledged messages": [f"{r.acknowledged:,}" for r in reports],
        "acknowledged and lost, or elsewhere": [f"{len(r.problems)}" for r in reports],
        "sends without an answer, of them stored": [f"{r.unknown:,}, {r.unknown_stored:,}" for r in reports],
        "consumed more than once": [f"{r.repeated:,}" for r in reports],
        "start, median": [f"{sorted(r.starts_ms)[len(r.starts_ms) // 2]} ms" for r in reports],
        "start, longest": [f"{max(r.starts_ms)} ms" for r in reports],
    }
    for name, cells in rows.items():
        made.add_row(name, *cells)
    return made


if __name__ == "__main__":
    main()
