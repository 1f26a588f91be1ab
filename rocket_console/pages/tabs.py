"""The tabs of a topic or a group: pages about the same thing, each with its address."""

from collections.abc import Sequence
from dataclasses import dataclass

from rocket_console.rendering.addresses import address

__all__ = [
    "Tab",
    "dead_letter_tabs",
    "group_tabs",
    "kafka_tabs",
    "kafka_topic_tabs",
    "message_tabs",
    "topic_tabs",
]

_TOPIC = (
    ("", "Queues"),
    ("messages", "Messages"),
    ("tail", "Live tail"),
    ("clients", "Producers and consumers"),
    ("send", "Send"),
    ("settings", "Settings"),
    ("delete", "Delete"),
)
_GROUP = (
    ("", "Lag"),
    ("members", "Members"),
    ("reset", "Reset offsets"),
    ("settings", "Settings"),
    ("delete", "Delete"),
)
_MESSAGE = (
    ("", "Message"),
    ("story", "Story"),
    ("resend", "Send again"),
    ("edit", "Edit and send"),
    ("member", "Send to one member"),
)
_KAFKA = (
    ("", "Topics"),
    ("groups", "Groups"),
)
_KAFKA_TOPIC = (
    ("", "Partitions"),
    ("messages", "Newest records"),
)
_DEAD_LETTERS = (
    ("", "Letters"),
    ("replay", "Replay"),
    ("drop", "Drop"),
)


@dataclass(frozen=True, kw_only=True)
class Tab:
    """A tab.

    Attributes:
        title: Its title.
        link: Its address.
        is_shown: Whether it is the page that is shown.
    """

    title: str
    link: str
    is_shown: bool


def topic_tabs(topic: str, shown: str) -> Sequence[Tab]:
    """Return the tabs of a topic.

    Args:
        topic: The topic.
        shown: The last step of the address that is shown; empty for the first tab.
    """
    return _tabs("topics", topic, _TOPIC, shown)


def group_tabs(group: str, shown: str) -> Sequence[Tab]:
    """Return the tabs of a group, see `topic_tabs`."""
    return _tabs("groups", group, _GROUP, shown)


def message_tabs(message_id: str, shown: str) -> Sequence[Tab]:
    """Return the tabs of the message with an offset message id, see `topic_tabs`."""
    return _tabs("messages", message_id, _MESSAGE, shown)


def dead_letter_tabs(group: str, shown: str) -> Sequence[Tab]:
    """Return the tabs of a group's dead letters, see `topic_tabs`."""
    return _tabs("dead-letters", group, _DEAD_LETTERS, shown)


def kafka_tabs(shown: str) -> Sequence[Tab]:
    """Return the tabs of the section Kafka, see `topic_tabs`."""
    return _tabs_below(("kafka",), _KAFKA, shown)


def kafka_topic_tabs(binder: str, topic: str, shown: str) -> Sequence[Tab]:
    """Return the tabs of a topic of a Kafka binder, see `topic_tabs`."""
    return _tabs_below(("kafka", binder, "topics", topic), _KAFKA_TOPIC, shown)


def _tabs(kind: str, name: str, steps: Sequence[tuple[str, str]], shown: str) -> Sequence[Tab]:
    return _tabs_below((kind, name), steps, shown)


def _tabs_below(place: Sequence[str], steps: Sequence[tuple[str, str]], shown: str) -> Sequence[Tab]:
    return [
        Tab(title=title, link=address(*place, *filter(None, (step,))), is_shown=step == shown) for step, title in steps
    ]
