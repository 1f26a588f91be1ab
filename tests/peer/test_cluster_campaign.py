"""Two kills of the cluster campaign on Apache's controller pair; ``python -m tests.cluster_campaign`` makes more."""

import asyncio
from pathlib import Path
from random import SystemRandom

import pytest

from tests.cluster_campaign.campaign import LAYOUTS, Campaign
from tests.peer.conftest import require

KILLS = 2
ABSENCE = 1.0
"""Seconds at most until a killed master is started again; the campaign has more, in which it only waits."""


@pytest.mark.peer
@pytest.mark.timeout(1500)  # each wait has the campaign's own patience, of minutes
def test_nothing_is_lost_when_the_master_is_killed(tmp_path: Path) -> None:
    """Each kind of message goes on after a kill, and all that was acknowledged is received; the seed is printed."""
    require(LAYOUTS["controller"].version)
    campaign = Campaign(tmp_path, "controller", SystemRandom().randrange(2**32), longest_absence=ABSENCE)
    report = asyncio.run(campaign.run(KILLS))
    print(report)
    if report.ended == "cluster lost":
        raise TimeoutError(f"a killed master did not come back: {report}")
    assert not report.problems, report
    assert report.kills == KILLS
