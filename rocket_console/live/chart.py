"""Figures over time as SVG, drawn on the server. It has classes only: the style sheet says what they look like."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, log10
from typing import Final

from markupsafe import Markup

from rocket_console.live.ring import Point
from rocket_console.rendering.formats import Format, text_of

__all__ = ["Line", "line_chart"]

WIDTH: Final = 600
HEIGHT: Final = 150
_LEFT: Final = 64
_BOTTOM: Final = 22
_TOP: Final = 10
_GAP: Final = 20.0
"""Seconds without a value that interrupt a line."""
_FRACTIONS: Final = (0.0, 0.5, 1.0)


@dataclass(frozen=True)
class Line:
    """A figure.

    Attributes:
        title: What it is.
        points: Its values, the oldest one first.
    """

    title: str
    points: Sequence[Point]


def line_chart(title: str, lines: Sequence[Line], how: Format = Format.RATE) -> Markup:
    """Return a chart of lines over the same time, and below it their newest and largest values as text.

    Args:
        title: What it shows.
        lines: The figures; at most four.
        how: How values are written.
    """
    points = [point for line in lines for point in line.points]
    begin = Markup('<figure><svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">')
    parts = [begin.format(WIDTH, HEIGHT, title)]
    if points:
        caption = "; ".join(_described(line, how) for line in lines)
        parts += [_drawn(lines, points, how), Markup("</svg><figcaption>{}</figcaption>").format(caption)]
    else:
        middle = Markup('<text class="axis" x="{}" y="{}" text-anchor="middle">{}</text>')
        parts.append(middle.format(WIDTH // 2, HEIGHT // 2, "The first value comes within five seconds."))
        parts.append(Markup("</svg>"))
    parts.append(Markup("</figure>"))
    return Markup("").join(parts)


def _drawn(lines: Sequence[Line], points: Sequence[Point], how: Format) -> Markup:
    first, last = min(time for time, _ in points), max(time for time, _ in points)
    top = _rounded(max(value for _, value in points))
    span = max(last - first, 1.0)

    def x(time: float) -> float:
        return round(_LEFT + (time - first) / span * (WIDTH - _LEFT - 8), 1)

    def y(value: float) -> float:
        return round(_TOP + (1 - max(0.0, value) / top) * (HEIGHT - _TOP - _BOTTOM), 1)

    parts: list[Markup] = []
    for fraction in _FRACTIONS:
        if how is not Format.RATE and top * fraction % 1:
            continue  # half a message would be no label
        height = y(top * fraction)
        parts.append(
            Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(_LEFT, WIDTH, height, height)
        )
        label = text_of(round(top * fraction, 2) if how is Format.RATE else round(top * fraction), how)
        text = Markup('<text class="axis" x="{}" y="{}" text-anchor="end">{}</text>')
        parts.append(text.format(_LEFT - 6, height + 4, label))
    for at, anchor in ((first, "start"), (last, "end"))[: 2 if last > first else 1]:
        text = Markup('<text class="axis" x="{}" y="{}" text-anchor="{}">{}</text>')
        parts.append(text.format(x(at), HEIGHT - 4, anchor, f"{datetime.fromtimestamp(at, UTC):%H:%M:%S}"))
    for number, line in enumerate(lines, 1):
        if not line.points:
            continue
        for piece in _without_gaps(line.points):
            path = " ".join(f"{x(time)},{y(value)}" for time, value in piece)
            parts.append(Markup('<polyline class="line line-{}" points="{}"/>').format(number, path))
        time, value = line.points[-1]
        parts.append(Markup('<circle class="dot dot-{}" cx="{}" cy="{}" r="3"/>').format(number, x(time), y(value)))
    return Markup("").join(parts)


def _without_gaps(points: Sequence[Point]) -> Sequence[Sequence[Point]]:
    """Return the values in pieces: while nobody watched, nothing is known, and no line is drawn."""
    pieces: list[list[Point]] = []
    for point in points:
        if not pieces or point[0] - pieces[-1][-1][0] > _GAP:
            pieces.append([])
        pieces[-1].append(point)
    return pieces


def _described(line: Line, how: Format) -> str:
    if not line.points:
        return f"{line.title}: no value yet"
    newest, largest = line.points[-1][1], max(value for _, value in line.points)
    return f"{line.title} {text_of(newest, how)} now, at most {text_of(largest, how)}"


def _rounded(value: float) -> float:
    """Return the next number of 1, 2 or 5 and zeros."""
    if value <= 0:
        return 1.0
    power = 10.0 ** ceil(log10(value) - 1)
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)
