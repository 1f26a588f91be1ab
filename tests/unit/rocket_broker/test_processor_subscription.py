"""Converts tag expressions to the hash codes by which queues are filtered."""

import pytest

from rocket_broker.filter.subscription import Subscription, tag_filter
from rocket_remoting.wire.bodies import SubscriptionData
from rocket_remoting.wire.java_hash import java_hash


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_empty_and_star_expressions_match_every_message(expression: str | None) -> None:
    """None means that there is no filter."""
    assert tag_filter(expression).codes is None


def test_tags_are_separated_by_two_bars() -> None:
    """Blanks and empty tags are ignored."""
    assert tag_filter(" A || B ||").codes == {java_hash("A"), java_hash("B")}


@pytest.mark.parametrize("expression", ["||", " || "])
def test_separators_without_a_tag_are_refused(expression: str) -> None:
    """Such an expression would match nothing."""
    with pytest.raises(ValueError, match="no tag"):
        tag_filter(expression)


def test_missing_hash_codes_are_computed_from_the_expression() -> None:
    """Hash codes in the request take precedence, as in Apache's broker."""
    without = Subscription.of(SubscriptionData(topic="t", sub_string="A"))
    with_codes = Subscription.of(SubscriptionData(topic="t", sub_string="A", code_set={7}))
    assert (without.filter.codes, with_codes.filter.codes) == ({java_hash("A")}, {7})


def test_sql_expression_sets_no_tag_filter() -> None:
    """Another check refuses the pull."""
    assert (
        Subscription.of(SubscriptionData(topic="t", sub_string="a > 1", expression_type="SQL92")).filter.codes is None
    )
