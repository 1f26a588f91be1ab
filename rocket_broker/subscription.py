"""What a consumer group wants of a topic: the text it subscribed with, and the tag codes that text means.

The broker filters by the 32-bit hash of a message's tag, which stands in the consume queue; the client
compares the tags themselves. ``*`` (or nothing) is every message, ``A||B`` either tag.
"""

from typing import NamedTuple

from rocket_remoting.bodies import SubscriptionData
from rocket_remoting.java_hash import java_hash

__all__ = ["ALL_TAGS", "TAG", "Subscription", "is_tag_type", "tag_codes"]

ALL_TAGS = "*"
TAG = "TAG"


class Subscription(NamedTuple):
    """One topic's subscription, ready to filter with.

    Attributes:
        data: What the client said.
        codes: Hashes of the wanted tags; None when every message is wanted.
    """

    data: SubscriptionData
    codes: frozenset[int] | None

    @classmethod
    def of(cls, data: SubscriptionData) -> "Subscription":
        """Return the subscription a heartbeat told us of; an unreadable tag list wants nothing."""
        if data.class_filter_mode or not is_tag_type(data.expression_type):
            return cls(data, None)
        try:
            wanted = tag_codes(data.sub_string)
        except ValueError:
            wanted = frozenset()
        # Apache's broker filters by the codes the client computed; a client that sends none means its text.
        if wanted is not None and data.code_set:
            wanted = frozenset(data.code_set)
        return cls(data, wanted)


def is_tag_type(expression_type: str | None) -> bool:
    """Whether the expression is a list of tags, which it is when nothing else is said."""
    return not expression_type or expression_type == TAG


def tag_codes(sub_string: str | None) -> frozenset[int] | None:
    """Return the hashes of the tags in ``A||B``, or None for every message.

    Raises:
        ValueError: Separators without a single tag.
    """
    if not sub_string or sub_string == ALL_TAGS:
        return None
    tags = [tag for tag in (part.strip() for part in sub_string.split("||")) if tag]
    if not tags:
        raise ValueError(f"no tag in {sub_string!r}")
    return frozenset(map(java_hash, tags))
