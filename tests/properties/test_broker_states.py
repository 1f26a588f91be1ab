"""Random sequences of valid requests by several clients leave a broker as a simple model predicts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.state_campaign.campaign import StateCampaign
from tests.state_campaign.shortest import shortest


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_broker_agrees_with_the_model(seed: int) -> None:
    """For a few short, fixed sequences; ``python -m tests.state_campaign`` runs thousands."""
    report = StateCampaign(1000 * seed, sequences=6, steps=40).run_round()
    assert not report.findings, "\n".join(map(str, report.findings))


@given(st.lists(st.integers(0, 20), max_size=60), st.sets(st.integers(0, 20), max_size=4))
def test_failing_sequence_is_shrunk_to_the_needed_steps(steps: list[int], needed: set[int]) -> None:
    """Wherever they are in it."""
    kept = shortest(steps, lambda part: needed & {*steps} <= {*part})
    assert sorted(kept) == sorted(needed & {*steps})
