"""Random sequences of valid requests by several clients leave a broker as a simple model says it must be."""

import pytest

from tests.state_campaign.campaign import StateCampaign


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_broker_keeps_its_promises_whatever_its_clients_ask(seed: int) -> None:
    """A few short sequences, the same each time; ``python -m tests.state_campaign`` runs thousands."""
    report = StateCampaign(1000 * seed, sequences=6, steps=40).run_round()
    assert not report.findings, "\n".join(map(str, report.findings))
