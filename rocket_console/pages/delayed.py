"""The pages of delayed messages: what waits, for which topic and until when; and delivering or cancelling some."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from starlette.responses import Response

from rocket_admin.delayed_messages import DelayedMessage, cancel_delayed, delayed_messages, deliver_delayed
from rocket_console.pages.fields import count_or_none, required
from rocket_console.pages.section import Action, Page
from rocket_console.pages.ticked_rows import AskedChange, rows_in, ticked_rows
from rocket_console.pages.visit import Visit
from rocket_console.rendering.addresses import address
from rocket_console.rendering.formats import Format
from rocket_console.tables.table import Column, Table

__all__ = ["ACTIONS", "PAGES"]

_WITHIN: Final = 2.0
"""Seconds in which one step reads delayed messages, and delivers or cancels some."""

_DELAYED: Final[Table[DelayedMessage]] = Table(
    name="delayed",
    caption="Messages that wait for their time",
    order="due",
    empty="No message waits for its time.",
    tick=lambda each: each.record.offset_message_id if each.can_be_cancelled else None,
    columns=(
        Column(
            name="message_id",
            title="Message",
            value=lambda each: each.record.message_id,
            link=lambda each: address("messages", each.record.offset_message_id),
        ),
        Column(
            name="topic",
            title="For topic",
            value=lambda each: each.topic,
            link=lambda each: address("topics", each.topic),
        ),
        Column(name="kind", title="Kind", value=lambda each: each.kind, is_choice=True),
        Column(name="due", title="Due (UTC)", value=lambda each: each.due_at, format=Format.TIME),
        Column(
            name="left",
            title="Waits",
            value=lambda each: round((each.due_at - datetime.now(UTC)).total_seconds()),
            format=Format.SECONDS,
        ),
        Column(name="stored", title="Stored (UTC)", value=lambda each: each.record.stored_at, format=Format.TIME),
        Column(name="broker", title="Broker", value=lambda each: each.record.broker),
        Column(name="keys", title="Keys", value=lambda each: each.record.keys),
        Column(name="size", title="Size", value=lambda each: each.record.body_size, format=Format.SIZE),
        Column(name="body", title="Body", value=lambda each: each.record.body),
    ),
)


@dataclass(frozen=True, kw_only=True)
class _Change(AskedChange):
    """Something that is done to timed messages.

    Attributes:
        act: Does it to those messages with these offset message ids that still wait, and returns them.
    """

    act: Callable[..., Awaitable[Sequence[DelayedMessage]]]


_DELIVER: Final = _Change(
    step="deliver",
    title="Deliver messages now",
    button="Deliver now",
    effect="Copies of the messages, with ids of their own, come into their topics now, and the messages that wait are "
    "cancelled. If one is due before the broker has cancelled it, consumers receive both.",
    act=deliver_delayed,
)
_CANCEL: Final = _Change(
    step="cancel",
    title="Cancel messages",
    button="Cancel the messages",
    effect="No consumer receives the messages. They stay stored until their retention is over.",
    act=cancel_delayed,
)


async def _show(visit: Visit) -> Response:
    found = await delayed_messages(visit.admin, seconds=visit.reads_within)
    return visit.page(
        "delayed.html",
        title="Delayed messages",
        tables=[visit.table(_DELAYED, found.waiting)],
        found=found,
        can_change=visit.session.role.may_change and any(each.can_be_cancelled for each in found.waiting),
        changed=count_or_none(visit.query, "changed"),
        asked=count_or_none(visit.query, "asked"),
    )


async def _ask(visit: Visit, change: _Change) -> Response:
    ticked = ticked_rows(visit, "message", "changes")
    found = await delayed_messages(visit.admin, seconds=_WITHIN)
    chosen = [each for each in found.waiting if each.record.offset_message_id in ticked and each.can_be_cancelled]
    return visit.page(
        "delayed_change.html",
        title=change.title,
        tables=[visit.table(_DELAYED, chosen)],
        change=change,
        records=" ".join(each.record.offset_message_id for each in chosen),
        count=len(chosen),
        ticked=len(ticked),
    )


async def _change(visit: Visit, change: _Change) -> Response:
    records = rows_in(required(visit.form, "records"), "message", "changes")
    changed = await change.act(visit.admin, records, seconds=_WITHIN)
    return visit.done(address("delayed", changed=len(changed), asked=len(records)))


PAGES: Final = (
    Page(path="/delayed", show=_show),
    Page(path="/delayed/deliver", show=partial(_ask, change=_DELIVER)),
    Page(path="/delayed/cancel", show=partial(_ask, change=_CANCEL)),
)
ACTIONS: Final = (
    Action(
        path="/delayed/deliver",
        name="delayed.deliver",
        done="The messages were delivered.",
        act=partial(_change, change=_DELIVER),
        recorded=("records",),
    ),
    Action(
        path="/delayed/cancel",
        name="delayed.cancel",
        done="The messages were cancelled.",
        act=partial(_change, change=_CANCEL),
        recorded=("records",),
    ),
)
