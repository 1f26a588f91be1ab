"""Figures of several systems, measured in turns, and how they compare with the first system's."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

__all__ = ["Figures", "Medians", "cells", "compared", "in_turns"]


@dataclass(frozen=True, slots=True)
class Figures:
    """One round of one system; None: not measured.

    Attributes:
        per_second: Messages each second.
        own_us: CPU of the client's or the application's process for each message, in microseconds.
        server_us: The same of the server's process.
        p50_ms: Median of a time, in milliseconds.
        p99_ms: Its 99th percentile.
    """

    per_second: float | None = None
    own_us: float | None = None
    server_us: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None

    @property
    def total_us(self) -> float | None:
        """CPU of both processes for each message, in microseconds."""
        known = [cpu for cpu in (self.own_us, self.server_us) if cpu is not None]
        return sum(known) if known else None


Medians = Mapping[tuple[str, str], Figures]
"""By task and system; a system that cannot do a task is missing."""


def in_turns(
    tasks: Sequence[str],
    systems: Sequence[str],
    rounds: int,
    measure: Callable[[str, str], Figures | None],
) -> Medians:
    """Measure each task on one system after the other, in every round in another order; return medians."""
    measured: dict[tuple[str, str], list[Figures]] = {}
    for number in range(rounds):
        for task in tasks:
            for position in range(len(systems)):
                system = systems[(position + number) % len(systems)]
                if (figures := measure(task, system)) is not None:
                    measured.setdefault((task, system), []).append(figures)
    return {key: _median(of_key) for key, of_key in measured.items()}


def _median(rounds: Sequence[Figures]) -> Figures:
    medians = {}
    for each in fields(Figures):
        values = [value for figures in rounds if (value := getattr(figures, each.name)) is not None]
        medians[each.name] = statistics.median(values) if values else None
    return Figures(**medians)


def cells(tasks: Sequence[str], systems: Sequence[str], medians: Medians) -> list[list[str]]:
    """Return a table's rows: for each system its figures, and the first system's divided by them."""
    rows = []
    for system in systems:
        row = [system]
        for task in tasks:
            figures, first = medians.get((task, system)), medians.get((task, systems[0]))
            if figures is None:
                row.append("–")
            elif first is None or system == systems[0]:
                row.append(shown(figures))
            else:
                row.append(f"{shown(figures)} ({compared(first, figures)})")
        rows.append(row)
    return rows


def shown(figures: Figures) -> str:
    """Return the figures as text."""
    parts = []
    if figures.per_second is not None:
        parts.append(f"{figures.per_second:,.0f}/s")
    costs = [cpu for cpu in (figures.own_us, figures.server_us) if cpu is not None]
    if costs:
        parts.append(f"{' + '.join(f'{cpu:,.0f}' if cpu >= 1000 else f'{cpu:.3g}' for cpu in costs)} µs")
    if figures.p50_ms is not None:
        parts.append(f"p50 {figures.p50_ms:.2f} ms")
    if figures.p99_ms is not None:
        is_known = math.isfinite(figures.p99_ms)  # else more than one order in a hundred had no receipt in time
        parts.append(f"p99 {figures.p99_ms:.2f} ms" if is_known else "p99 none: receipts are missing")
    return " · ".join(parts)


def compared(first: Figures, other: Figures) -> str:
    """Return the first system's rate, CPU and median time, as multiples of another's."""
    pairs = (
        (first.per_second, other.per_second),
        (first.total_us, other.total_us),
        (first.p50_ms, other.p50_ms),
    )
    return ", ".join(f"{one / two:.2f}×" for one, two in pairs if one is not None and two)
