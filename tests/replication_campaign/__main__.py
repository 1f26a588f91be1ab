"""``python -m tests.replication_campaign``: kill master or slave many times, and tell what was found."""

import asyncio
import logging
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from tests.replication_campaign.campaign import Campaign


@click.command()
@click.option("--kills", default=50, show_default=True, help="Kills of master or slave.")
@click.option("--seed", type=int, help="Repeats the choices of a run.")
def main(*, kills: int, seed: int | None) -> None:
    """Kill the master or the slave under load again and again, and check what senders were promised."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("tests.replication_campaign").setLevel(logging.INFO)
    logging.getLogger("rocket_client").setLevel(logging.ERROR)  # a broker that is away is the point here
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    chosen = "".join(random.Random(seed).choices("ms", weights=(2, 1), k=kills))
    with TemporaryDirectory(prefix="streamkit-replication-") as directory:
        report = asyncio.run(Campaign(Path(directory), seed).run(chosen))
    click.echo(report)
    sys.exit(bool(report.problems))


if __name__ == "__main__":
    main()
