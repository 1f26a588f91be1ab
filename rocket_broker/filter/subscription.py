"""A group's subscription to a topic: its text, and the filter that the text means.

The broker filters by the 32-bit hash code of a message's tag, which the consume queue has; the client then compares the
tags themselves. ``*``, or an empty text, is every message, and ``A||B`` either tag. SQL92 expressions are compiled
separately (`rocket_broker.filter.sql`).
"""

from functools import lru_cache
from typing import NamedTuple

from rocket_broker.filter.pull_filter import EVERYTHING, PullFilter
from rocket_remoting.wire.bodies import SubscriptionData
from rocket_remoting.wire.java_hash import java_hash

__all__ = ["ALL_TAGS", "MAX_EXPRESSION", "TAG", "Subscription", "is_tag_type", "tag_filter"]

ALL_TAGS = "*"
TAG = "TAG"
MAX_EXPRESSION = 32_768
"""Maximum characters of a list of tags; SQL92 expressions have a limit of their own."""

_NOTHING = PullFilter(frozenset())


class Subscription(NamedTuple):
    """A subscription to one topic, with its filter.

    Attributes:
        data: The subscription in the client's heartbeat.
        filter: The filter of its tags; matches everything if the subscription is not by tags.
    """

    data: SubscriptionData
    filter: PullFilter

    @classmethod
    def of(cls, data: SubscriptionData) -> "Subscription":
        """Return the subscription of a heartbeat; a malformed list of tags matches nothing."""
        if data.class_filter_mode or not is_tag_type(data.expression_type):
            return cls(data, EVERYTHING)
        try:
            wanted = tag_filter(data.sub_string)
        except ValueError:
            wanted = _NOTHING
        # As Apache's broker, filter by the hash codes that the client computed; if it sends none, by its text.
        if wanted.codes is not None and data.code_set:
            wanted = PullFilter(frozenset(data.code_set))
        return cls(data, wanted)


def is_tag_type(expression_type: str | None) -> bool:
    """Whether the expression is a list of tags, which is also the default type."""
    return not expression_type or expression_type == TAG


def tag_filter(sub_string: str | None) -> PullFilter:
    """Return the filter of a list of tags, ``A||B``.

    Raises:
        ValueError: The list has separators but no tag, or more than `MAX_EXPRESSION` characters.
    """
    if not sub_string or sub_string == ALL_TAGS:
        return EVERYTHING
    if len(sub_string) > MAX_EXPRESSION:
        raise ValueError(f"a list of tags has at most {MAX_EXPRESSION} characters, not {len(sub_string)}")
    return _filter_of_tags(sub_string)


@lru_cache(maxsize=256)
def _filter_of_tags(sub_string: str) -> PullFilter:
    tags = [tag for tag in (part.strip() for part in sub_string.split("||")) if tag]
    if not tags:
        raise ValueError(f"no tag in {sub_string!r}")
    return PullFilter(frozenset(map(java_hash, tags)))
