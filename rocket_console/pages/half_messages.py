"""The pages of half messages: messages of open transactions, which no consumer gets yet, and ending them by hand."""

from dataclasses import dataclass
from functools import partial
from typing import Final

from starlette.responses import Response

from rocket_admin.half_messages import HalfMessage, end_half_messages, half_messages
from rocket_console.pages.fields import count_or_none, required
from rocket_console.pages.section import Action, Page
from rocket_console.pages.ticked_rows import AskedChange, rows_in, ticked_rows
from rocket_console.pages.visit import Visit
from rocket_console.rendering.addresses import address
from rocket_console.rendering.formats import Format
from rocket_console.tables.table import Column, Table

__all__ = ["ACTIONS", "PAGES"]

_WITHIN: Final = 2.0
"""Seconds in which one step reads half messages, and ends transactions."""

_HALVES: Final[Table[HalfMessage]] = Table(
    name="halves",
    caption="Open transactions",
    empty="No transaction is open.",
    tick=lambda half: half.record.message_id,
    columns=(
        Column(
            name="message_id",
            title="Message",
            value=lambda half: half.record.message_id,
            link=lambda half: address("messages", half.record.offset_message_id),
        ),
        Column(name="begun", title="Begun (UTC)", value=lambda half: half.begun_at, format=Format.TIME),
        Column(
            name="topic",
            title="For topic",
            value=lambda half: half.topic,
            link=lambda half: address("topics", half.topic),
        ),
        Column(name="group", title="Producer group", value=lambda half: half.group),
        Column(
            name="checks",
            title="Checks",
            value=lambda half: half.checks,
            format=Format.NUMBER,
            mark=lambda half: "warn" if half.checks else None,
        ),
        Column(name="broker", title="Broker", value=lambda half: half.record.broker),
        Column(name="keys", title="Keys", value=lambda half: half.record.keys),
        Column(name="size", title="Size", value=lambda half: half.record.body_size, format=Format.SIZE),
        Column(name="body", title="Body", value=lambda half: half.record.body),
    ),
)


@dataclass(frozen=True, kw_only=True)
class _End(AskedChange):
    """A way to end transactions.

    Attributes:
        commits: Whether consumers get the messages.
    """

    commits: bool


_COMMIT: Final = _End(
    step="commit",
    title="Commit transactions by hand",
    button="Commit",
    effect="The messages come into their topics, and consumers receive them. Nobody asks the producers any more: do "
    "this only if their own transactions have committed.",
    commits=True,
)
_ROLL_BACK: Final = _End(
    step="roll-back",
    title="Roll transactions back by hand",
    button="Roll back",
    effect="The messages are discarded: no consumer receives them. Nobody asks the producers any more: do this only if "
    "their own transactions have not committed.",
    commits=False,
)


async def _show(visit: Visit) -> Response:
    found = await half_messages(visit.admin, seconds=visit.reads_within)
    return visit.page(
        "half_messages.html",
        title="Half messages",
        tables=[visit.table(_HALVES, found.pending)],
        found=found,
        ended=count_or_none(visit.query, "ended"),
        asked=count_or_none(visit.query, "asked"),
    )


async def _ask(visit: Visit, end: _End) -> Response:
    ticked = ticked_rows(visit, "half message", "ends")
    found = await half_messages(visit.admin, seconds=_WITHIN)
    chosen = [half for half in found.pending if half.record.message_id in ticked]
    return visit.page(
        "half_messages_end.html",
        title=end.title,
        tables=[visit.table(_HALVES, chosen)],
        end=end,
        halves_text=" ".join(half.record.message_id for half in chosen),
        count=len(chosen),
        ticked=len(ticked),
        found=found,
    )


async def _end(visit: Visit, end: _End) -> Response:
    halves = rows_in(required(visit.form, "halves"), "half message", "ends")
    ended = await end_half_messages(visit.admin, halves, commits=end.commits, seconds=_WITHIN)
    return visit.done(address("half-messages", ended=len(ended), asked=len(halves)))


PAGES: Final = (
    Page(path="/half-messages", show=_show),
    Page(path="/half-messages/commit", show=partial(_ask, end=_COMMIT)),
    Page(path="/half-messages/roll-back", show=partial(_ask, end=_ROLL_BACK)),
)
ACTIONS: Final = (
    Action(
        path="/half-messages/commit",
        name="transaction.commit",
        done="The transactions have committed. It may take seconds until the broker shows that.",
        act=partial(_end, end=_COMMIT),
        recorded=("halves",),
    ),
    Action(
        path="/half-messages/roll-back",
        name="transaction.roll-back",
        done="The transactions are rolled back. It may take seconds until the broker shows that.",
        act=partial(_end, end=_ROLL_BACK),
        recorded=("halves",),
    ),
)
