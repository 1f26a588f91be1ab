"""Sequences of valid requests by several clients leave a broker as a simple model says it must be."""

import pytest
from hypothesis import settings

from tests.state_campaign.machine import BrokerMachine

TestBrokerStates = pytest.mark.slow(BrokerMachine.TestCase)
TestBrokerStates.settings = settings(
    max_examples=8, stateful_step_count=40, deadline=None, derandomize=True, database=None
)
