"""Expressions: what a consumer wants of a topic.

::

    ""  "*"  None                     every message
    "TagA || TagB"                    messages whose tag is one of these
    "price > 10 AND kind = 'tea'"     messages whose properties match this SQL92 expression; the broker knows how

The broker filters by the tags' hash codes, so messages with another tag of the same hash can arrive: the
client compares the tags themselves.
"""

from rocket_remoting.wire.bodies import SubscriptionData
from rocket_remoting.wire.java_hash import java_hash

ALL = "*"
SQL92 = "SQL92"


def tag_subscription(topic: str, expression: str | None, version: int) -> SubscriptionData:
    """The subscription as the heartbeat carries it; `version` is when it was made, in ms.

    Raises:
        ValueError: The expression names no tag.
    """
    if expression is None or expression.strip() in {"", ALL}:
        return SubscriptionData(topic=topic, sub_string=ALL, sub_version=version)
    tags = {tag.strip() for tag in expression.split("||")} - {""}
    if not tags:
        raise ValueError(
            f"the tag expression {expression!r} of topic {topic} names no tag; write 'TagA || TagB' or '*'"
        )
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        tags_set=tags,
        code_set={java_hash(tag) for tag in tags},
        sub_version=version,
    )


def sql_subscription(topic: str, expression: str, version: int) -> SubscriptionData:
    """The subscription as the heartbeat carries it; `version` is when it was made, in ms.

    Raises:
        ValueError: The expression is blank.
    """
    if not expression.strip():
        raise ValueError(
            f"the SQL92 expression of topic {topic} is blank; write what properties must be like"
        )
    return SubscriptionData(topic=topic, sub_string=expression, sub_version=version, expression_type=SQL92)
