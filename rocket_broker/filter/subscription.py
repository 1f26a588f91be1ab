"""What a consumer group wants of a topic: the text it subscribed with, and the filter that text means.

The broker filters by the 32-bit hash of a message's tag, which stands in the consume queue; the client
compares the tags themselves. ``*`` (or nothing) is every message, ``A||B`` either tag. What a group wants by
SQL92 is compiled apart (`rocket_broker.filter`).
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
"""Characters of a list of tags; SQL has a limit of its own."""

_NOTHING = PullFilter(frozenset())


class Subscription(NamedTuple):
    """One topic's subscription, ready to filter with.

    Attributes:
        data: What the client said.
        filter: What its tags let through; everything when it is not by tags.
    """

    data: SubscriptionData
    filter: PullFilter

    @classmethod
    def of(cls, data: SubscriptionData) -> "Subscription":
        """Return the subscription a heartbeat told us of; an unreadable tag list wants nothing."""
        if data.class_filter_mode or not is_tag_type(data.expression_type):
            return cls(data, EVERYTHING)
        try:
            wanted = tag_filter(data.sub_string)
        except ValueError:
            wanted = _NOTHING
        # Apache's broker filters by the codes the client computed; a client that sends none means its text.
        if wanted.codes is not None and data.code_set:
            wanted = PullFilter(frozenset(data.code_set))
        return cls(data, wanted)


def is_tag_type(expression_type: str | None) -> bool:
    """Whether the expression is a list of tags, which it is when nothing else is said."""
    return not expression_type or expression_type == TAG


def tag_filter(sub_string: str | None) -> PullFilter:
    """Return the filter that ``A||B`` means.

    Raises:
        ValueError: Separators without a single tag, or more than `MAX_EXPRESSION` characters.
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
