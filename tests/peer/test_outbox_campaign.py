"""A few runs of the outbox campaign on each database; ``python -m tests.outbox_campaign`` makes hundreds."""

from pathlib import Path
from random import SystemRandom

import pytest

from tests.outbox_campaign.campaign import Campaign
from tests.outbox_campaign.stage import Stage

RUNS = {"postgresql": 7, "mariadb": 7, "sqlite": 6}


@pytest.mark.promise
@pytest.mark.timeout(600)
@pytest.mark.parametrize("database", [pytest.param(name, marks=pytest.mark.peer, id=name) for name in RUNS])
def test_each_order_is_reserved_once_whatever_is_killed(
    request: pytest.FixtureRequest, database: str, tmp_path: Path
) -> None:
    """Taken orders are reserved and confirmed, with each isolation level; the seeds are printed."""
    server = "" if database == "sqlite" else request.getfixturevalue(f"{database}_server")
    seed = SystemRandom().randrange(2**32)
    with Stage(tmp_path, database, server) as stage:
        for number in range(RUNS[database]):
            report = Campaign(stage, seed + number).run(orders=50, kills=1 + number % 3)
            print(report)
            assert not report.problems, f"{report}\n{report.logs}"
