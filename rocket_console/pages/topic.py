"""The pages of one topic: its queues, messages, live tail, and clients."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from starlette.responses import Response

from rocket_admin.browsing import arrived_since, browse, ends_of
from rocket_admin.conditions import matches_all
from rocket_admin.offsets import End
from rocket_admin.producers import ConnectedProducer, connected_producers
from rocket_admin.times import moment
from rocket_admin.topic_rates import TopicRate, topic_rates
from rocket_admin.topics import TopicOnBroker, TopicQueue, show_topic, topic_queues
from rocket_console.live.group_looks import GroupLook
from rocket_console.pages.message_table import MESSAGES, stored
from rocket_console.pages.queue_places import places_of, places_text
from rocket_console.pages.section import Page
from rocket_console.pages.tabs import topic_tabs
from rocket_console.pages.visit import Visit
from rocket_console.rendering.addresses import address
from rocket_console.rendering.formats import Format
from rocket_console.tables.table import Column, Table
from rocket_remoting.wire.message import MessageExt, MessageQueue

__all__ = ["PAGES"]

_TAIL_EVERY: Final = 2
"""Seconds between two looks of a live tail."""
_MOST_TAILED: Final = 256
"""Queues that a tail can follow: their offsets are in its address."""
_WITHIN: Final = 1.0
"""Seconds in which the groups of a topic are asked."""

_QUEUES: Final[Table[TopicQueue]] = Table(
    name="queues",
    caption="Queues",
    empty="No broker that answered has a queue of the topic.",
    columns=(
        Column(name="broker", title="Broker", value=lambda queue: queue.broker),
        Column(
            name="queue",
            title="Queue",
            value=lambda queue: queue.queue,
            format=Format.NUMBER,
            link=lambda queue: address("topics", queue.topic, "messages", queue=f"{queue.broker}:{queue.queue}"),
        ),
        Column(name="min_offset", title="Min offset", value=lambda queue: queue.min_offset, format=Format.NUMBER),
        Column(name="max_offset", title="Max offset", value=lambda queue: queue.max_offset, format=Format.NUMBER),
        Column(name="messages", title="Messages", value=lambda queue: queue.messages, format=Format.NUMBER),
        Column(name="newest", title="Newest (UTC)", value=lambda queue: queue.last_stored, format=Format.TIME),
    ),
)
_SETTINGS: Final[Table[TopicOnBroker]] = Table(
    name="settings",
    caption="Settings",
    empty="No broker that answered has the topic.",
    columns=(
        Column(
            name="broker", title="Broker", value=lambda on: on.broker, link=lambda on: address("brokers", on.broker)
        ),
        Column(name="write_queues", title="Write queues", value=lambda on: on.write_queues, format=Format.NUMBER),
        Column(name="read_queues", title="Read queues", value=lambda on: on.read_queues, format=Format.NUMBER),
        Column(name="permission", title="Permission", value=lambda on: on.permission),
        Column(name="order", title="Ordered", value=lambda on: on.order),
        Column(name="type", title="Type", value=lambda on: on.message_type),
    ),
)
_RATES: Final[Table[TopicRate]] = Table(
    name="rates",
    caption="Messages per second",
    empty="The brokers have counted nothing.",
    columns=(
        Column(
            name="flow",
            title="Messages",
            value=lambda rate: "stored" if rate.group is None else f"delivered to {rate.group}",
            link=lambda rate: None if rate.group is None else address("groups", rate.group),
        ),
        Column(name="minute", title="Last minute", value=lambda rate: rate.per_second_minute, format=Format.RATE),
        Column(name="hour", title="Last hour", value=lambda rate: rate.per_second_hour, format=Format.RATE),
        Column(name="day", title="Last day", value=lambda rate: rate.per_second_day, format=Format.RATE),
        Column(name="messages_day", title="Messages a day", value=lambda rate: rate.messages_day, format=Format.NUMBER),
    ),
)
_CONSUMERS: Final[Table[GroupLook]] = Table(
    name="consumers",
    caption="Groups that consume the topic",
    order="group",
    empty="No group subscribes to the topic or has committed offsets in it. Start an application that consumes it.",
    columns=(
        Column(
            name="group", title="Group", value=lambda look: look.group, link=lambda look: address("groups", look.group)
        ),
        Column(
            name="members",
            title="Members",
            value=lambda look: None if look.members is None else len(look.members),
            format=Format.NUMBER,
            mark=lambda look: "warn" if look.members == () else None,
        ),
        Column(name="lag", title="Lag in all topics", value=lambda look: look.lag, format=Format.NUMBER),
        Column(
            name="clients",
            title="Clients",
            value=lambda look: look.members and [f"{each.client_id} ({each.address})" for each in look.members],
        ),
    ),
)


@dataclass(frozen=True, kw_only=True)
class _Sender:
    """Where some of the newest messages came from."""

    host: str
    messages: int
    newest: datetime
    producers: tuple[ConnectedProducer, ...]


_SENDERS: Final[Table[_Sender]] = Table(
    name="senders",
    caption="Where the newest messages came from",
    order="-newest",
    empty="The topic has no message, so nobody is known who sends to it.",
    columns=(
        Column(name="host", title="Host", value=lambda sender: sender.host),
        Column(name="messages", title="Messages", value=lambda sender: sender.messages, format=Format.NUMBER),
        Column(name="newest", title="Newest (UTC)", value=lambda sender: sender.newest, format=Format.TIME),
        Column(
            name="producers",
            title="Producers that are connected from there",
            value=lambda sender: [f"{each.client_id} of {each.group}" for each in sender.producers],
        ),
    ),
)
_PRODUCERS: Final[Table[ConnectedProducer]] = Table(
    name="producers",
    caption="All connected producers",
    order="group",
    empty="No producer is connected.",
    columns=(
        Column(name="group", title="Producer group", value=lambda each: each.group),
        Column(name="client", title="Client", value=lambda each: each.client_id),
        Column(name="address", title="Address", value=lambda each: each.address),
        Column(name="language", title="Language", value=lambda each: each.language, is_choice=True),
        Column(name="version", title="Version", value=lambda each: each.version, is_choice=True),
        Column(name="seen", title="Last heartbeat (UTC)", value=lambda each: each.seen_at, format=Format.TIME),
    ),
)


async def _show(visit: Visit) -> Response:
    topic = visit.name("topic")
    found, queues, rates = await asyncio.gather(
        show_topic(visit.admin, topic), topic_queues(visit.admin, topic), topic_rates(visit.admin, topic)
    )
    return visit.page(
        "topic.html",
        title=f"Topic {topic}",
        tables=[
            visit.table(_QUEUES, queues.queues),
            visit.table(_SETTINGS, found.brokers),
            visit.table(_RATES, rates.rates),
        ],
        failures=tuple(dict.fromkeys((*found.failures, *queues.failures, *rates.failures))),
        topic=found,
        tabs=topic_tabs(topic, ""),
    )


async def _browse(visit: Visit) -> Response:
    topic, place = visit.name("topic"), _place(visit.query.get("queue", ""))
    end = End.EARLIEST if visit.query.get("from") == "oldest" else End.LATEST
    offset = visit.query.get("offset", "")
    first = int(offset) if offset.isdecimal() and len(offset) < 19 and place is not None else None
    found = await browse(visit.admin, topic, end, place=place, first=first)
    return visit.page(
        "topic_messages.html",
        title=f"Topic {topic}",
        tables=[visit.table(MESSAGES, stored(found.messages))],
        failures=found.failures,
        topic_name=topic,
        tabs=topic_tabs(topic, "messages"),
        browsed=found,
        end=end.value,
        queue=visit.query.get("queue", ""),
        offset="" if first is None else first,
    )


def _place(text: str) -> tuple[str, int] | None:
    """Return the queue of a parameter, `broker:number`; None without one."""
    broker, _, number = text.rpartition(":")
    if not text:
        return None
    if not broker or not number.isdecimal():
        raise ValueError(f"{text!r} is not a queue: write broker:number, such as broker-a:0")
    return broker, int(number[:9])


async def _tail(visit: Visit) -> Response:
    topic, where = visit.name("topic"), visit.query.get("where", "")
    visit.conditions(visit.query)  # raises here if one is wrong, not at each look of the page
    ends = await ends_of(visit.admin, topic)
    return visit.page(
        "topic_tail.html",
        title=f"Topic {topic}",
        topic_name=topic,
        tabs=topic_tabs(topic, "tail"),
        where=where,
        every=_TAIL_EVERY,
        left_out=max(0, len(ends) - _MOST_TAILED),
        live_address=_tail_address(topic, where, ends),
    )


async def _tail_rows(visit: Visit) -> Response:
    topic, where = visit.name("topic"), visit.query.get("where", "")
    conditions = visit.conditions(visit.query)
    found = await arrived_since(visit.admin, topic, places_of(topic, visit.query.get("at", "{}")))
    rows = stored(message for message in found.messages if matches_all(conditions, message))
    return visit.fragment(
        "topic_tail_rows.html",
        next_address=_tail_address(topic, where, found.ends),
        messages=rows,
        skipped=found.skipped,
    )


def _tail_address(topic: str, where: str, ends: Mapping[MessageQueue, int]) -> str:
    followed = dict(list(ends.items())[:_MOST_TAILED])
    return address("topics", topic, "tail", "rows", where=where, at=places_text(followed))


async def _clients(visit: Visit) -> Response:
    topic = visit.name("topic")
    found, producers, browsed = await asyncio.gather(
        show_topic(visit.admin, topic), connected_producers(visit.admin), browse(visit.admin, topic, End.LATEST)
    )
    looks = await visit.watch.look_at(found.groups, within=_WITHIN)
    groups = [looks.get(group) or GroupLook.unknown(group) for group in found.groups]
    return visit.page(
        "topic_clients.html",
        title=f"Topic {topic}",
        tables=[
            visit.table(_CONSUMERS, groups),
            visit.table(_SENDERS, _senders(browsed.messages, producers.producers)),
            visit.table(_PRODUCERS, producers.producers),
        ],
        failures=tuple(dict.fromkeys((*found.failures, *producers.failures))),
        topic_name=topic,
        tabs=topic_tabs(topic, "clients"),
    )


def _senders(messages: tuple[MessageExt, ...], producers: tuple[ConnectedProducer, ...]) -> list[_Sender]:
    counts = Counter(message.born_host[0] for message in messages)
    newest: dict[str, Any] = {}
    for message in messages:
        newest[message.born_host[0]] = max(newest.get(message.born_host[0], 0), message.store_timestamp)
    return [
        _Sender(
            host=host,
            messages=number,
            newest=moment(newest[host]),
            producers=tuple(each for each in producers if each.address.rpartition(":")[0].strip("[]") == host),
        )
        for host, number in counts.items()
    ]


PAGES: Final = (
    Page(path="/topics/{topic}", show=_show),
    Page(path="/topics/{topic}/messages", show=_browse),
    Page(path="/topics/{topic}/tail", show=_tail),
    Page(path="/topics/{topic}/tail/rows", show=_tail_rows),
    Page(path="/topics/{topic}/clients", show=_clients),
)
