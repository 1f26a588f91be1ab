"""The page that compares two dead letters of a group: what they are, their properties, and their bodies."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response

from rocket_admin.dead_letters import DeadLetter
from rocket_console.pages.message import record_in
from rocket_console.pages.section import Page
from rocket_console.pages.tabs import dead_letter_tabs
from rocket_console.pages.visit import Visit
from rocket_console.rendering.formats import time_text
from rocket_console.tables.table import Column, Table
from rocket_remoting.wire.topics import dlq_topic

__all__ = ["PAGES", "Difference", "line_differences"]

_MOST_LINES: Final = 1_000
"""Lines of each body that are compared."""
_LONGEST_LINE: Final = 2_000
"""Characters of a line that are compared."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The values of two letters in one place.

    Attributes:
        name: What it is: a property, or the number of a line.
        kind: `same`, `different`, `first only` or `second only`.
        first: What the first one has; None if it has nothing.
        second: What the second one has.
    """

    name: str
    kind: str
    first: str | None
    second: str | None

    @classmethod
    def between(cls, name: str, first: str | None, second: str | None) -> "Difference":
        """Return the difference between two values, of which one may be missing."""
        if first == second:
            kind = "same"
        elif second is None:
            kind = "first only"
        elif first is None:
            kind = "second only"
        else:
            kind = "different"
        return cls(name=name, kind=kind, first=first, second=second)


def _columns(title: str) -> Sequence[Column[Difference]]:
    def mark(difference: Difference) -> str | None:
        return None if difference.kind == "same" else "warn"

    return (
        Column(name="name", title=title, value=lambda each: each.name),
        Column(name="kind", title="Difference", value=lambda each: each.kind, mark=mark, is_choice=True),
        Column(name="first", title="First letter", value=lambda each: each.first, mark=mark),
        Column(name="second", title="Second letter", value=lambda each: each.second, mark=mark),
    )


_PROPERTIES: Final[Table[Difference]] = Table(
    name="properties",
    caption="Properties and places",
    empty="The letters have no properties.",
    rows=100,
    columns=_columns("Name"),
)
_LINES: Final[Table[Difference]] = Table(
    name="lines",
    caption="Bodies, line by line",
    empty="Both bodies are empty.",
    rows=100,
    columns=_columns("Lines"),
)


async def _compare(visit: Visit) -> Response:
    group, ticked = visit.name("group"), visit.request.query_params.getlist("row")
    if len(ticked) != 2:
        raise ValueError(f"letters that are ticked: {len(ticked)}; tick two in the table to compare them")
    first, second = [await _letter(visit, group, each) for each in ticked]
    properties = _differences(_facts(first), _facts(second))
    lines, is_cut = line_differences(first.letter.body, second.letter.body)
    return visit.page(
        "dead_letters_compare.html",
        title=f"Two dead letters of {group}",
        tables=[visit.table(_PROPERTIES, properties), visit.table(_LINES, lines)],
        group_name=group,
        letters=(first.letter, second.letter),
        is_cut=is_cut,
        most=_MOST_LINES,
        tabs=dead_letter_tabs(group, ""),
    )


async def _letter(visit: Visit, group: str, message_id: str) -> DeadLetter:
    topic = dlq_topic(group)
    found = await record_in(visit, message_id, topic)
    if found is None or found.topic != topic:
        raise HTTPException(404, f"group {group} has no dead letter {message_id}: it may have been deleted by age")
    return DeadLetter.of(found, whole_body=True)


def _facts(letter: DeadLetter) -> Mapping[str, str]:
    """Return where a letter comes from, and its properties."""
    record = letter.letter
    return {
        "first sent to": letter.origin_topic,
        "given up (UTC)": time_text(record.stored_at),
        "made (UTC)": time_text(record.born_at),
        "made by": record.born_host,
        "size in bytes": str(record.body_size),
        **dict(sorted(record.properties.items())),
    }


def _differences(first: Mapping[str, str], second: Mapping[str, str]) -> Sequence[Difference]:
    """Return what two letters have under each name, in the order of the names in the first one, then in the second."""
    names = dict.fromkeys((*first, *second))
    return [Difference.between(name, first.get(name), second.get(name)) for name in names]


def line_differences(first: str, second: str) -> tuple[Sequence[Difference], bool]:
    """Return the lines of two bodies side by side, and whether lines or parts of them are left out."""
    bodies = [body.splitlines() for body in (first, second)]
    cut = [[line[:_LONGEST_LINE] for line in body[:_MOST_LINES]] for body in bodies]
    return list(_side_by_side(*cut)), cut != bodies


def _side_by_side(first: Sequence[str], second: Sequence[str]) -> Iterator[Difference]:
    for _, begin, end, other_begin, other_end in SequenceMatcher(None, first, second).get_opcodes():
        rows, others = range(begin, end), range(other_begin, other_end)
        for row, other in zip_longest(rows, others):
            number, other_number = ("–" if each is None else str(each + 1) for each in (row, other))
            yield Difference.between(
                f"{number} | {other_number}",
                None if row is None else first[row],
                None if other is None else second[other],
            )


PAGES: Final = (Page(path="/dead-letters/{group}/compare", show=_compare),)
