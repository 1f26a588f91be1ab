"""Tag expressions: what a consumer wants of a topic.

::

    ""  "*"  None          every message
    "TagA || TagB"         messages whose tag is one of these

The broker filters by the tags' hash codes, so messages with another tag of the same hash can arrive: the
client compares the tags themselves.
"""

from rocket_remoting.bodies import SubscriptionData
from rocket_remoting.java_hash import java_hash

ALL = "*"


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
