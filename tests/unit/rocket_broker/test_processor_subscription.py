"""Converts tag expressions to the hash codes by which queues are filtered."""

import weakref
from collections.abc import Generator

import pytest

from rocket_broker.filter.pull_filter import PullFilter
from rocket_broker.filter.subscription import RECENT_CHARACTERS, Subscription, tag_filter, tag_filter_steps
from rocket_remoting.wire.bodies import SubscriptionData
from rocket_remoting.wire.java_hash import java_hash


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_empty_and_star_expressions_match_every_message(expression: str | None) -> None:
    """None means that there is no filter."""
    assert tag_filter(expression).codes is None


def test_tags_are_separated_by_two_bars() -> None:
    """Blanks and empty tags are ignored."""
    assert tag_filter(" A || B ||").codes == {java_hash("A"), java_hash("B")}


def test_long_list_of_tags_is_hashed_in_steps() -> None:
    """A step hashes 500 tags; lists may have more than 10,000."""
    tags = [f"{number:x}" for number in range(5_500)]
    found: list[PullFilter] = []

    def steps() -> Generator[None, None, None]:
        found.append((yield from tag_filter_steps("||".join(tags))))

    assert sum(1 for _ in steps()) == 10
    assert found[0].codes == set(map(java_hash, tags))
    assert tag_filter("||".join(tags)) is found[0]


def test_few_long_lists_of_tags_are_kept() -> None:
    """Pulls bring their lists along; the codes of 256 lists of 10,000 tags would take 240 MB."""
    lists = [f"{first}||" + "||".join(f"{number:x}" for number in range(5_500)) for first in range(20)]
    codes = [weakref.ref(codes) for codes in (tag_filter(text).codes for text in lists) if codes is not None]
    assert sum(one() is not None for one in codes) <= RECENT_CHARACTERS // len(lists[0])


def test_equal_lists_of_tags_share_their_codes() -> None:
    """As long as one of them is in use, such as that of a held pull."""
    lists = [f"{first}||" + "||".join(f"{number:x}" for number in range(5_500)) for first in range(20)]
    first = tag_filter(lists[0])
    for text in lists:
        tag_filter(text)
    assert tag_filter(lists[0]).codes is first.codes


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
