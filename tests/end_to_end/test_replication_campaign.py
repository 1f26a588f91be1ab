"""One kill of the replication campaign; ``python -m tests.replication_campaign`` runs fifty."""

import asyncio
from pathlib import Path
from random import SystemRandom

import pytest

from tests.replication_campaign.campaign import Campaign


@pytest.mark.promise
@pytest.mark.slow
def test_a_killed_master_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """With SYNC_MASTER and a promotion, each message that was answered with SEND_OK is at its place."""
    seed = SystemRandom().randrange(2**32)
    report = asyncio.run(Campaign(tmp_path, seed).run("m"))
    assert not report.problems, f"seed {seed}: {report}"
    assert report.acknowledged > 10
