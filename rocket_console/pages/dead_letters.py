"""The pages of dead letters: groups that have some, their causes, the letters, and dropping them.

One look reads a bounded number of letters for a bounded time, the oldest of each queue first. Replays are in
`rocket_console.pages.dead_letter_replay`.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from starlette.responses import Response

from rocket_admin.conditions import Condition
from rocket_admin.dead_letters import (
    CauseGroup,
    DeadLetter,
    DeadLetterGroup,
    DroppedLetters,
    by_cause,
    dead_letter_groups,
    dead_letters,
    drop_dead_letters,
    groups_with_dead_letter_topic,
)
from rocket_admin.targets import TARGET_FORMS, time_or_end_of
from rocket_admin.times import iso_text
from rocket_client import UnreadableBodyError
from rocket_console.pages.fields import required
from rocket_console.pages.section import Action, Page
from rocket_console.pages.tabs import dead_letter_tabs
from rocket_console.pages.visit import Visit
from rocket_console.rendering.addresses import address
from rocket_console.rendering.formats import Format
from rocket_console.tables.table import Column, Table
from rocket_remoting.wire.message import MessageExt

__all__ = ["ACTIONS", "PAGES"]

_MOST_READ: Final = 2000
"""Letters that one look reads."""

_GROUPS: Final[Table[DeadLetterGroup]] = Table(
    name="groups",
    caption="Groups with dead letters",
    order="-count",
    empty="No group has dead letters.",
    columns=(
        Column(
            name="group",
            title="Group",
            value=lambda each: each.group,
            link=lambda each: address("dead-letters", each.group),
        ),
        Column(
            name="count",
            title="Dead letters",
            value=lambda each: each.count,
            format=Format.NUMBER,
            mark=lambda each: "bad" if each.count else None,
        ),
        Column(name="dropped", title="Dropped, still stored", value=lambda each: each.dropped, format=Format.NUMBER),
        Column(name="newest", title="Newest (UTC)", value=lambda each: each.newest_at, format=Format.TIME),
    ),
)
_CAUSES: Final[Table[CauseGroup]] = Table(
    name="causes",
    caption="Causes",
    empty="No letter was read.",
    columns=(
        Column(
            name="type",
            title="Exception",
            value=lambda cause: cause.type,
            link=lambda cause: address("messages", cause.example),
        ),
        Column(name="text", title="Text of the oldest", value=lambda cause: cause.text),
        Column(name="place", title="Raised at", value=lambda cause: cause.place),
        Column(name="count", title="Letters", value=lambda cause: cause.count, format=Format.NUMBER),
        Column(name="oldest", title="Oldest (UTC)", value=lambda cause: cause.oldest_at, format=Format.TIME),
        Column(name="newest", title="Newest (UTC)", value=lambda cause: cause.newest_at, format=Format.TIME),
        Column(name="topics", title="First sent to", value=lambda cause: cause.origin_topics),
    ),
)
_LETTERS: Final[Table[DeadLetter]] = Table(
    name="letters",
    caption="Letters",
    empty="There is no letter of which all conditions are true.",
    tick=lambda each: each.letter.offset_message_id,
    columns=(
        Column(
            name="message_id",
            title="Message",
            value=lambda each: each.letter.message_id,
            link=lambda each: address("messages", each.letter.offset_message_id),
        ),
        Column(name="stored_at", title="Given up (UTC)", value=lambda each: each.letter.stored_at, format=Format.TIME),
        Column(
            name="origin",
            title="First sent to",
            value=lambda each: each.origin_topic,
            link=lambda each: address("topics", each.origin_topic),
        ),
        Column(name="keys", title="Keys", value=lambda each: each.letter.keys),
        Column(name="cause", title="Exception", value=lambda each: each.cause and each.cause.type),
        Column(name="text", title="Its text", value=lambda each: each.cause and each.cause.message),
        Column(name="size", title="Size", value=lambda each: each.letter.body_size, format=Format.SIZE),
        Column(name="body", title="Body", value=lambda each: each.letter.body),
    ),
)
_DROPPED: Final[Table[DroppedLetters]] = Table(
    name="dropped",
    caption="What would be dropped",
    empty="The group has no queue with dead letters.",
    columns=(
        Column(name="broker", title="Broker", value=lambda each: each.broker),
        Column(name="queue", title="Queue", value=lambda each: each.queue, format=Format.NUMBER),
        Column(name="from", title="From offset", value=lambda each: each.from_offset, format=Format.NUMBER),
        Column(name="to", title="To offset", value=lambda each: each.to_offset, format=Format.NUMBER),
        Column(name="count", title="Letters", value=lambda each: each.count, format=Format.NUMBER),
    ),
)


@dataclass(frozen=True, kw_only=True)
class _Look:
    """Dead letters that were read.

    Attributes:
        letters: The letters of which all conditions are true.
        is_whole: Whether these are all; if not, there were too many, or the time was over.
    """

    letters: Sequence[MessageExt]
    is_whole: bool


async def _show_groups(visit: Visit) -> Response:
    names = await groups_with_dead_letter_topic(visit.admin)
    found = [group async for group in dead_letter_groups(visit.admin, names)]
    return visit.page("dead_letters.html", title="Dead letters", tables=[visit.table(_GROUPS, found)])


async def _show_group(visit: Visit) -> Response:
    group, where = visit.name("group"), visit.query.get("where", "")
    look = await _look(visit, group, visit.conditions(visit.query))
    letters = [DeadLetter.of(letter) for letter in look.letters]
    return visit.page(
        "dead_letters_group.html",
        title=f"Dead letters of {group}",
        tables=[visit.table(_CAUSES, by_cause(look.letters)), visit.table(_LETTERS, letters)],
        group_name=group,
        where=where,
        look=look,
        tabs=dead_letter_tabs(group, ""),
    )


async def _look(visit: Visit, group: str, conditions: Sequence[Condition]) -> _Look:
    found: list[MessageExt] = []

    def keep(error: UnreadableBodyError) -> None:
        found.append(error.message)

    try:
        async with (
            asyncio.timeout(visit.reads_within),
            aclosing(dead_letters(visit.admin, group, conditions=conditions, skipped=keep)) as letters,
        ):
            async for letter in letters:
                if len(found) >= _MOST_READ:
                    return _Look(letters=found, is_whole=False)
                found.append(letter)
    except TimeoutError:
        return _Look(letters=found, is_whole=False)
    return _Look(letters=found, is_whole=True)


async def _drop_form(visit: Visit) -> Response:
    group, before = visit.name("group"), visit.query.get("before", "").strip()
    time, dropped = None, list[DroppedLetters]()
    if before:
        # Letters that come after the preview are not dropped with those that it shows.
        time = _time(before)
        dropped = await drop_dead_letters(visit.admin, group, before=time, dry_run=True)
    return visit.page(
        "dead_letters_drop.html",
        title=f"Dead letters of {group}",
        tables=() if time is None else [visit.table(_DROPPED, dropped)],
        group_name=group,
        before=before,
        time="" if time is None else iso_text(time),
        count=sum(each.count for each in dropped),
        forms=TARGET_FORMS,
        tabs=dead_letter_tabs(group, "drop"),
    )


def _time(text: str) -> datetime:
    if text.lower() == "latest":
        return datetime.now(UTC)
    time = time_or_end_of(text)
    if not isinstance(time, datetime):
        raise ValueError(f"the field before is {text!r}: no letter is older; write latest, or a time")
    return time


async def _drop(visit: Visit) -> Response:
    group = visit.name("group")
    await drop_dead_letters(visit.admin, group, before=_time(required(visit.form, "before")))
    return visit.done(address("dead-letters", group))


PAGES: Final = (
    Page(path="/dead-letters", show=_show_groups),
    Page(path="/dead-letters/{group}", show=_show_group),
    Page(path="/dead-letters/{group}/drop", show=_drop_form),
)
ACTIONS: Final = (
    Action(
        path="/dead-letters/{group}/drop",
        name="dead-letter.drop",
        done="The letters were dropped. They are stored until their retention is over.",
        act=_drop,
        recorded=("before",),
    ),
)
