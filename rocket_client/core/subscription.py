"""Subscriptions: the expressions by which a topic's messages are filtered.

::

    ""  "*"  None                     every message
    "TagA || TagB"                    messages with one of these tags
    "price > 10 AND kind = 'tea'"     messages whose properties match this SQL92 expression, which the broker evaluates

The broker filters tags by their hash codes, so that messages with another tag of the same hash code can arrive. The
client therefore compares the tags themselves.
"""

from rocket_remoting.wire.bodies import SubscriptionData
from rocket_remoting.wire.java_hash import java_hash

ALL = "*"
SQL92 = "SQL92"


def tag_subscription(topic: str, expression: str | None, version: int) -> SubscriptionData:
    """Return a subscription by tags, in the form of heartbeats.

    Args:
        topic: The topic.
        expression: The tags.
        version: The time of the subscription, in milliseconds since the epoch; brokers ignore older ones.

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
    """Return a subscription by an SQL92 expression, in the form of heartbeats.

    Args:
        topic: The topic.
        expression: The SQL92 expression; the broker checks it.
        version: The time of the subscription, in milliseconds since the epoch; brokers ignore older ones.

    Raises:
        ValueError: The expression is blank.
    """
    if not expression.strip():
        raise ValueError(f'the SQL92 expression of topic {topic} is blank; write a condition such as "price > 10"')
    return SubscriptionData(topic=topic, sub_string=expression, sub_version=version, expression_type=SQL92)
