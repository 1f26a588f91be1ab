"""The page of all topics."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from rocket_admin.topics import Topic, TopicKind, list_topics
from rocket_console.pages.section import Page
from rocket_console.pages.visit import Visit
from rocket_console.rendering.addresses import address
from rocket_console.rendering.formats import Format
from rocket_console.tables.table import Column, Table

__all__ = ["PAGES"]

_TOPICS: Final[Table[Topic]] = Table(
    name="topics",
    caption="All topics",
    order="topic",
    empty="There is no topic yet. Create one, or start an application: brokers create topics that producers send to, "
    "if autoCreateTopicEnable is true.",
    columns=(
        Column(
            name="topic",
            title="Topic",
            value=lambda topic: topic.topic,
            link=lambda topic: address("topics", topic.topic),
        ),
        Column(name="kind", title="Kind", value=lambda topic: topic.kind.value, is_choice=True),
        Column(name="write_queues", title="Write queues", value=lambda topic: topic.write_queues, format=Format.NUMBER),
        Column(name="read_queues", title="Read queues", value=lambda topic: topic.read_queues, format=Format.NUMBER),
        Column(
            name="permission",
            title="Permission",
            value=lambda topic: topic.permission,
            mark=lambda topic: None if topic.permission in ("rw", None) else "warn",
            is_choice=True,
        ),
        Column(name="type", title="Type", value=lambda topic: topic.message_type),
        Column(name="brokers", title="Brokers", value=lambda topic: topic.brokers),
    ),
)
_KIND: Final = "topics.kind"
_ALL: Final = "all"


async def _show(visit: Visit) -> Response:
    found = await list_topics(visit.admin)
    counted = Counter(topic.kind for topic in found.topics)
    counts = {kind: counted[kind] for kind in TopicKind}
    view = visit.table(_TOPICS, found.topics)
    return visit.page(
        "topics.html", title="Topics", tables=[view], failures=found.failures, kinds=_links(visit, counts)
    )


def _links(visit: Visit, counts: Mapping[TopicKind, int]) -> list[tuple[str, int, str, bool]]:
    """Return for each kind its name, its number of topics, the address of its topics, and whether they are shown."""
    chosen = visit.query.get(_KIND, "")
    links = [
        (kind.value, number, address("topics", **{_KIND: kind.value}), chosen == kind)
        for kind, number in counts.items()
    ]
    return [(_ALL, sum(counts.values()), address("topics"), not chosen), *links]


PAGES: Final = (Page(path="/topics", show=_show),)
