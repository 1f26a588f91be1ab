"""Reads metrics in steps and writes them as Prometheus reads them.

A server may have tens of thousands of topics and groups. So a scrape yields after each sample, and has a limited number
of samples for each metric.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import NamedTuple

from streamkit.exposition import Kind, Metric, head, label_text, sample

__all__ = ["LEFT_OUT", "Samples", "Source", "one", "scrape"]

PIECE = 64 * 1024
"""Characters of a piece of the text."""

LEFT_OUT = Metric(
    "streamkit_metrics_samples_left_out",
    Kind.GAUGE,
    "Samples that the last scrape left out, because of metricsOtelCardinalityLimit.",
    ("metric",),
)

Samples = Iterable[tuple[str, float] | None]
"""The labels of each sample, as `label_text` returns them, and its value; None lets the loop serve clients."""


class Source(NamedTuple):
    """A metric, and a function that returns its present samples."""

    metric: Metric
    read: Callable[[], Samples]


def one(value: float | None) -> Samples:
    """Return the sample of a metric without labels; none if the value is not known."""
    return () if value is None else (("", value),)


def scrape(sources: Sequence[Source], labels: str, limit: int) -> Generator[None, None, list[bytes]]:
    """Read metrics in steps; return their text in pieces.

    Args:
        sources: The metrics.
        labels: Labels of all samples, as `label_text` returns them.
        limit: The maximum number of samples of a metric; further ones are counted in `LEFT_OUT`.
    """
    pieces: list[bytes] = []
    lines: list[str] = []
    size = 0
    left_out: list[tuple[str, float]] = []
    for metric, read in (*sources, Source(LEFT_OUT, lambda: left_out)):
        lines.append(head(metric))
        count = 0
        for found in read():
            yield
            if found is None:
                continue
            count += 1
            if count > limit:
                continue
            own, value = found
            lines.append(sample(metric.name, f"{labels},{own}" if own else labels, value))
            size += len(lines[-1])
            if size >= PIECE:
                pieces.append("".join(lines).encode())
                lines, size = [], 0
        if count > limit:
            left_out.append((label_text({"metric": metric.name}), count - limit))
    pieces.append("".join(lines).encode())
    return pieces
