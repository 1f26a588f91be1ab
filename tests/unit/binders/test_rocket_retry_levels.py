"""The delay level of a redelivery for which a listener asks for a pause."""

from datetime import timedelta

import pytest

from binders.rocket.consumer import retry_level
from streamkit.binder.delivery import Delivery
from streamkit.settlement import Requeue


@pytest.mark.parametrize(("seconds", "level"), [(0, 1), (1, 1), (1.5, 2), (10, 3), (10.001, 4), (7200, 18), (7201, 18)])
def test_pause_is_rounded_up_to_a_delay_level(seconds: float, level: int) -> None:
    """A pause beyond the longest level gets the longest."""
    assert retry_level(Delivery(redelivery_level=5), Requeue(after=timedelta(seconds=seconds))) == level


@pytest.mark.parametrize(("configured", "level"), [(0, 0), (5, 5), (-1, 0)])
def test_delay_level_without_a_pause_is_the_bindings(configured: int, level: int) -> None:
    """0 follows the number of redeliveries."""
    assert retry_level(Delivery(redelivery_level=configured), Requeue()) == level
