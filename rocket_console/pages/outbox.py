"""The pages of an outbox: all messages that an application has put into it, one of them, resend and roll-back.

The database filters, sorts and pages. It is asked in a thread, and each look or change is one transaction. This module
needs SQLAlchemy, so that only a console that is given an outbox imports it.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from rocket_console.pages.fields import count_or_none, required, whole_numbers
from rocket_console.pages.message_body import body_views
from rocket_console.pages.named_values import NamedValue, named_values
from rocket_console.pages.section import Action, Page, Section
from rocket_console.pages.ticked_rows import AskedChange
from rocket_console.pages.visit import Visit
from rocket_console.rendering.addresses import address
from rocket_console.rendering.formats import Format
from rocket_console.tables.stored_table_view import MOST_ROWS, StoredTableView
from rocket_console.tables.table import Column, Table
from rocket_console.tables.table_state import TableState
from streamkit.clock import current_clock
from streamkit.messaging.headers import CONTENT_TYPE
from streamkit.patterns.outbox.administration import (
    SLICE,
    OutboxRow,
    Selection,
    count_over_limits,
    count_rows,
    list_rows,
    resend,
    roll_back,
    show_row,
    topics_of,
)
from streamkit.patterns.outbox.database import Database
from streamkit.patterns.outbox.errors import OutboxError
from streamkit.patterns.outbox.operator_database import place_of, refusal_text
from streamkit.patterns.outbox.status import OVER_LIMITS, MessageStatus

__all__ = ["OutboxPages"]

T = TypeVar("T")

_WITHIN: Final = 4.0
"""Seconds that a page waits for the database; less than the time limit of a page."""
_MOST_TOPICS: Final = 100
"""Topics that the filter offers."""
_MARKS: Final = {
    MessageStatus.CONSUMED: "good",
    MessageStatus.CONSUMPTION_FAILED: "warn",
    MessageStatus.CONSUMPTION_RETRIES_EXCEEDED: "bad",
    MessageStatus.CONFIRMATION_RETRIES_EXCEEDED: "bad",
}


def _is_over(row: OutboxRow) -> bool:
    return row.status in OVER_LIMITS


_COLUMNS: Final[Sequence[Column[OutboxRow]]] = (
    Column(
        name="id",
        title="Id",
        value=lambda row: row.id,
        link=lambda row: address("outbox", "messages", str(row.number)),
    ),
    Column(name="topic", title="Output", value=lambda row: row.topic, is_choice=True),
    Column(
        name="status", title="Status", value=lambda row: row.status, mark=lambda row: _mark(row.status), is_choice=True
    ),
    Column(name="error", title="Last error", value=lambda row: row.error),
    Column(name="pending", title="To be sent", value=lambda row: row.pending),
    Column(name="send_times", title="Sent again", value=lambda row: row.send_times, format=Format.NUMBER),
    Column(name="created_at", title="Inserted (UTC)", value=lambda row: row.created_at, format=Format.TIME),
    Column(name="sent_at", title="Stored by the broker (UTC)", value=lambda row: row.sent_at, format=Format.TIME),
    Column(name="updated_at", title="Changed (UTC)", value=lambda row: row.updated_at, format=Format.TIME),
    Column(name="key", title="Key", value=lambda row: row.key),
    Column(name="number", title="Number", value=lambda row: row.number, format=Format.NUMBER),
)
_MESSAGES: Final[Table[OutboxRow]] = Table(
    name="messages",
    caption="Messages",
    order="-number",
    empty="The outbox has no message: an application adds one in the transaction of its own changes.",
    search="Id begins with",
    tick=lambda row: str(row.number) if _is_over(row) else None,
    columns=_COLUMNS,
)
_CHOSEN: Final[Table[OutboxRow]] = Table(
    name="chosen",
    caption="What would be changed",
    empty="Nothing would be changed: only messages over a limit are sent again or rolled back.",
    columns=_COLUMNS,
)


@dataclass(frozen=True, kw_only=True)
class _Event:
    time: datetime
    text: str


_HISTORY: Final[Table[_Event]] = Table(
    name="history",
    caption="History",
    empty="Nothing is recorded.",
    columns=(
        Column(name="time", title="Time (UTC)", value=lambda event: event.time, format=Format.TIME),
        Column(name="event", title="What has happened", value=lambda event: event.text),
    ),
)
_HEADERS: Final = named_values("headers", "Headers", empty="The message has no headers.", value_title="Value, as JSON")


@dataclass(frozen=True, kw_only=True)
class _Change(AskedChange):
    """Something that is done to messages over a limit.

    Attributes:
        act: Does it to the rows of a selection, and returns them.
    """

    act: Callable[..., Sequence[OutboxRow]]


_RESEND: Final = _Change(
    step="resend",
    title="Send messages again",
    button="Send again",
    effect="Their status becomes NOT_CONSUMED, and their sends are counted anew. The application's relay sends them "
    "with the same ids, so that consumers that have done their work pass over them.",
    act=resend,
)
_ROLL_BACK: Final = _Change(
    step="roll-back",
    title="Roll messages back",
    button="Roll back",
    effect="Their status becomes ROLLED_BACK, and they are sent no more. The application that relays them then "
    "undoes its own work with the function of @outbox.compensate. Consumers are not notified, and their "
    "work is not undone. A message that is rolled back cannot be sent again.",
    act=roll_back,
)


class OutboxPages:
    """The pages of the outbox in a database."""

    def __init__(self, database: Database) -> None:
        """Create the pages; nothing is connected yet.

        Args:
            database: The database, with a blocking driver.
        """
        self._database = database

    @property
    def section(self) -> Section:
        """The pages and actions as a section of the console."""
        return Section(
            title="Outbox",
            path="/outbox",
            key="x",
            pages=(
                Page(path="/outbox", show=self._list),
                Page(path="/outbox/messages/{number:int}", show=self._show),
                Page(path="/outbox/resend", show=partial(self._ask, change=_RESEND)),
                Page(path="/outbox/roll-back", show=partial(self._ask, change=_ROLL_BACK)),
            ),
            actions=(
                Action(
                    path="/outbox/resend",
                    name="outbox.resend",
                    done="The messages wait for the application's relay, which sends them again.",
                    act=partial(self._change, change=_RESEND),
                    recorded=("count", "rows"),
                ),
                Action(
                    path="/outbox/roll-back",
                    name="outbox.roll-back",
                    done="The messages are rolled back: the application that relays them undoes its own work.",
                    act=partial(self._change, change=_ROLL_BACK),
                    recorded=("count", "rows"),
                ),
            ),
        )

    async def _list(self, visit: Visit) -> Response:
        state = TableState.of(_MESSAGES, visit.query)
        selection = _filter({"q": state.text, **state.choices})

        def read(connection: Connection) -> StoredTableView[OutboxRow]:
            topics = topics_of(connection, _MOST_TOPICS)
            view = StoredTableView(
                _MESSAGES,
                visit.path,
                visit.query,
                count=count_rows(connection, selection, MOST_ROWS + 1),
                choices={"topic": topics, "status": [*map(str, MessageStatus)]},
            )
            view.fill(list_rows(connection, selection, view.limit, order=view.state.order, skip=view.skip))
            return view

        view = await self._run(read)
        return visit.page(
            "outbox.html",
            title="Outbox",
            tables=[view],
            place=place_of(self._database),
            most=MOST_ROWS,
            over=[*map(str, OVER_LIMITS)],
            matching={"all": "yes", "q": state.text, **state.choices},
            changed=count_or_none(visit.query, "changed"),
            asked=count_or_none(visit.query, "asked"),
        )

    async def _show(self, visit: Visit) -> Response:
        numbers = whole_numbers(visit.name("number"), "number", most=1)
        row = await self._run(lambda connection: show_row(connection, Selection(numbers=numbers)), missing=404)
        headers = row.headers or {}
        given = headers.get(CONTENT_TYPE)
        body, content_type = row.body or b"", None if given is None else str(given)
        listed = [NamedValue(name=name, value=json.dumps(value, ensure_ascii=False)) for name, value in headers.items()]
        return visit.page(
            "outbox_message.html",
            title=f"Message {row.id} of the outbox",
            tables=[visit.table(_HISTORY, _history(row)), visit.table(_HEADERS, listed)],
            row=row,
            topics=next((each.topics for each in visit.bindings if each.binding == row.topic), ()),
            mark=_mark(row.status) or "",
            is_over=_is_over(row),
            has_body=row.body is not None,
            body_size=len(body),
            views=body_views(body, content_type, visit.schemas.record_of(body, content_type, row.topic)),
        )

    async def _ask(self, visit: Visit, change: _Change) -> Response:
        ticked = visit.request.query_params.getlist("row")
        if ticked:
            selection = Selection(numbers=whole_numbers(" ".join(ticked), "row", most=SLICE))
        elif "all" in visit.query:
            selection = _filter(visit.query)
        else:
            raise ValueError("no message is chosen: tick rows of the table, or take all that match its filter")

        def read(connection: Connection) -> tuple[Sequence[OutboxRow], int]:
            rows = change.act(connection, selection, 0, dry_run=True)
            return rows, count_over_limits(connection, selection)

        rows, count = await self._run(read)
        return visit.page(
            "outbox_change.html",
            title=change.title,
            tables=[visit.table(_CHOSEN, rows)],
            change=change,
            rows=" ".join(str(row.number) for row in rows),
            count=len(rows),
            ticked=len(ticked),
            left=count - len(rows),
        )

    async def _change(self, visit: Visit, change: _Change) -> Response:
        numbers = whole_numbers(required(visit.form, "rows"), "rows", most=SLICE)
        now = current_clock().now_ms()
        selection = Selection(numbers=numbers)
        rows = await self._run(lambda connection: change.act(connection, selection, now), is_change=True)
        return visit.done(address("outbox", changed=len(rows), asked=len(numbers)))

    async def _run(self, work: Callable[[Connection], T], *, missing: int = 400, is_change: bool = False) -> T:
        """Return what a function of a connection returns, which runs in a transaction.

        Args:
            work: The function.
            missing: The HTTP status code if a row is not there.
            is_change: Whether it changes rows.

        Raises:
            HTTPException: The database refuses, or does not answer in time.
        """
        try:
            async with asyncio.timeout(_WITHIN):
                return await self._database.run(work)
        except OutboxError as error:
            raise HTTPException(missing, str(error)) from error
        except SQLAlchemyError as error:
            raise HTTPException(502, refusal_text(error)) from error
        except TimeoutError as error:
            # A thread cannot be stopped: its transaction may still commit.
            what = "it may still do what was asked for: look at the messages" if is_change else "narrow the filter"
            text = f"the database ({place_of(self._database)}) did not answer within {_WITHIN:g} s; {what}"
            raise HTTPException(504, text) from error


def _filter(fields: Mapping[str, str]) -> Selection:
    """Return the rows that match the filters `q`, `status` and `topic`.

    Raises:
        ValueError: There is no such status.
    """
    status = fields.get("status", "")
    if status and status not in [*MessageStatus]:
        raise ValueError(f"the status is {status!r}: expected one of {', '.join(MessageStatus)}")
    return Selection(
        topic=fields.get("topic") or None,
        statuses=[MessageStatus(status)] if status else (),
        id_start=fields.get("q") or None,
    )


def _mark(status: str) -> str | None:
    found = next((each for each in MessageStatus if each == status), None)
    return None if found is None else _MARKS.get(found)


def _history(row: OutboxRow) -> Sequence[_Event]:
    """Return what the row records of its past: the last time of each kind, in their order."""
    again = f" Sends after the first: {row.send_times}." if row.send_times else ""
    events: list[tuple[datetime | None, str]] = [
        (row.created_at, "The sender's transaction inserted the message."),
        (row.sent_at, f"The broker stored the message.{again}"),
        (row.checked_at, "The consumer was asked whether it has done its work."),
        (row.updated_at, f"The row was last changed; its status is {row.status}."),
        (row.compensated_at, "The sender's work was undone."),
    ]
    found = [_Event(time=time, text=text) for time, text in events if time is not None]
    return sorted(found, key=lambda event: event.time)
