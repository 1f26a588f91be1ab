"""The sections that every console has, in the order of the navigation. A new page is a module, and a name here.

Those of an outbox are in `rocket_console.pages.outbox`, and there only if the console is given one.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rocket_console.pages import (
    brokers,
    dead_letter_comparison,
    dead_letter_replay,
    dead_letters,
    delayed,
    group,
    group_changes,
    groups,
    half_messages,
    kafka,
    message,
    message_edit,
    message_member,
    overview,
    search,
    topic,
    topic_changes,
    topics,
)
from rocket_console.pages.section import Section

__all__ = ["SECTIONS", "sections_of"]

SECTIONS: Final[Sequence[Section]] = (
    Section(title="Overview", path="/", key="o", pages=overview.PAGES),
    Section(
        title="Topics",
        path="/topics",
        key="t",
        pages=(*topics.PAGES, *topic_changes.PAGES, *topic.PAGES),
        actions=topic_changes.ACTIONS,
    ),
    Section(
        title="Groups",
        path="/groups",
        key="g",
        pages=(*groups.PAGES, *group_changes.PAGES, *group.PAGES),
        actions=group_changes.ACTIONS,
    ),
    Section(
        title="Messages",
        path="/messages",
        key="m",
        pages=(
            *search.PAGES,
            *half_messages.PAGES,
            *delayed.PAGES,
            *message.PAGES,
            *message_edit.PAGES,
            *message_member.PAGES,
        ),
        actions=(
            *half_messages.ACTIONS,
            *delayed.ACTIONS,
            *message.ACTIONS,
            *message_edit.ACTIONS,
            *message_member.ACTIONS,
        ),
    ),
    Section(
        title="Dead letters",
        path="/dead-letters",
        key="d",
        pages=(*dead_letters.PAGES, *dead_letter_comparison.PAGES, *dead_letter_replay.PAGES),
        actions=(*dead_letters.ACTIONS, *dead_letter_replay.ACTIONS),
    ),
    Section(title="Brokers", path="/brokers", key="b", pages=brokers.PAGES),
)
"""The sections about a RocketMQ cluster."""

_KAFKA: Final = Section(title="Kafka", path="/kafka", key="k", pages=kafka.PAGES)


def sections_of(*, has_rocketmq: bool, has_kafka: bool) -> Sequence[Section]:
    """Return the sections of a console.

    Args:
        has_rocketmq: Whether it is about a RocketMQ cluster.
        has_kafka: Whether it is about the Kafka destinations of an application.
    """
    if not has_kafka:
        return SECTIONS
    if has_rocketmq:
        return (*SECTIONS, _KAFKA)
    return (replace(_KAFKA, pages=(kafka.OVERVIEW, *kafka.PAGES)),)
