"""Metrics of an application's bindings: counted by its signals, and read from its bindings when they are requested.

Nothing is counted, and no time is spent, before :meth:`BindingMetrics.connect` is called.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final

from blinker import Signal

from streamkit import events
from streamkit.binder.binder import BindingState
from streamkit.clock import current_clock
from streamkit.exposition import Alert, Histogram, Kind, Metric, MetricTable, head, label_text, sample
from streamkit.messaging.headers import DELIVERY_ATTEMPT, TIMESTAMP
from streamkit.messaging.message import Message
from streamkit.settlement import Accept, Requeue
from streamkit.spark.events import query_failed, query_progressed

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from streamkit.management.bindings_controller import BindingInfo

__all__ = ["METERS", "OTHER_BINDINGS", "TABLE", "BindingMetrics", "Meter", "Reading"]

MOST_BINDINGS: Final = 1000
"""The most bindings that are counted each by itself: names of outputs may come from messages."""
OTHER_BINDINGS: Final = "(other bindings)"
"""The name under which further bindings are counted together."""

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_LONG_SECONDS: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 3600.0, 21600.0, 86400.0)
_CALLS: Final = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)

_CONSUMER: Final = "consumer"
_PRODUCER: Final = "producer"


@dataclass(frozen=True, slots=True, eq=False)
class Meter:
    """A metric that each binding of a kind has.

    Attributes:
        name: The meter's name in the metrics endpoint.
        text: The description.
        unit: `seconds`, or empty for a number of messages.
        kind: The type.
        of: The kind of binding whose counters are 0 from the start, `consumer` or `producer`; None for those that have
            a value only when something has happened, and for gauges.
        buckets: The upper bounds of a histogram's buckets.
    """

    name: str
    text: str
    unit: str = ""
    kind: Kind = Kind.COUNTER
    of: str | None = _CONSUMER
    buckets: tuple[float, ...] = ()

    @property
    def metric(self) -> Metric:
        """The metric as Prometheus shows it."""
        suffix = "total" if self.kind is Kind.COUNTER else ""
        name = "_".join(filter(None, (*self.name.split("."), self.unit, suffix)))
        return Metric(name, self.kind, self.text, ("binding",), self.buckets)

    def measurements(self, values: Iterable["float | Histogram"]) -> Mapping[str, float]:
        """Return the sum of values of this meter by the kind of each value, in Actuator's words."""
        values = list(values)
        total = "TOTAL_TIME" if self.unit else "TOTAL"
        if self.kind is Kind.HISTOGRAM:
            histograms = [value for value in values if isinstance(value, Histogram)]
            return {"COUNT": sum(each.count for each in histograms), total: sum(each.sum for each in histograms)}
        statistic = "VALUE" if self.kind is Kind.GAUGE else total if self.unit else "COUNT"
        return {statistic: sum(value for value in values if not isinstance(value, Histogram))}


RECEIVED: Final = Meter("streamkit.messages.received", "Messages received, including redeliveries.")
HANDLED: Final = Meter("streamkit.messages.handled", "Calls of listeners that returned.")
FAILED: Final = Meter("streamkit.messages.failed", "Calls of listeners that raised.")
ACCEPTED: Final = Meter("streamkit.messages.accepted", "Messages that were settled as accepted.")
RETRIED: Final = Meter("streamkit.messages.retried", "Messages that were requeued for another delivery.")
REJECTED: Final = Meter("streamkit.messages.rejected", "Messages that went to the dead letters, or were lost.")
DUPLICATES: Final = Meter("streamkit.messages.duplicates", "Duplicates that were not handled again.")
HANDLING: Final = Meter(
    "streamkit.messages.handling",
    "Time of each call of a listener that returned.",
    "seconds",
    Kind.HISTOGRAM,
    buckets=_SECONDS,
)
LATENCY: Final = Meter(
    "streamkit.messages.latency",
    "Time from the message's timestamp, which its sender set, until it was accepted.",
    "seconds",
    Kind.HISTOGRAM,
    buckets=_LONG_SECONDS,
)
ATTEMPTS: Final = Meter(
    "streamkit.messages.attempts",
    "Calls of listeners for each message that was accepted or rejected, over all its deliveries.",
    kind=Kind.HISTOGRAM,
    buckets=_CALLS,
)
LAG: Final = Meter(
    "streamkit.messages.lag",
    "Messages that are not settled yet, if the binder knows their number.",
    kind=Kind.GAUGE,
    of=None,
)
SENT: Final = Meter("streamkit.messages.sent", "Messages that the messaging system accepted.", of=_PRODUCER)
KEPT: Final = Meter(
    "streamkit.messages.kept", "Messages that were kept in the local store, to be sent later.", of=_PRODUCER
)
UNSENT: Final = Meter("streamkit.messages.unsent", "Messages that could not be sent.", of=_PRODUCER)
SENDING: Final = Meter(
    "streamkit.messages.sending",
    "Time until the messaging system answered a send; messages that are sent together count once.",
    "seconds",
    Kind.HISTOGRAM,
    _PRODUCER,
    _SECONDS,
)
RUNNING: Final = Meter(
    "streamkit.bindings.running",
    "1 if the binding receives or sends, 0 if it is stopped or paused, or its messaging system is away.",
    kind=Kind.GAUGE,
    of=None,
)
QUERY_BATCHES: Final = Meter(
    "streamkit.queries.batches", "Batches that Spark queries of the binding have completed.", of=None
)
QUERY_ROWS: Final = Meter("streamkit.queries.rows", "Rows that these queries have read.", of=None)
QUERY_TIME: Final = Meter("streamkit.queries.working", "Time spent in these batches.", "seconds", of=None)
QUERY_FAILED: Final = Meter("streamkit.queries.failed", "How often a query failed.", of=None)

METERS: Final = (
    RECEIVED, HANDLED, FAILED, ACCEPTED, RETRIED, REJECTED, DUPLICATES, HANDLING, LATENCY, ATTEMPTS, LAG,
    SENT, KEPT, UNSENT, SENDING, RUNNING,
    QUERY_BATCHES, QUERY_ROWS, QUERY_TIME, QUERY_FAILED,
)  # fmt: skip

TABLE: Final = MetricTable(
    "Application",
    [meter.metric for meter in METERS],
    [
        Alert(
            "StreamkitMessagesRejected",
            "sum by (job, binding) (increase(streamkit_messages_rejected_total[10m])) > 0",
            "0m",
            "critical",
            "Binding {{ $labels.binding }} gave messages up.",
            "Read the ERROR lines of the log for the cause and for the topic of the dead letters.",
        ),
        Alert(
            "StreamkitMessagesUnsent",
            "sum by (job, binding) (increase(streamkit_messages_unsent_total[10m])) > 0",
            "0m",
            "critical",
            "Binding {{ $labels.binding }} could not send messages.",
            "Check whether the messaging system can be reached; the log has the error of each send.",
        ),
        Alert(
            "StreamkitBindingNotRunning",
            "streamkit_bindings_running == 0",
            "5m",
            "warning",
            "Binding {{ $labels.binding }} of {{ $labels.instance }} is not running.",
            "See /actuator/bindings for its state and /actuator/health for the reason.",
        ),
        Alert(
            "StreamkitLagGrows",
            "sum by (job, binding) (streamkit_messages_lag) > 1000 and "
            "sum by (job, binding) (deriv(streamkit_messages_lag[15m])) > 0",
            "15m",
            "warning",
            "Binding {{ $labels.binding }} falls behind.",
            "Compare the rates of received and accepted messages and the time of calls; raise the concurrency or start "
            "more instances.",
        ),
        Alert(
            "StreamkitListenerFails",
            "sum by (job, binding) (rate(streamkit_messages_failed_total[5m])) / "
            "(sum by (job, binding) (rate(streamkit_messages_failed_total[5m])) + "
            "sum by (job, binding) (rate(streamkit_messages_handled_total[5m]))) > 0.1",
            "10m",
            "warning",
            "More than a tenth of the calls of binding {{ $labels.binding }} fail.",
            "Read the WARNING lines of the log: the first attempt of each message has a traceback.",
        ),
    ],
)
"""The metrics of an application, and what to alert on."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The value of a meter for one binding.

    Attributes:
        meter: The meter.
        binding: The binding's name.
        value: The value, in the meter's unit.
    """

    meter: Meter
    binding: str
    value: float | Histogram


class BindingMetrics:
    """The counters of an application's bindings; any thread may count."""

    def __init__(self, application: object) -> None:
        self._application = application
        self._values: dict[tuple[Meter, str], float] = {}
        self._histograms: dict[tuple[Meter, str], Histogram] = {}
        self._bindings: set[str] = set()
        self._lock = Lock()
        self._connected = ExitStack()

    def connect(self) -> None:
        """Start to count."""
        receivers: list[tuple[Signal, Callable[..., None]]] = [
            (events.message_received, lambda sender, binding, **_: self._add(RECEIVED, binding)),
            (events.message_failed, lambda sender, binding, **_: self._add(FAILED, binding)),
            (events.message_duplicate, lambda sender, binding, **_: self._add(DUPLICATES, binding)),
            (events.message_sent, lambda sender, binding, **_: self._add(SENT, binding)),
            (events.message_kept, lambda sender, binding, **_: self._add(KEPT, binding)),
            (events.send_failed, lambda sender, binding, **_: self._add(UNSENT, binding)),
            (events.send_answered, lambda sender, binding, seconds, **_: self._observe(SENDING, binding, seconds)),
            (events.message_handled, self._handled),
            (events.message_settled, self._settled),
            (query_progressed, self._progressed),
            (query_failed, lambda sender, binding, **_: self._add(QUERY_FAILED, binding)),
        ]
        for signal, receiver in receivers:
            self._connected.enter_context(signal.connected_to(receiver, sender=self._application))

    def disconnect(self) -> None:
        """Stop counting; the counters keep their values."""
        self._connected.close()

    def observe(self, bindings: Iterable["BindingInfo"], lags: Mapping[str, int]) -> None:
        """Set what is read from the bindings and not counted; their counters without a value begin with 0.

        Args:
            bindings: The bindings that there are now; those that are not given lose their state.
            lags: The number of unsettled messages by binding; one that is not given loses its former lag.
        """
        with self._lock:
            for key in [key for key in self._values if key[0].kind is Kind.GAUGE]:
                del self._values[key]
            self._values |= {(LAG, binding): lag for binding, lag in lags.items()}
            for info in bindings:
                name = self._counted_as(info.name)
                self._values[RUNNING, name] = int(info.state is BindingState.RUNNING)
                for meter in METERS:
                    if meter.of != info.kind:
                        continue
                    if meter.kind is Kind.HISTOGRAM:
                        self._histograms.setdefault((meter, name), Histogram(meter.buckets))
                    else:
                        self._values.setdefault((meter, name), 0)

    def readings(self) -> list[Reading]:
        """Return the values, sorted by meter and binding."""
        with self._lock:
            values: dict[tuple[Meter, str], float | Histogram] = dict(self._values)
            values |= {key: histogram.copy() for key, histogram in self._histograms.items()}
        order = {meter: number for number, meter in enumerate(METERS)}
        found = sorted(values.items(), key=lambda item: (order[item[0][0]], item[0][1]))
        return [Reading(meter, binding, value) for (meter, binding), value in found]

    def prometheus(self) -> str:
        """Return the values in Prometheus' text format."""
        return "".join(self._prometheus_lines())

    def _prometheus_lines(self) -> Iterator[str]:
        described: Meter | None = None
        metric = METERS[0].metric
        for reading in self.readings():
            if reading.meter is not described:
                described = reading.meter
                metric = described.metric
                yield head(metric)
            labels = label_text({"binding": reading.binding})
            if isinstance(reading.value, Histogram):
                yield from reading.value.samples(metric.name, labels)
            else:
                yield sample(metric.name, labels, reading.value)

    def _handled(self, sender: object, *, binding: str, seconds: float, **_: object) -> None:
        self._add(HANDLED, binding)
        self._observe(HANDLING, binding, seconds)

    def _settled(
        self, sender: object, *, binding: str, message: Message[bytes], settlement: object, **_: object
    ) -> None:
        if isinstance(settlement, Requeue):
            self._add(RETRIED, binding)
            return
        is_accepted = isinstance(settlement, Accept)
        self._add(ACCEPTED if is_accepted else REJECTED, binding)
        attempts = message.headers.get(DELIVERY_ATTEMPT)
        if isinstance(attempts, int):
            self._observe(ATTEMPTS, binding, attempts)
        sent_at = message.headers.get(TIMESTAMP)
        if is_accepted and isinstance(sent_at, int):
            # The clocks of two machines may differ.
            self._observe(LATENCY, binding, max(0, current_clock().now_ms() - sent_at) / 1000)

    def _progressed(self, sender: object, *, binding: str, progress: "StreamingQueryProgress", **_: object) -> None:
        self._add(QUERY_BATCHES, binding)
        self._add(QUERY_ROWS, binding, sum(source.numInputRows for source in progress.sources))
        self._add(QUERY_TIME, binding, progress.durationMs.get("triggerExecution", 0) / 1000)

    def _add(self, meter: Meter, binding: str, value: float = 1) -> None:
        with self._lock:
            key = meter, binding
            count = self._values.get(key)
            if count is None:
                key = meter, self._counted_as(binding)
                count = self._values.get(key, 0)
            self._values[key] = count + value

    def _observe(self, meter: Meter, binding: str, value: float) -> None:
        with self._lock:
            histogram = self._histograms.get((meter, binding))
            if histogram is None:
                key = meter, self._counted_as(binding)
                histogram = self._histograms.setdefault(key, Histogram(meter.buckets))
            histogram.observe(value)

    def _counted_as(self, binding: str) -> str:
        """Return the name under which a binding is counted."""
        if binding not in self._bindings:
            if len(self._bindings) >= MOST_BINDINGS:
                return OTHER_BINDINGS
            self._bindings.add(binding)
        return binding
