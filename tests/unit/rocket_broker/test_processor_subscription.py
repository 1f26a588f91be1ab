"""From tag expressions to the hashes that queues are filtered by."""

import pytest

from rocket_broker.filter.subscription import Subscription, tag_filter
from rocket_remoting.wire.bodies import SubscriptionData
from rocket_remoting.wire.java_hash import java_hash


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_nothing_and_a_star_want_every_message(expression: str | None) -> None:
    """None stands for no filter."""
    assert tag_filter(expression).codes is None


def test_tags_are_separated_by_two_bars() -> None:
    """Blanks around them and empty ones do not count."""
    assert tag_filter(" A || B ||").codes == {java_hash("A"), java_hash("B")}


@pytest.mark.parametrize("expression", ["||", " || "])
def test_separators_without_a_tag_are_refused(expression: str) -> None:
    """They would want nothing at all."""
    with pytest.raises(ValueError, match="no tag"):
        tag_filter(expression)


def test_a_client_that_sends_no_codes_means_its_text() -> None:
    """Codes it does send win, as on Apache's broker."""
    without = Subscription.of(SubscriptionData(topic="t", sub_string="A"))
    with_codes = Subscription.of(SubscriptionData(topic="t", sub_string="A", code_set={7}))
    assert (without.filter.codes, with_codes.filter.codes) == ({java_hash("A")}, {7})


def test_an_expression_that_is_no_tag_list_filters_nothing_here() -> None:
    """The pull is refused elsewhere."""
    assert (
        Subscription.of(SubscriptionData(topic="t", sub_string="a > 1", expression_type="SQL92")).filter.codes is None
    )
