"""The page of figures: sections, each written by the run that measured it, with its tables and a plot."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib as mpl
from rich.table import Table as ConsoleTable

mpl.use("svg")
from matplotlib import pyplot as plt

__all__ = ["Plot", "Section", "Table", "console_tables", "write_section"]

_COLORS = ("#1f6feb", "#d29922", "#8b949e", "#a371f7", "#2da44e", "#cf222e", "#57606a", "#bf8700", "#0969da")


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts; the first cell of each row is its name."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Plot:
    """Bars in groups.

    Attributes:
        label: The axis, with its unit.
        groups: The name of each group of bars.
        series: For each series, a number for each group; None where there is none.
    """

    label: str
    groups: Sequence[str]
    series: Mapping[str, Sequence[float | None]]


@dataclass(frozen=True, slots=True)
class Section:
    """What one run found out.

    Attributes:
        title: The heading; the run replaces the section that has it.
        name: A word for file names.
        text: Paragraphs before the tables.
        tables: The tables.
        plot: The plot, if there is one.
        notes: Paragraphs after the tables.
    """

    title: str
    name: str
    text: Sequence[str]
    tables: Sequence[Table]
    plot: Plot | None = None
    notes: Sequence[str] = field(default=())


def console_tables(section: Section) -> list[ConsoleTable]:
    """Return the tables for a terminal."""
    made = []
    for number, table in enumerate(section.tables):
        shown = ConsoleTable(title=section.title if not number else None, title_justify="left")
        for position, name in enumerate(table.head):
            shown.add_column(name, justify="right" if position else "left")
        for row in table.rows:
            shown.add_row(*row)
        made.append(shown)
    return made


def write_section(page: Path, section: Section) -> None:
    """Put a section into the page, in the place of the one with its title or at its end; put its plot beside it."""
    lines = [f"## {section.title}", ""]
    for paragraph in section.text:
        lines += [paragraph, ""]
    if section.plot is not None:
        file = page.with_name(f"{page.stem}-{section.name}.svg")
        _draw(file, section.plot)
        lines += [f"![{section.title}]({file.name})", ""]
    for table in section.tables:
        lines += [f"| {' | '.join(table.head)} |", f"|---{'|--:' * (len(table.head) - 1)}|"]
        lines += [f"| {' | '.join(row)} |" for row in table.rows]
        lines.append("")
    for paragraph in section.notes:
        lines += [paragraph, ""]
    parts = re.split(r"(?m)^(?=## )", page.read_text())
    made = "\n".join(lines) + "\n"
    found = [part.startswith(f"## {section.title}\n") for part in parts]
    if any(found):
        parts[found.index(True)] = made
    else:
        parts[-1] = parts[-1].rstrip("\n") + "\n\n"
        parts.append(made)
    page.write_text("".join(parts).rstrip("\n") + "\n")


def _draw(path: Path, plot: Plot) -> None:
    mpl.rcParams["svg.hashsalt"] = "streamkit"  # the same figures give the same file
    bars = len(plot.groups) * len(plot.series)
    figure, axes = plt.subplots(figsize=(8, 0.2 * bars + 1.2))
    height = 0.84 / len(plot.series)
    for index, (name, values) in enumerate(plot.series.items()):
        places = [row + index * height for row, value in enumerate(values) if value is not None]
        shown = [value for value in values if value is not None]
        drawn = axes.barh(places, shown, height, label=name, color=_COLORS[index % len(_COLORS)])
        axes.bar_label(drawn, fmt="%.3g", padding=3, fontsize=7)
    middle = height * (len(plot.series) - 1) / 2
    axes.set_yticks([row + middle for row in range(len(plot.groups))], list(plot.groups))
    axes.invert_yaxis()
    axes.set_xlabel(plot.label)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.1)
    axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
