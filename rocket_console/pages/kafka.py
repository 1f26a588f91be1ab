"""The pages of the Kafka clusters that an application uses: topics, their newest records, and groups with their lag.

They change nothing: no group is joined, and nothing is committed.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from rocket_admin.previews import preview
from rocket_console.pages.message_body import body_views
from rocket_console.pages.named_values import NamedValue, named_values
from rocket_console.pages.section import Page
from rocket_console.pages.tabs import Tab, kafka_tabs, kafka_topic_tabs
from rocket_console.pages.visit import Visit
from rocket_console.rendering.addresses import address
from rocket_console.rendering.formats import Format
from rocket_console.tables.table import Column, Table
from streamkit.binder.exploring import Explorer, Group, GroupMember, GroupPartition, Partition, Record, Topic

__all__ = ["OVERVIEW", "PAGES"]

R = TypeVar("R")

_MOST_RECORDS: Final = 100
_CONTENT_TYPE: Final = "contentType"


@dataclass(frozen=True, kw_only=True)
class _Topic:
    """A topic of a binder."""

    binder: str
    topic: Topic


@dataclass(frozen=True, kw_only=True)
class _Group:
    """A group of a binder."""

    binder: str
    group: Group


_TOPICS: Final[Table[_Topic]] = Table(
    name="topics",
    caption="All topics",
    order="topic",
    empty="There is no topic yet. Start the application: it creates topics, unless its settings say no.",
    columns=(
        Column(
            name="topic",
            title="Topic",
            value=lambda each: each.topic.name,
            link=lambda each: address("kafka", each.binder, "topics", each.topic.name),
        ),
        Column(name="binder", title="Binder", value=lambda each: each.binder, is_choice=True),
        Column(name="partitions", title="Partitions", value=lambda each: each.topic.partitions, format=Format.NUMBER),
        Column(name="replicas", title="Replicas", value=lambda each: each.topic.replicas, format=Format.NUMBER),
        Column(
            name="leaderless",
            title="Without leader",
            value=lambda each: each.topic.without_leader,
            format=Format.NUMBER,
            mark=lambda each: "bad" if each.topic.without_leader else None,
        ),
        Column(
            name="kind",
            title="Kind",
            value=lambda each: "system" if each.topic.is_internal else "normal",
            is_choice=True,
        ),
    ),
)
_GROUPS: Final[Table[_Group]] = Table(
    name="groups",
    caption="All groups",
    order="group",
    empty="There is no group yet. Start an application that consumes.",
    columns=(
        Column(
            name="group",
            title="Group",
            value=lambda each: each.group.name,
            link=lambda each: address("kafka", each.binder, "groups", each.group.name),
        ),
        Column(name="binder", title="Binder", value=lambda each: each.binder, is_choice=True),
        Column(name="state", title="State", value=lambda each: each.group.state, is_choice=True),
    ),
)
_PARTITIONS: Final[Table[Partition]] = Table(
    name="partitions",
    caption="Partitions",
    order="partition",
    empty="The topic has no partitions.",
    columns=(
        Column(name="partition", title="Partition", value=lambda each: each.number, format=Format.NUMBER),
        Column(name="begin", title="Oldest offset", value=lambda each: each.begin, format=Format.NUMBER),
        Column(name="end", title="Next offset", value=lambda each: each.end, format=Format.NUMBER),
        Column(name="records", title="Records at most", value=lambda each: each.records, format=Format.NUMBER),
        Column(
            name="leader",
            title="Leader",
            value=lambda each: each.leader,
            mark=lambda each: "bad" if each.leader is None else None,
        ),
    ),
)
_POSITIONS: Final[Table[GroupPartition]] = Table(
    name="positions",
    caption="Lag by partition",
    order="-lag",
    empty="The group has committed no offset.",
    columns=(
        Column(name="topic", title="Topic", value=lambda each: each.topic),
        Column(name="partition", title="Partition", value=lambda each: each.number, format=Format.NUMBER),
        Column(name="committed", title="Committed", value=lambda each: each.committed, format=Format.NUMBER),
        Column(name="end", title="Next offset", value=lambda each: each.end, format=Format.NUMBER),
        Column(
            name="lag",
            title="Lag",
            value=lambda each: each.lag,
            format=Format.NUMBER,
            mark=lambda each: "warn" if each.lag else None,
        ),
    ),
)
_MEMBERS: Final[Table[GroupMember]] = Table(
    name="members",
    caption="Members",
    order="client",
    empty="No member is connected. Start the application that consumes for this group.",
    columns=(
        Column(name="client", title="Client", value=lambda each: each.client_id),
        Column(name="host", title="Host", value=lambda each: each.host),
        Column(name="partitions", title="Partitions", value=lambda each: each.partitions),
    ),
)
_HEADERS: Final = named_values("headers", "Headers", empty="The record has no headers.")


def _records(binder: str) -> Table[Record]:
    """Return the table of the records of a binder's topic."""
    return Table(
        name="records",
        caption="Newest records",
        empty="There is no record here.",
        columns=(
            Column(
                name="place",
                title="Record",
                value=lambda record: f"{record.partition}:{record.offset}",
                link=lambda record: address(
                    "kafka", binder, "topics", record.topic, str(record.partition), str(record.offset)
                ),
            ),
            Column(name="time", title="Time (UTC)", value=lambda record: record.time, format=Format.TIME),
            Column(name="partition", title="Partition", value=lambda record: record.partition, format=Format.NUMBER),
            Column(name="offset", title="Offset", value=lambda record: record.offset, format=Format.NUMBER),
            Column(name="key", title="Key", value=lambda record: None if record.key is None else preview(record.key)),
            Column(
                name="size",
                title="Size",
                value=lambda record: None if record.body is None else len(record.body),
                format=Format.SIZE,
            ),
            Column(
                name="body",
                title="Body",
                value=lambda record: None if record.body is None else preview(record.body, _content_type(record)),
            ),
        ),
    )


async def _topics(visit: Visit) -> Response:
    found = await _of_all(visit, lambda explorer: explorer.topics())
    rows = [_Topic(binder=binder, topic=topic) for binder, topics in found for topic in topics]
    return _list(visit, "Kafka topics", visit.table(_TOPICS, rows), kafka_tabs(""))


async def _groups(visit: Visit) -> Response:
    found = await _of_all(visit, lambda explorer: explorer.groups())
    rows = [_Group(binder=binder, group=group) for binder, groups in found for group in groups]
    return _list(visit, "Kafka groups", visit.table(_GROUPS, rows), kafka_tabs("groups"))


def _list(visit: Visit, title: str, view: Any, tabs: Sequence[Tab]) -> Response:
    brokers = [(name, explorer.address) for name, explorer in visit.explorers.items()]
    return visit.page("kafka_list.html", title=title, tables=[view], listed=view, tabs=tabs, brokers=brokers)


async def _of_all(
    visit: Visit, ask: Callable[[Explorer], Coroutine[Any, Any, Sequence[R]]]
) -> Sequence[tuple[str, Sequence[R]]]:
    """Return the answers of the clusters of all binders, by the names of the binders."""
    answers = await asyncio.gather(*map(ask, visit.explorers.values()))
    return list(zip(visit.explorers, answers, strict=True))


async def _topic(visit: Visit) -> Response:
    binder, topic, explorer = _place(visit)
    partitions = await explorer.partitions(topic)
    if partitions is None:
        raise _no_topic(topic)
    return visit.page(
        "kafka_topic.html",
        title=f"Kafka topic {topic}",
        tables=[visit.table(_PARTITIONS, partitions)],
        tabs=kafka_topic_tabs(binder, topic, ""),
    )


async def _newest(visit: Visit) -> Response:
    binder, topic, explorer = _place(visit)
    records = await explorer.newest(topic, _MOST_RECORDS, seconds=visit.reads_within)
    if not records and await explorer.partitions(topic) is None:
        raise _no_topic(topic)
    return visit.page(
        "kafka_records.html",
        title=f"Kafka topic {topic}",
        tables=[visit.table(_records(binder), records)],
        tabs=kafka_topic_tabs(binder, topic, "messages"),
    )


async def _record(visit: Visit) -> Response:
    binder, topic, explorer = _place(visit)
    partition, offset = int(visit.request.path_params["partition"]), int(visit.request.path_params["offset"])
    record = await explorer.record(topic, partition, offset, seconds=visit.reads_within)
    if record is None:
        text = (
            f"topic {topic} has no record at offset {offset} of partition {partition}: it may have been deleted by age"
        )
        raise HTTPException(404, text)
    body, content_type = record.body or b"", _content_type(record)
    headers = [NamedValue(name=name, value=preview(value, length=1_000)) for name, value in record.headers]
    return visit.page(
        "kafka_record.html",
        title=f"Record {partition}:{offset}",
        tables=[visit.table(_HEADERS, headers)],
        record=record,
        topic_link=address("kafka", binder, "topics", topic, "messages"),
        key=None if record.key is None else preview(record.key, length=1_000),
        content_type=content_type,
        views=body_views(body, content_type, visit.schemas.record_of(body, content_type, topic)),
    )


async def _group(visit: Visit) -> Response:
    group, explorer = visit.name("group"), _explorer(visit)
    if all(each.name != group for each in await explorer.groups()):
        raise HTTPException(404, f"there is no group {group}: it may have been deleted, or have expired")
    positions, members = await asyncio.gather(explorer.positions(group), explorer.members(group))
    lags = [each.lag for each in positions]
    return visit.page(
        "kafka_group.html",
        title=f"Kafka group {group}",
        tables=[visit.table(_POSITIONS, positions), visit.table(_MEMBERS, members)],
        lag=None if None in lags else sum(filter(None, lags)),
        count=len(members),
    )


def _place(visit: Visit) -> tuple[str, str, Explorer]:
    """Return the binder and the topic that an address names, and the binder's explorer."""
    return visit.name("binder"), visit.name("topic"), _explorer(visit)


def _explorer(visit: Visit) -> Explorer:
    binder = visit.name("binder")
    found = visit.explorers.get(binder)
    if found is None:
        raise HTTPException(404, f"the application has no Kafka binder {binder}")
    return found


def _no_topic(topic: str) -> HTTPException:
    return HTTPException(404, f"there is no topic {topic}: look for it in the list of topics")


def _content_type(record: Record) -> str | None:
    """Return the content type in a record's headers, which Spring's applications write in quotes."""
    found = next((value for name, value in record.headers if name == _CONTENT_TYPE), None)
    return None if found is None else found.decode(errors="replace").strip('"')


async def _overview(visit: Visit) -> Response:
    return RedirectResponse("/kafka", status_code=303)


PAGES: Final = (
    Page(path="/kafka", show=_topics),
    Page(path="/kafka/groups", show=_groups),
    Page(path="/kafka/{binder}/topics/{topic}", show=_topic),
    Page(path="/kafka/{binder}/topics/{topic}/messages", show=_newest),
    Page(path="/kafka/{binder}/topics/{topic}/{partition:int}/{offset:int}", show=_record),
    Page(path="/kafka/{binder}/groups/{group:path}", show=_group),
)
OVERVIEW: Final = Page(path="/", show=_overview)
"""The first page of a console without RocketMQ."""
