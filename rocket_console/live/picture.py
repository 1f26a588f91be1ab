"""The picture of who uses what, as SVG: bindings, topics, groups and their clients, with lines between them.

::

    bindings          topics           groups           clients
    orders-in-0 ───── orders ───────── shop ─────────── 10.0.0.7@41
                             ╲──────── audit
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from rocket_admin.application_bindings import ApplicationBinding
from rocket_console.live.group_looks import GroupLook
from rocket_console.rendering.addresses import address
from rocket_console.rendering.formats import text_of
from rocket_remoting.wire.topics import is_retry_topic

__all__ = ["picture"]

GROUPS: Final = 12
"""Groups that are drawn."""
ROWS: Final = 16
"""Boxes of a column."""

_WIDTH: Final = 1000
_BOX: Final = 205
_HEIGHT: Final = 34
_GAP: Final = 8
_TOP: Final = 26
_LETTERS: Final = 27
"""Characters that fit into a box."""
_COLUMNS: Final = ("Bindings", "Topics", "Groups", "Clients")


@dataclass(frozen=True, kw_only=True)
class _Box:
    """A box: a name, a line of facts below it, and the address that it leads to, if there is one."""

    name: str
    facts: str
    link: str | None = None
    is_behind: bool = False


@dataclass(frozen=True, kw_only=True)
class _Edge:
    """A line from a box to one in the next column, by their names."""

    column: int
    start: str
    end: str
    is_behind: bool = False


def picture(bindings: Sequence[ApplicationBinding], looks: Iterable[GroupLook]) -> Markup | None:
    """Return the picture; None if there is nothing to draw.

    Args:
        bindings: The bindings of an application.
        looks: What is known about groups; those with members and with the most lag are drawn.
    """
    drawn = sorted((look for look in looks if not look.is_system and look.topics), key=_importance)[:GROUPS]
    if not drawn and not bindings:
        return None
    columns: list[dict[str, _Box]] = [{}, {}, {}, {}]
    edges: list[_Edge] = []
    for binding in bindings[:ROWS]:
        facts = f"group {binding.group}" if binding.group else "output, or without a group"
        columns[0][binding.binding] = _Box(name=binding.binding, facts=facts)
        for topic in binding.topics:
            columns[1].setdefault(topic, _topic(topic))
            edges.append(_Edge(column=0, start=binding.binding, end=topic))
    for look in drawn:
        columns[2][look.group] = _group(look)
        for topic in look.topics:
            if not is_retry_topic(topic):
                columns[1].setdefault(topic, _topic(topic))
                edges.append(_Edge(column=1, start=topic, end=look.group, is_behind=bool(look.lags.get(topic))))
        for member in look.members or ():
            facts = f"{member.address}, {member.language} {member.version}"
            columns[3].setdefault(member.client_id, _Box(name=member.client_id, facts=facts))
            edges.append(_Edge(column=2, start=look.group, end=member.client_id))
    left_out = sum(max(0, len(column) - ROWS) for column in columns)
    return _drawn([_shown(column) for column in columns], edges, left_out)


def _importance(look: GroupLook) -> tuple[bool, int, str]:
    return not look.members, -(look.lag or 0), look.group


def _topic(topic: str) -> _Box:
    return _Box(name=topic, facts="topic", link=address("topics", topic))


def _group(look: GroupLook) -> _Box:
    members = "unknown" if look.members is None else str(len(look.members))
    facts = f"{members} member{'' if members == '1' else 's'}, lag {'unknown' if look.lag is None else f'{look.lag:,}'}"
    return _Box(name=look.group, facts=facts, link=address("groups", look.group), is_behind=bool(look.lag))


def _shown(column: dict[str, _Box]) -> dict[str, _Box]:
    return dict(list(column.items())[:ROWS])


def _drawn(columns: Sequence[dict[str, _Box]], edges: Sequence[_Edge], left_out: int) -> Markup:
    # Without bindings, their column is left out.
    lefts = _lefts(0 if columns[0] else 1)
    height = _TOP + max(map(len, columns)) * (_HEIGHT + _GAP)
    label = f"{len(columns[1])} topics, {len(columns[2])} groups and {len(columns[3])} clients, and who uses what"
    head = '<svg class="picture" viewBox="0 0 {} {}" role="group" aria-label="{}">'
    parts = [Markup(head).format(_WIDTH, height, label)]
    places: list[dict[str, float]] = []
    for column, boxes in enumerate(columns):
        if lefts[column] >= 0:
            title = Markup('<text class="column" x="{}" y="14">{}</text>')
            parts.append(title.format(lefts[column], _COLUMNS[column]))
        places.append({name: _TOP + row * (_HEIGHT + _GAP) for row, name in enumerate(boxes)})
    for edge in edges:
        start, end = places[edge.column].get(edge.start), places[edge.column + 1].get(edge.end)
        if start is not None and end is not None:
            ends = lefts[edge.column] + _BOX, lefts[edge.column + 1]
            parts.append(_line(edge, ends, start + _HEIGHT / 2, end + _HEIGHT / 2))
    for column, boxes in enumerate(columns):
        parts += [_box(box, lefts[column], places[column][name]) for name, box in boxes.items()]
    if left_out:
        text = Markup('<text class="second" x="{}" y="{}" text-anchor="end">{} more are not drawn</text>')
        parts.append(text.format(_WIDTH, 14, left_out))
    return Markup("").join([*parts, Markup("</svg>")])


def _lefts(first: int) -> Sequence[float]:
    """Return where columns begin; those before the first one that is drawn are outside."""
    step = (_WIDTH - _BOX) / (len(_COLUMNS) - 1 - first)
    return [round((column - first) * step, 1) for column in range(len(_COLUMNS))]


def _line(edge: _Edge, ends: tuple[float, float], start: float, end: float) -> Markup:
    left, right = ends
    middle = round((left + right) / 2, 1)
    path = Markup('<path class="edge{}" d="M{},{} C{},{} {},{} {},{}"/>')
    return path.format(" behind" if edge.is_behind else "", left, start, middle, start, middle, end, right, end)


def _box(box: _Box, x: float, y: float) -> Markup:
    body = Markup(
        '<title>{}: {}</title><rect x="{}" y="{}" width="{}" height="{}" rx="5"/>'
        '<text x="{}" y="{}">{}</text><text class="second" x="{}" y="{}">{}</text>'
    ).format(
        text_of(box.name), text_of(box.facts), x, y, _BOX, _HEIGHT,
        x + 8, y + 15, _cut(box.name), x + 8, y + 28, _cut(box.facts, _LETTERS + 3),
    )  # fmt: skip
    css = Markup(' class="behind"') if box.is_behind else Markup("")
    if box.link is None:
        return Markup("<g{}>{}</g>").format(css, body)
    return Markup('<a{} href="{}">{}</a>').format(css, box.link, body)


def _cut(text: str, most: int = _LETTERS) -> str:
    seen = text_of(text)
    return seen if len(seen) <= most else f"{seen[: most - 1]}…"
