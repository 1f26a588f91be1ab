"""Metrics as Prometheus reads them: their descriptions, histograms, and the text format, version 0.0.4.

::

    # HELP streamkit_messages_sent_total Messages that the messaging system accepted.
    # TYPE streamkit_messages_sent_total counter
    streamkit_messages_sent_total{binding="receipts"} 42

prometheus_client does not fit: a broker with thousands of topics must write its metrics in slices, between which it
serves its clients, and a sample of an application must cost well under a microsecond.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = [
    "CONTENT_TYPE",
    "Alert",
    "Histogram",
    "Kind",
    "Metric",
    "MetricTable",
    "head",
    "label_text",
    "sample",
]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Kind(Enum):
    """The type of a metric."""

    COUNTER = "counter"
    """A sum that only grows, from 0 at the start of the process."""
    GAUGE = "gauge"
    """The present value. There is no sample while the value is not known."""
    HISTOGRAM = "histogram"
    """How many values were at most as large as each bound, their number and their sum."""


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A metric of a process.

    Attributes:
        name: The name, which ends in its unit and, for a counter, in `_total`.
        kind: The type.
        text: The description, a sentence.
        labels: The names of the labels that tell its samples apart.
        buckets: For a histogram, the upper bounds of its buckets without the last one, which has none.
    """

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert rule.

    Attributes:
        name: The name, in CamelCase.
        expression: The condition, in PromQL.
        lasting: How long the condition must hold, as Prometheus writes durations: `5m`.
        severity: `critical` if messages are lost or stand still, else `warning`.
        summary: What is wrong; it may contain labels, as `{{ $labels.binding }}`.
        action: What to do first.
    """

    name: str
    expression: str
    lasting: str
    severity: str
    summary: str
    action: str


@dataclass(frozen=True, slots=True)
class MetricTable:
    """The metrics of one kind of process, and what to alert on.

    Attributes:
        title: The kind of process, as a heading.
        metrics: The metrics, in the order of the page.
        alerts: The alert rules.
    """

    title: str
    metrics: Sequence[Metric]
    alerts: Sequence[Alert]


class Histogram:
    """Counts values by size. Not for several threads at once.

    Attributes:
        sum: The sum of the values.
    """

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self._counts)

    def copy(self) -> "Histogram":
        """Return a histogram with the same values, which does not change with this one."""
        copy = Histogram(self._bounds)
        copy._counts, copy.sum = self._counts[:], self.sum
        return copy

    def samples(self, name: str, labels: str) -> Iterator[str]:
        """Yield the lines of the histogram.

        Args:
            name: The name of the metric.
            labels: The labels, from :func:`label_text`.
        """
        before = f"{labels}," if labels else ""
        total = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            yield sample(f"{name}_bucket", f'{before}le="{_number(bound)}"', total)
        yield sample(f"{name}_sum", labels, self.sum)
        yield sample(f"{name}_count", labels, total)

    def __repr__(self) -> str:
        return f"Histogram(count={self.count}, sum={self.sum})"


def head(metric: Metric) -> str:
    """Return the lines that describe a metric, before its samples."""
    text = metric.text.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {metric.name} {text}\n# TYPE {metric.name} {metric.kind.value}\n"


def label_text(labels: Mapping[str, str] | Iterable[tuple[str, str]]) -> str:
    """Return labels as they stand between the braces of a sample: `topic="orders",group="shop"`."""
    pairs = labels.items() if isinstance(labels, Mapping) else labels
    return ",".join([f'{name}="{value.translate(_ESCAPED)}"' for name, value in pairs])


def sample(name: str, labels: str, value: float) -> str:
    """Return the line of a sample.

    Args:
        name: The name of the metric, for histograms with `_bucket`, `_sum` or `_count`.
        labels: The labels, from :func:`label_text`.
        value: The value.
    """
    return f"{name}{{{labels}}} {_number(value)}\n" if labels else f"{name} {_number(value)}\n"


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return repr(value).removesuffix(".0")
