"""A pipeline whose driver, executors, workers and broker are killed at random loses nothing and repeats nothing."""

import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.spark_campaign.copies import Copies

ROWS = 2200
KILLS = ["driver"] + ["worker"] * 5 + ["executor"] * 2 + ["broker"] * 3


@pytest.mark.promise
@pytest.mark.timeout(1500)
def test_kills_at_random_points_lose_nothing(tmp_path: Path) -> None:
    """The output equals a batch computation: each row once with `deduplicated`, at least once without."""
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    victims = list(KILLS)
    chance.shuffle(victims)
    with ExitStack() as stack:
        broken = Copies(tmp_path, stack).run(ROWS, victims, chance)
    assert not broken, f"seed {seed}: {victims}"
