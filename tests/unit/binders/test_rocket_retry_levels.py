"""At which delay level a message goes back, where a listener asks for a pause."""

from datetime import timedelta

import pytest

from binders.rocket.consumer import retry_level
from streamkit.binder.delivery import Delivery
from streamkit.settlement import Requeue


@pytest.mark.parametrize(("seconds", "level"), [(0, 1), (1, 1), (1.5, 2), (10, 3), (10.001, 4), (7200, 18), (7201, 18)])
def test_a_pause_is_the_next_level_that_is_long_enough(seconds: float, level: int) -> None:
    """Exactly the one where there is one; the longest for what is longer still."""
    assert retry_level(Delivery(redelivery_level=5), Requeue(after=timedelta(seconds=seconds))) == level


@pytest.mark.parametrize(("configured", "level"), [(0, 0), (5, 5), (-1, 0)])
def test_without_a_pause_the_binding_s_level_counts(configured: int, level: int) -> None:
    """0 follows the redeliveries so far."""
    assert retry_level(Delivery(redelivery_level=configured), Requeue()) == level
