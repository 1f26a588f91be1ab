"""A group's subscription to a topic: its text, and the filter that the text means.

The broker filters by the 32-bit hash code of a message's tag, which the consume queue has; the client then compares the
tags themselves. ``*``, or an empty text, is every message, and ``A||B`` either tag. SQL92 expressions are compiled
separately (`rocket_broker.filter.sql`).
"""

from collections.abc import Generator
from itertools import count
from typing import NamedTuple
from weakref import WeakValueDictionary

from rocket_broker.filter.pull_filter import EVERYTHING, PullFilter
from rocket_remoting.steps import run_all
from rocket_remoting.wire.bodies import SubscriptionData
from rocket_remoting.wire.java_hash import java_hash

__all__ = [
    "ALL_TAGS",
    "MAX_EXPRESSION",
    "RECENT_CHARACTERS",
    "TAG",
    "TAGS_A_STEP",
    "Subscription",
    "is_tag_type",
    "tag_filter",
    "tag_filter_steps",
]

ALL_TAGS = "*"
TAG = "TAG"
MAX_EXPRESSION = 32_768
"""Maximum characters of a list of tags; SQL92 expressions have a limit of their own."""
TAGS_A_STEP = 500
"""Tags that are hashed in one step, which takes half a millisecond."""
RECENT_CHARACTERS = 8 * MAX_EXPRESSION
"""Maximum characters of the lists of tags whose filters are kept although nothing uses them now."""

_NOTHING = PullFilter(frozenset())
_numbers = count(1)


class Subscription(NamedTuple):
    """A subscription to one topic, with its filter.

    Attributes:
        data: The subscription in the client's heartbeat.
        filter: The filter of its tags; matches everything if the subscription is not by tags.
        number: A number that no other subscription has.
    """

    data: SubscriptionData
    filter: PullFilter
    number: int

    @classmethod
    def of(cls, data: SubscriptionData) -> "Subscription":
        """Return the subscription of a heartbeat; a malformed list of tags matches nothing."""
        return run_all(cls.steps(data))

    @classmethod
    def steps(cls, data: SubscriptionData) -> Generator[None, None, "Subscription"]:
        """Return the subscription of a heartbeat as `of` does, in steps: a list may have thousands of tags."""
        text = data.sub_string
        if data.class_filter_mode or not is_tag_type(data.expression_type) or not text or text == ALL_TAGS:
            return cls(data, EVERYTHING, next(_numbers))
        try:
            # As Apache's broker, filter by the hash codes that the client computed; if it sends none, by its text.
            if data.code_set and _tags(text):
                return cls(data, PullFilter(frozenset(data.code_set)), next(_numbers))
            return cls(data, (yield from tag_filter_steps(text)), next(_numbers))
        except ValueError:
            return cls(data, _NOTHING, next(_numbers))


def is_tag_type(expression_type: str | None) -> bool:
    """Return whether the expression is a list of tags, which is also the default type."""
    return not expression_type or expression_type == TAG


def tag_filter(sub_string: str | None) -> PullFilter:
    """Return the filter of a list of tags, ``A||B``.

    Raises:
        ValueError: The list has separators but no tag, or more than `MAX_EXPRESSION` characters.
    """
    if not sub_string or sub_string == ALL_TAGS:
        return EVERYTHING
    known = _RECENT.get(sub_string)
    return known if known is not None else run_all(tag_filter_steps(sub_string))


def tag_filter_steps(sub_string: str) -> Generator[None, None, PullFilter]:
    """Return the filter of a list of tags as `tag_filter` does; yield after each `TAGS_A_STEP` tags.

    While the filter is kept, `tag_filter` returns an equal one at once.
    """
    codes = _in_use.get(sub_string)
    if codes is None:
        tags, found = _tags(sub_string), set[int]()
        for start in range(0, len(tags), TAGS_A_STEP):
            if start:
                yield
            found.update(map(java_hash, tags[start : start + TAGS_A_STEP]))
        codes = _in_use[sub_string] = frozenset(found)
    return _RECENT.keep(sub_string, PullFilter(codes))


def _tags(sub_string: str) -> list[str]:
    if len(sub_string) > MAX_EXPRESSION:
        raise ValueError(f"a list of tags has at most {MAX_EXPRESSION} characters, not {len(sub_string)}")
    tags = [tag for tag in (part.strip() for part in sub_string.split("||")) if tag]
    if not tags:
        raise ValueError(f"no tag in {sub_string!r}")
    return tags


class _RecentFilters(dict[str, PullFilter]):
    """The filters of the last lists of tags, for pulls that bring their lists along."""

    def __init__(self) -> None:
        super().__init__()
        self._characters = 0

    def keep(self, sub_string: str, found: PullFilter) -> PullFilter:
        """Add a filter, drop the oldest ones beyond `RECENT_CHARACTERS`, and return the filter."""
        if sub_string not in self:
            self[sub_string] = found
            self._characters += len(sub_string)
            while self._characters > RECENT_CHARACTERS:
                oldest = next(iter(self))
                del self[oldest]
                self._characters -= len(oldest)
        return found


_RECENT = _RecentFilters()
_in_use: WeakValueDictionary[str, frozenset[int]] = WeakValueDictionary()
"""The codes of all filters, so that equal lists share them: each code takes some eighty bytes."""
