"""The pages of one group: its lag by queue and over time, and its members."""

import asyncio
from collections import Counter
from typing import Final

from starlette.responses import Response

from rocket_admin.groups import GroupOnBroker, Member, Members, Subscription, group_members, show_group
from rocket_admin.offsets import GroupQueue, group_queues
from rocket_admin.topics import topic_queues
from rocket_client import Admin, TopicNotFoundError
from rocket_console.live.chart import Line, line_chart
from rocket_console.live.cluster_watch import EVERY
from rocket_console.live.ring import Ring
from rocket_console.pages.section import Page
from rocket_console.pages.tabs import group_tabs
from rocket_console.pages.visit import Visit
from rocket_console.rendering.addresses import address, with_query
from rocket_console.rendering.formats import Format
from rocket_console.tables.table import Column, Table
from rocket_remoting.wire.topics import dlq_topic, is_retry_topic, retry_topic

__all__ = ["PAGES", "members_table", "usual_subscriptions"]


def _lag_mark(queue: GroupQueue) -> str | None:
    return "warn" if queue.lag else None


_QUEUES: Final[Table[GroupQueue]] = Table(
    name="queues",
    caption="Lag by queue",
    order="-lag",
    empty="The group has committed no offset yet. Start a member that consumes.",
    columns=(
        Column(
            name="topic",
            title="Topic",
            value=lambda queue: queue.topic,
            link=lambda queue: address("topics", queue.topic),
        ),
        Column(name="broker", title="Broker", value=lambda queue: queue.broker),
        Column(name="queue", title="Queue", value=lambda queue: queue.queue, format=Format.NUMBER),
        Column(name="committed", title="Committed", value=lambda queue: queue.committed, format=Format.NUMBER),
        Column(name="max_offset", title="Max offset", value=lambda queue: queue.max_offset, format=Format.NUMBER),
        Column(name="lag", title="Lag", value=lambda queue: queue.lag, format=Format.NUMBER, mark=_lag_mark),
        Column(
            name="last_consumed",
            title="Last consumed (UTC)",
            value=lambda queue: queue.last_consumed,
            format=Format.TIME,
        ),
    ),
)
_SETTINGS: Final[Table[GroupOnBroker]] = Table(
    name="settings",
    caption="Settings",
    empty="No broker that answered has settings of the group.",
    columns=(
        Column(name="broker", title="Broker", value=lambda on: on.broker),
        Column(
            name="consume",
            title="Consumes",
            value=lambda on: on.consume_enabled,
            mark=lambda on: None if on.consume_enabled else "warn",
        ),
        Column(name="broadcast", title="May broadcast", value=lambda on: on.broadcast_enabled),
        Column(name="ordered", title="Ordered", value=lambda on: on.ordered),
        Column(name="retries", title="Redeliveries", value=lambda on: on.retry_max_times, format=Format.NUMBER),
        Column(name="retry_queues", title="Retry queues", value=lambda on: on.retry_queues, format=Format.NUMBER),
    ),
)
_SUBSCRIPTIONS: Final[Table[Subscription]] = Table(
    name="subscriptions",
    caption="Subscriptions of the group, as the brokers know them",
    empty="No member is connected, so nothing is subscribed to.",
    columns=(
        Column(
            name="topic", title="Topic", value=lambda each: each.topic, link=lambda each: address("topics", each.topic)
        ),
        Column(name="expression", title="Expression", value=lambda each: each.expression),
        Column(name="kind", title="Kind", value=lambda each: each.kind),
    ),
)


def members_table(usual: tuple[Subscription, ...] | None) -> Table[Member]:
    """Return the table of members, in which subscriptions that are not the usual ones are red."""

    def subscriptions(member: Member) -> list[str] | None:
        if member.subscriptions is None:
            return None
        return [f"{each.topic} {each.expression}" for each in member.subscriptions]

    def mark(member: Member) -> str | None:
        return None if member.subscriptions in (None, usual) else "bad"

    return Table(
        name="members",
        caption="Members",
        order="client",
        empty="No member is connected. Start the application that consumes for this group.",
        columns=(
            Column(name="client", title="Client", value=lambda member: member.client_id),
            Column(name="address", title="Address", value=lambda member: member.address),
            Column(name="language", title="Language", value=lambda member: member.language, is_choice=True),
            Column(name="version", title="Version", value=lambda member: member.version, is_choice=True),
            Column(name="cached", title="Cached", value=lambda member: member.cached, format=Format.NUMBER),
            Column(name="subscriptions", title="Subscribes to", value=subscriptions, mark=mark),
            Column(name="queues", title="Queues", value=lambda member: member.queues),
        ),
    )


async def _show(visit: Visit) -> Response:
    group = visit.name("group")
    ring = visit.watch.keep_group_fresh(group)
    found, queues, retries, letters = await asyncio.gather(
        show_group(visit.admin, group),
        group_queues(visit.admin, group),
        _messages(visit.admin, retry_topic(group)),
        _messages(visit.admin, dlq_topic(group)),
    )
    return visit.page(
        "group.html",
        title=f"Group {group}",
        tables=[visit.table(_QUEUES, queues.queues), visit.table(_SETTINGS, found.brokers)],
        failures=found.failures,
        group=found,
        retry_topic=retry_topic(group),
        waiting=sum(queue.lag or 0 for queue in queues.queues if is_retry_topic(queue.topic)),
        retries=retries,
        letters=letters,
        chart=_chart(ring),
        tabs=group_tabs(group, ""),
        live_address=with_query(address("groups", group, "live"), visit.query),
        every=EVERY,
    )


async def _messages(admin: Admin, topic: str) -> int | None:
    """Return the messages of a topic; None if it does not exist, or a broker did not answer."""
    try:
        found = await topic_queues(admin, topic)
    except TopicNotFoundError:
        return None
    return None if found.failures else sum(queue.messages for queue in found.queues)


async def _live(visit: Visit) -> Response:
    group = visit.name("group")
    ring = visit.watch.keep_group_fresh(group)
    queues = await group_queues(visit.admin, group)
    view = visit.table(_QUEUES, queues.queues, path=address("groups", group))
    return visit.fragment("group_live.html", queues=view, chart=_chart(ring))


def _chart(ring: Ring) -> object:
    return line_chart("Messages to consume", [Line("Lag", ring.points)], Format.NUMBER)


async def _members(visit: Visit) -> Response:
    group = visit.name("group")
    found = await group_members(visit.admin, group)
    usual = usual_subscriptions(found)
    differing = [each.client_id for each in found.members if each.subscriptions not in (None, usual)]
    return visit.page(
        "group_members.html",
        title=f"Group {group}",
        tables=[visit.table(members_table(usual), found.members), visit.table(_SUBSCRIPTIONS, found.subscriptions)],
        failures=found.failures,
        found=found,
        differing=differing,
        tabs=group_tabs(group, "members"),
    )


def usual_subscriptions(found: Members) -> tuple[Subscription, ...] | None:
    """Return the subscriptions that most members have; None if no member said."""
    counts = Counter(member.subscriptions for member in found.members if member.subscriptions is not None)
    return max(counts, key=lambda each: counts[each], default=None)


PAGES: Final = (
    Page(path="/groups/{group}", show=_show),
    Page(path="/groups/{group}/live", show=_live),
    Page(path="/groups/{group}/members", show=_members),
)
