"""A few kills of the campaign; ``make crashes`` runs hundreds."""

import asyncio
from pathlib import Path
from random import SystemRandom

import pytest

from tests.crash_campaign.campaign import MODES, Campaign


@pytest.mark.promise
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_broker_killed_under_load_keeps_its_promises(tmp_path: Path, mode: str) -> None:
    """What was acknowledged is at its place, in order, once, and is consumed; nothing else is there."""
    seed = SystemRandom().randrange(2**32)
    report = asyncio.run(Campaign(tmp_path, mode, seed).run(kills=4))
    assert not report.problems, f"seed {seed}: {report}"
    assert report.acknowledged > 100
