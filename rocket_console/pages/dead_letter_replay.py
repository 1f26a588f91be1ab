"""The pages that send the dead letters of a group again: what would be sent, the replay that runs, and its end.

The replay is a job of the console: it goes on while nobody looks, at the rate that was asked for.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Final

from starlette.responses import Response

from rocket_admin.replay_account import ReplayAccount
from rocket_admin.replays import Replay, ReplayedLetter, replay_dead_letters
from rocket_client import UnreadableBodyError
from rocket_console.pages.fields import number_of, text_or_none
from rocket_console.pages.section import Action, Page
from rocket_console.pages.tabs import dead_letter_tabs
from rocket_console.pages.visit import Visit
from rocket_console.rendering.addresses import address
from rocket_console.rendering.formats import Format
from rocket_console.tables.table import Column, Table
from rocket_remoting.wire.topics import dlq_topic

__all__ = ["ACTIONS", "PAGES"]

_WITHIN: Final = 2.0
"""Seconds in which a preview reads."""
_MOST_SHOWN: Final = 500
"""Letters that a preview shows."""
_RATE: Final = 50
"""Letters a second, unless the form says otherwise."""
_PATIENCE: Final = 0.3
"""Seconds for which a request waits for the end of the replay that it starts."""
_EVERY: Final = 2
"""Seconds between two looks at a replay that runs."""

_REPLAYED: Final[Table[ReplayedLetter]] = Table(
    name="replayed",
    caption="Letters that would be sent",
    empty="No letter would be sent: there is none of which all conditions are true, and that was not sent before.",
    columns=(
        Column(
            name="letter",
            title="Letter",
            value=lambda each: each.letter,
            link=lambda each: address("messages", each.letter),
        ),
        Column(name="topic", title="To topic", value=lambda each: each.topic),
        Column(name="broker", title="Broker", value=lambda each: each.broker),
        Column(name="queue", title="Queue", value=lambda each: each.queue, format=Format.NUMBER),
        Column(name="offset", title="Offset", value=lambda each: each.offset, format=Format.NUMBER),
    ),
)


async def _form(visit: Visit) -> Response:
    group, query = visit.name("group"), visit.query
    is_asked = "preview" in query
    sent_before, replayed = 0, list[ReplayedLetter]()
    if is_asked:
        sent_before, replayed = await _preview(visit, _replay_of(visit, query, most=_MOST_SHOWN, dry_run=True))
    return visit.page(
        "dead_letters_replay.html",
        title=f"Dead letters of {group}",
        tables=[visit.table(_REPLAYED, replayed)] if is_asked else (),
        group_name=group,
        is_asked=is_asked,
        topics=sorted(Counter(each.topic for each in replayed).items()),
        count=len(replayed),
        is_cut=len(replayed) >= _MOST_SHOWN,
        sent_before=sent_before,
        asked={
            "where": query.get("where", ""),
            "to": query.get("to", ""),
            "limit": query.get("limit", ""),
            "rate": query.get("rate", "") or str(_RATE),
            "alone": query.get("alone", ""),
            "again": query.get("again", ""),
        },
        tabs=dead_letter_tabs(group, "replay"),
        job=visit.replays.of(group),
        progress=address("dead-letters", group, "replay", "progress"),
        every=_EVERY,
    )


def _replay_of(visit: Visit, fields: Mapping[str, str], *, most: int | None = None, dry_run: bool = False) -> Replay:
    """Return the replay of the group's letters that the fields of a form describe.

    Raises:
        ValueError: A field is wrong, or two contradict each other.
    """
    limit = number_of(fields, "limit", least=1)
    to, is_alone = text_or_none(fields, "to"), bool(fields.get("alone"))
    if to is not None and is_alone:
        raise ValueError("name a topic, or send to the group alone: both is not possible")
    return Replay(
        group=visit.name("group"),
        to=to,
        to_group_alone=is_alone,
        conditions=visit.conditions(fields),
        rate=number_of(fields, "rate", least=1) or _RATE,
        limit=limit if most is None else min(limit or most, most),
        within=_WITHIN if dry_run else None,
        dry_run=dry_run,
    )


async def _preview(visit: Visit, replay: Replay) -> tuple[int, list[ReplayedLetter]]:
    """Return how many letters the account has, and those that would be sent."""

    def pass_over(error: UnreadableBodyError) -> None:
        """Leave the letter where it is: it cannot be sent."""

    path = visit.replays.account_of(replay.group)
    if visit.query.get("again") or not path.exists() or visit.replays.is_running(replay.group):
        async with aclosing(replay_dead_letters(visit.admin, replay, skipped=pass_over)) as letters:
            return 0, [letter async for letter in letters]
    with ReplayAccount(path, replay.group) as account:
        async with aclosing(replay_dead_letters(visit.admin, replay, account, skipped=pass_over)) as letters:
            return len(account), [letter async for letter in letters]


async def _start(visit: Visit) -> Response:
    group = visit.name("group")
    replay = _replay_of(visit, visit.form)
    await visit.admin.topic_route(dlq_topic(group))
    await visit.replays.start(replay, again=bool(visit.form.get("again")), patience=_PATIENCE)
    return visit.done(address("dead-letters", group, "replay"))


async def _progress(visit: Visit) -> Response:
    group = visit.name("group")
    job = visit.replays.of(group)
    is_last = job is None or not job.is_running
    return visit.fragment("dead_letters_progress.html", is_last=is_last, job=job, group_name=group)


async def _cancel(visit: Visit) -> Response:
    group = visit.name("group")
    await visit.replays.cancel(group)
    return visit.done(address("dead-letters", group, "replay"))


PAGES: Final[Sequence[Page]] = (
    Page(path="/dead-letters/{group}/replay", show=_form),
    Page(path="/dead-letters/{group}/replay/progress", show=_progress),
)
ACTIONS: Final[Sequence[Action]] = (
    Action(
        path="/dead-letters/{group}/replay",
        name="dead-letter.replay",
        done="The replay has begun.",
        act=_start,
        recorded=("to", "alone", "limit", "rate", "again", "where"),
    ),
    Action(
        path="/dead-letters/{group}/replay/cancel",
        name="dead-letter.cancel-replay",
        done="The replay does not run any more.",
        act=_cancel,
    ),
)
