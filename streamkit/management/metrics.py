"""Metrics of an application's bindings: counters fed by its signals, and the lags of its inputs.

Nothing is counted, and no time is spent, before :meth:`BindingMetrics.connect` is called.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final

from blinker import Signal

from streamkit import events
from streamkit.settlement import Accept, Requeue
from streamkit.spark.events import query_failed, query_progressed

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

__all__ = ["METERS", "BindingMetrics", "Meter", "Reading"]


@dataclass(frozen=True, slots=True)
class Meter:
    """A counter or a gauge that each binding has.

    Attributes:
        name: The meter's name in the metrics endpoint.
        text: The description.
        unit: `seconds`, or empty for a number of messages.
        is_gauge: Whether the value is the current one, not a sum.
    """

    name: str
    text: str
    unit: str = ""
    is_gauge: bool = False

    @property
    def prometheus_name(self) -> str:
        """The meter's name in Prometheus' conventions."""
        parts = (*self.name.split("."), self.unit, "" if self.is_gauge else "total")
        return "_".join(filter(None, parts))

    @property
    def statistic(self) -> str:
        """The kind of the value, in Actuator's words."""
        if self.is_gauge:
            return "VALUE"
        return "TOTAL_TIME" if self.unit else "COUNT"


RECEIVED: Final = Meter("streamkit.messages.received", "Messages that came, redeliveries included.")
HANDLED: Final = Meter("streamkit.messages.handled", "Calls of listeners that returned.")
HANDLING: Final = Meter("streamkit.messages.handling", "Time spent in calls of listeners that returned.", "seconds")
FAILED: Final = Meter("streamkit.messages.failed", "Calls of listeners that raised.")
ACCEPTED: Final = Meter("streamkit.messages.accepted", "Messages that were settled as accepted.")
RETRIED: Final = Meter("streamkit.messages.retried", "Messages that were given back for another delivery.")
REJECTED: Final = Meter("streamkit.messages.rejected", "Messages that went to the dead letters.")
DUPLICATES: Final = Meter("streamkit.messages.duplicates", "Messages that were handled before and left out.")
SENT: Final = Meter("streamkit.messages.sent", "Messages the messaging system accepted.")
KEPT: Final = Meter("streamkit.messages.kept", "Messages that were kept on this side, to be sent later.")
UNSENT: Final = Meter("streamkit.messages.unsent", "Messages that could not be sent.")
LAG: Final = Meter(
    "streamkit.messages.lag",
    "Messages that are not settled yet, if the binder knows their number.",
    is_gauge=True,
)
QUERY_BATCHES: Final = Meter("streamkit.queries.batches", "Batches that Spark's queries for it have done.")
QUERY_ROWS: Final = Meter("streamkit.queries.rows", "Rows that they have read.")
QUERY_TIME: Final = Meter("streamkit.queries.working", "Time spent in those batches.", "seconds")
QUERY_FAILED: Final = Meter("streamkit.queries.failed", "How often a query failed.")

METERS: Final = (
    RECEIVED, HANDLED, HANDLING, FAILED, ACCEPTED, RETRIED, REJECTED, DUPLICATES, SENT, KEPT, UNSENT, LAG,
    QUERY_BATCHES, QUERY_ROWS, QUERY_TIME, QUERY_FAILED,
)  # fmt: skip


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
    value: float


class BindingMetrics:
    """The counters of an application's bindings; any thread may count."""

    def __init__(self, application: object) -> None:
        self._application = application
        self._values: dict[tuple[Meter, str], float] = {}
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

    def observe(self, lags: Mapping[str, int]) -> None:
        """Set the lags of the inputs; a binding that is not given loses its former lag.

        Args:
            lags: The number of unsettled messages by binding.
        """
        with self._lock:
            for key in [key for key in self._values if key[0] is LAG]:
                del self._values[key]
            self._values |= {(LAG, binding): lag for binding, lag in lags.items()}

    def readings(self) -> list[Reading]:
        """Return the values, sorted by meter and binding."""
        with self._lock:
            values = dict(self._values)
        order = {meter: number for number, meter in enumerate(METERS)}
        found = sorted(values.items(), key=lambda item: (order[item[0][0]], item[0][1]))
        return [Reading(meter, binding, value) for (meter, binding), value in found]

    def prometheus(self) -> str:
        """Return the values in Prometheus' text format, version 0.0.4."""
        return "".join(f"{line}\n" for line in self._prometheus_lines())

    def _prometheus_lines(self) -> Iterator[str]:
        described: Meter | None = None
        for reading in self.readings():
            name = reading.meter.prometheus_name
            if reading.meter is not described:
                described = reading.meter
                yield f"# HELP {name} {described.text}"
                yield f"# TYPE {name} {'gauge' if described.is_gauge else 'counter'}"
            label = reading.binding.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
            yield f'{name}{{binding="{label}"}} {repr(reading.value).removesuffix(".0")}'

    def _handled(self, sender: object, *, binding: str, seconds: float, **_: object) -> None:
        self._add(HANDLED, binding)
        self._add(HANDLING, binding, seconds)

    def _settled(self, sender: object, *, binding: str, settlement: object, **_: object) -> None:
        meter = ACCEPTED if isinstance(settlement, Accept) else RETRIED if isinstance(settlement, Requeue) else REJECTED
        self._add(meter, binding)

    def _progressed(self, sender: object, *, binding: str, progress: "StreamingQueryProgress", **_: object) -> None:
        self._add(QUERY_BATCHES, binding)
        self._add(QUERY_ROWS, binding, sum(source.numInputRows for source in progress.sources))
        self._add(QUERY_TIME, binding, progress.durationMs.get("triggerExecution", 0) / 1000)

    def _add(self, meter: Meter, binding: str, value: float = 1) -> None:
        with self._lock:
            self._values[meter, binding] = self._values.get((meter, binding), 0) + value
