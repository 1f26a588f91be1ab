"""``python -m tests.state_campaign``: send a broker random sequences of valid requests, and report what was found."""

import random
import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from tests import step_clock
from tests.campaign_page import write_summary
from tests.state_campaign.campaign import StateCampaign, StateReport


@click.command()
@click.option("--minutes", default=30.0, show_default=True, help="How long to go on.")
@click.option("--seed", type=int, help="Repeats the choices of a run.")
@click.option("--json", "json_output", is_flag=True, help="Print the report as JSON.")
@click.option(
    "--report",
    "page",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Write the summary into this page, between its two comments, if every promise was kept.",
)
def main(*, minutes: float, seed: int | None, json_output: bool, page: Path | None) -> None:
    """Send a broker random sequences of valid requests for some minutes, and compare it with a model."""
    step_clock.install()
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    click.echo(f"seed {seed}", err=True)
    report = StateCampaign(seed, progress=lambda text: click.echo(text, err=True)).run(minutes * 60)
    click.echo(report.as_json() if json_output else summary(report))
    if report.findings or report.slow_steps:
        sys.exit(1)
    if page is not None:
        write_summary(page, "state", summary(report))


def summary(report: StateReport) -> str:
    """Return the report as a paragraph of the documentation."""
    today, counts = datetime.now(UTC), report.counts
    run = (
        f"A run of {today.day} {today:%B %Y}, seed {report.seed}: {report.seconds / 60:.0f} minutes, "
        f"{counts['sequences']:,} sequences with {counts['requests']:,} requests, {counts['kills']:,} kills; "
        f"{len(report.findings)} broken promises, {len(report.slow_steps)} steps of more than 50 ms; "
        f"memory of the process {report.memory_mib[0]} MiB after the first round, {report.memory_mib[-1]} MiB "
        "after the last."
    )
    findings = [f"- {finding.kind}, {finding.times:,} times" for finding in report.findings]
    steps = [f"- {milliseconds} ms while {step}" for step, milliseconds in report.slow_steps.items()]
    return "\n".join([run, *findings, *steps]) + "\n"


if __name__ == "__main__":
    main()
