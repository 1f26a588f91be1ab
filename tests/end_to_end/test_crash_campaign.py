"""A few kills of the crash campaign; ``make crashes`` runs hundreds."""

import asyncio
from pathlib import Path
from random import SystemRandom

import pytest

from tests.crash_campaign.campaign import MODES, Campaign


@pytest.mark.promise
@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_broker_killed_under_load_loses_nothing(tmp_path: Path, mode: str) -> None:
    """Acknowledged messages are at their offsets, in order, once, and are consumed; there are no others."""
    seed = SystemRandom().randrange(2**32)
    report = asyncio.run(Campaign(tmp_path, mode, seed).run(kills=4))
    assert not report.problems, f"seed {seed}: {report}"
    assert report.acknowledged > 100
