"""The pages of one message: its record, properties and body, its story, and sending a copy of it."""

from dataclasses import dataclass
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response

from rocket_admin.messages import (
    StoredMessage,
    fresh_copy,
    messages_with_id,
    origin_topic,
    search_id,
    send_message,
)
from rocket_admin.stories import Delivery, GroupState, GroupStory, story
from rocket_client import UnreadableBodyError
from rocket_console.pages.fields import required
from rocket_console.pages.message_body import body_views
from rocket_console.pages.message_table import MESSAGES
from rocket_console.pages.named_values import NamedValue, named_values
from rocket_console.pages.section import Action, Page
from rocket_console.pages.tabs import message_tabs
from rocket_console.pages.visit import Visit
from rocket_console.rendering.addresses import address
from rocket_console.rendering.formats import Format
from rocket_console.tables.table import Column, Table
from rocket_remoting.wire.message import MessageExt

__all__ = ["ACTIONS", "PAGES", "record_in", "record_of"]

_MARKS: Final = {
    GroupState.CONSUMED: "good",
    GroupState.RETRY_WAITING: "warn",
    GroupState.RETRY_DUE: "warn",
    GroupState.DEAD: "bad",
}


@dataclass(frozen=True, kw_only=True)
class _GroupDelivery:
    """One delivery to a member of a group."""

    group: str
    delivery: Delivery


_PROPERTIES: Final = named_values("properties", "Properties", empty="The message has no properties.")
_GROUPS: Final[Table[GroupStory]] = Table(
    name="groups",
    caption="What has become of it in each group",
    empty="No group has consumed the topic yet, as far as brokers know.",
    columns=(
        Column(
            name="group", title="Group", value=lambda each: each.group, link=lambda each: address("groups", each.group)
        ),
        Column(
            name="state",
            title="State",
            value=lambda each: each.state.value,
            mark=lambda each: _MARKS.get(each.state),
            is_choice=True,
        ),
        Column(name="detail", title="Detail", value=lambda each: each.detail),
        Column(name="members", title="Members", value=lambda each: each.members, format=Format.NUMBER),
        Column(name="redeliveries", title="Redeliveries", value=lambda each: each.redeliveries, format=Format.NUMBER),
        Column(name="next", title="Next delivery (UTC)", value=lambda each: each.next_delivery, format=Format.TIME),
        Column(
            name="letter",
            title="Dead letter",
            value=lambda each: each.dead_letter,
            link=lambda each: each.dead_letter and address("messages", each.dead_letter),
        ),
    ),
)
_DELIVERIES: Final[Table[_GroupDelivery]] = Table(
    name="deliveries",
    caption="Deliveries",
    empty="The brokers have no trace of a delivery.",
    columns=(
        Column(name="group", title="Group", value=lambda each: each.group),
        Column(name="number", title="Delivery", value=lambda each: each.delivery.number, format=Format.NUMBER),
        Column(name="due", title="Due (UTC)", value=lambda each: each.delivery.due_at, format=Format.TIME),
        Column(name="failed", title="Failed (UTC)", value=lambda each: each.delivery.failed_at, format=Format.TIME),
        Column(
            name="outcome",
            title="Outcome",
            value=lambda each: each.delivery.outcome,
            mark=lambda each: "bad" if each.delivery.outcome == "failed" else None,
        ),
        Column(
            name="cause",
            title="Cause",
            value=lambda each: each.delivery.cause and each.delivery.cause.type,
        ),
        Column(
            name="text",
            title="Its text",
            value=lambda each: each.delivery.cause and each.delivery.cause.message,
        ),
        Column(
            name="place",
            title="Raised at",
            value=lambda each: each.delivery.cause and each.delivery.cause.place,
        ),
    ),
)
_COPIES: Final[Table[StoredMessage]] = Table(
    name="copies",
    caption="All records of the message",
    empty="No record is stored any more.",
    columns=(
        Column(name="topic", title="Topic", value=lambda copy: copy.topic),
        Column(
            name="record",
            title="Record",
            value=lambda copy: copy.offset_message_id,
            link=lambda copy: address("messages", copy.offset_message_id),
        ),
        *(column for column in MESSAGES.columns if column.name in ("stored_at", "broker", "queue", "offset")),
    ),
)


async def _show(visit: Visit) -> Response:
    record = await record_of(visit)
    message = StoredMessage.of(record)
    body, origin = bytes(record.body), origin_topic(record)
    properties = [NamedValue(name=name, value=value) for name, value in message.properties.items()]
    return visit.page(
        "message.html",
        title=f"Message {message.message_id}",
        tables=[visit.table(_PROPERTIES, properties)],
        message=message,
        origin=origin,
        views=body_views(body, message.content_type, visit.schemas.record_of(body, message.content_type, origin)),
        tabs=message_tabs(message.offset_message_id, ""),
    )


async def record_of(visit: Visit) -> MessageExt:
    """Return the record that the address names; of several with the sender's id, the first.

    Raises:
        HTTPException: There is none.
    """
    message_id, topic = visit.name("id"), visit.query.get("topic") or None
    record = await (_record_anywhere(visit, message_id) if topic is None else record_in(visit, message_id, topic))
    if record is None:
        raise HTTPException(404, f"no broker has a message with the id {message_id}: it may have been deleted by age")
    return record


async def record_in(visit: Visit, message_id: str, topic: str) -> MessageExt | None:
    """Return the first record of a topic that an id names, also if its body is damaged; None if there is none."""
    try:
        found = await messages_with_id(visit.admin, message_id, topic)
    except UnreadableBodyError as error:
        return error.message
    return found[0] if found else None


async def _record_anywhere(visit: Visit, message_id: str) -> MessageExt | None:
    """Return the first record of any topic that an id names, as `record_in` does.

    Raises:
        HTTPException: There are too many topics to search them for one page.
    """
    try:
        step = await search_id(visit.admin, message_id, seconds=visit.reads_within)
    except UnreadableBodyError as error:
        return error.message
    if step.next is not None:
        raise HTTPException(
            404,
            f"the first {step.searched:,} of {step.topics:,} topics do not have the id {message_id}: search the others "
            "in the section Messages, or append ?topic= and the topic's name to the address of this page",
        )
    return step.messages[0] if step.messages else None


async def _story(visit: Visit) -> Response:
    record = await record_of(visit)
    found = await story(visit.admin, record.offset_message_id)
    if found is None:
        raise HTTPException(404, f"no broker has message {record.msg_id} any more")
    deliveries = [_GroupDelivery(group=each.group, delivery=one) for each in found.groups for one in each.deliveries]
    return visit.page(
        "message_story.html",
        title=f"Message {record.msg_id}",
        tables=[
            visit.table(_GROUPS, found.groups),
            visit.table(_DELIVERIES, deliveries),
            visit.table(_COPIES, found.copies),
        ],
        story=found,
        tabs=message_tabs(record.offset_message_id, "story"),
    )


async def _resend_form(visit: Visit) -> Response:
    record = await record_of(visit)
    return visit.page(
        "message_resend.html",
        title=f"Message {record.msg_id}",
        message=StoredMessage.of(record),
        to=origin_topic(record),
        tabs=message_tabs(record.offset_message_id, "resend"),
    )


async def _resend(visit: Visit) -> Response:
    sent = await send_message(visit.admin, fresh_copy(await record_of(visit), required(visit.form, "to")))
    return visit.done(address("messages", sent.offset_message_id or sent.message_id))


PAGES: Final = (
    Page(path="/messages/{id}", show=_show),
    Page(path="/messages/{id}/story", show=_story),
    Page(path="/messages/{id}/resend", show=_resend_form),
)
ACTIONS: Final = (
    Action(
        path="/messages/{id}/resend",
        name="message.resend",
        done="The copy was sent. This is its page.",
        act=_resend,
        recorded=("to",),
    ),
)
