"""Metrics of producers and consumers, in the text format of Prometheus (version 0.0.4).

::

    metrics = ClientMetrics()
    producer = Producer("shop", ProducerSettings(name_servers="127.0.0.1:9876", metrics=metrics))
    …
    metrics.prometheus_text()        # for an HTTP server of the application

Names, labels, units and buckets are those of RocketMQ 5's clients, where they have the metric. Producers and consumers
without `metrics` in their settings count nothing. One object is for the members of one event loop, and for blocking
clients, which may be used by any threads; any thread may ask for the text.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Final

import msgspec

from rocket_remoting.wire.message import MessageQueue

__all__ = ["METRICS", "ClientMetric", "ClientMetrics", "ConsumerMeter", "MetricKind", "ProducerMeter", "ReadQueue"]

MOST_TOPICS: Final = 1_000
"""The most topics of a member that are counted each by itself: names of topics may come from messages."""
OTHER_TOPICS: Final = "(other topics)"
"""The name under which further topics are counted together."""

_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class MetricKind(Enum):
    """The type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class ClientMetric(msgspec.Struct, frozen=True, eq=False):
    """A metric.

    Attributes:
        name: The name.
        kind: The type.
        text: The description, a sentence.
        labels: The names of the labels.
        buckets: For a histogram, the upper bounds of its buckets without the last one, which has none.
    """

    name: str
    kind: MetricKind
    text: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...] = ()


_OF_SENDS: Final = ("topic", "client_id", "invocation_status")
_OF_CONSUMERS: Final = ("topic", "client_id", "consumer_group")

SEND_COST_TIME: Final = ClientMetric(
    "rocketmq_send_cost_time",
    MetricKind.HISTOGRAM,
    "Milliseconds from a send, which may be of a batch, until a broker has stored it, or the send has failed.",
    _OF_SENDS,
    (1, 5, 10, 20, 50, 200, 500),
)
FAILED_ATTEMPTS: Final = ClientMetric(
    "streamkit_client_failed_attempts_total",
    MetricKind.COUNTER,
    "Attempts of sends that failed; after most of them the send tries again.",
    ("topic", "client_id"),
)
DELIVERY_LATENCY: Final = ClientMetric(
    "rocketmq_delivery_latency",
    MetricKind.HISTOGRAM,
    "Milliseconds from when the broker could deliver a message until it arrived, for the first message of each pull.",
    _OF_CONSUMERS,
    (1, 5, 10, 20, 50, 200, 500),
)
RECEIVED_MESSAGES: Final = ClientMetric(
    "streamkit_client_received_messages_total",
    MetricKind.COUNTER,
    "Messages that pulls returned, including redeliveries.",
    _OF_CONSUMERS,
)
LAG: Final = ClientMetric(
    "streamkit_client_lag_messages",
    MetricKind.GAUGE,
    "Messages that were not pulled yet at the last pull of each queue of this client.",
    _OF_CONSUMERS,
)
AWAIT_TIME: Final = ClientMetric(
    "rocketmq_await_time",
    MetricKind.HISTOGRAM,
    "Milliseconds from the arrival of a message until the call of the listener, for the first message of each call.",
    _OF_CONSUMERS,
    (1, 5, 20, 100, 1_000, 5_000, 10_000),
)
PROCESS_TIME: Final = ClientMetric(
    "rocketmq_process_time",
    MetricKind.HISTOGRAM,
    "Milliseconds of the call of the listener, for each message of the call.",
    (*_OF_CONSUMERS, "invocation_status"),
    (1, 5, 10, 100, 1_000, 10_000, 60_000),
)
CACHED_MESSAGES: Final = ClientMetric(
    "rocketmq_consumer_cached_messages",
    MetricKind.GAUGE,
    "Messages in the client that are not settled yet.",
    _OF_CONSUMERS,
)
CACHED_BYTES: Final = ClientMetric(
    "rocketmq_consumer_cached_bytes",
    MetricKind.GAUGE,
    "Bytes of the bodies of these messages.",
    _OF_CONSUMERS,
)

METRICS: Final[Sequence[ClientMetric]] = (
    SEND_COST_TIME, FAILED_ATTEMPTS, RECEIVED_MESSAGES, LAG, DELIVERY_LATENCY, AWAIT_TIME, PROCESS_TIME,
    CACHED_MESSAGES, CACHED_BYTES,
)  # fmt: skip
"""All metrics, in the order of the text."""

_STATUSES: Final = {True: "success", False: "failure"}
_Labels = tuple[str, ...]


class ClientMetrics:
    """The counters of producers and consumers, which have this object in their settings."""

    def __init__(self) -> None:
        self._counters: dict[tuple[ClientMetric, _Labels], float] = {}
        self._histograms: dict[tuple[ClientMetric, _Labels], _Histogram] = {}
        self._consumers: dict[ConsumerMeter, None] = {}

    def __repr__(self) -> str:
        return f"<ClientMetrics of {len(self._consumers)} consumers>"

    def producer(self, client_id: str) -> "ProducerMeter":
        """Return the counters of a producer that starts.

        Args:
            client_id: The id by which brokers know its client.
        """
        return ProducerMeter(self, client_id)

    def consumer(
        self,
        client_id: str,
        group: str,
        topics: Iterable[str],
        queues: "Callable[[], Iterable[ReadQueue]] | None" = None,
    ) -> "ConsumerMeter":
        """Return the counters of a consumer that starts; they are part of the text until `forget`.

        Args:
            client_id: The id by which brokers know its client.
            group: The group, without its namespace.
            topics: The topics that it subscribes to, without their namespace; their counters are 0 from now on.
            queues: Returns the queues that the consumer reads; None to use those given to `ConsumerMeter.pulled`.
        """
        meter = ConsumerMeter(self, client_id, group, queues)
        for topic in topics:
            meter.know(topic)
        self._consumers[meter] = None
        return meter

    def forget(self, consumer: "ConsumerMeter") -> None:
        """Remove the gauges of a consumer that has stopped; its counters stay."""
        self._consumers.pop(consumer, None)

    def prometheus_text(self) -> str:
        """Return all metrics in Prometheus' text format; the content type is ``text/plain; version=0.0.4``."""
        return "".join(self._lines())

    def histogram(self, metric: ClientMetric, labels: _Labels) -> "_Histogram":
        """Return the histogram of a metric and labels; a new one, with 0 values, if there is none."""
        key = metric, labels
        found = self._histograms.get(key)
        if found is None:
            found = self._histograms[key] = _Histogram(metric.buckets)
        return found

    def add(self, metric: ClientMetric, labels: _Labels, value: float) -> None:
        """Add a value to a counter, which begins with 0."""
        key = metric, labels
        self._counters[key] = self._counters.get(key, 0) + value

    def _lines(self) -> Iterator[str]:
        # Copies: members of the event loop may count while another thread asks.
        counters = {**self._counters, **self._gauges()}
        histograms = dict(self._histograms)
        for metric in METRICS:
            yield f"# HELP {metric.name} {metric.text}\n# TYPE {metric.name} {metric.kind.value}\n"
            for (each, labels), value in counters.items():
                if each is metric:
                    yield _sample(metric.name, _label_text(metric, labels), value)
            for (each, labels), histogram in histograms.items():
                if each is metric:
                    yield from histogram.samples(metric.name, _label_text(metric, labels))

    def _gauges(self) -> dict[tuple[ClientMetric, _Labels], float]:
        gauges: dict[tuple[ClientMetric, _Labels], float] = {}
        for consumer in list(self._consumers):
            for queue in consumer.queues():
                labels = consumer.labels(queue.topic)
                for metric, value in ((LAG, queue.lag), (CACHED_MESSAGES, queue.messages), (CACHED_BYTES, queue.size)):
                    if value is not None:
                        gauges[metric, labels] = gauges.get((metric, labels), 0) + value
        return gauges


class ReadQueue(msgspec.Struct, frozen=True):
    """A queue that a consumer reads.

    Attributes:
        topic: The topic, without its namespace.
        lag: The messages that were not pulled yet at the last pull; None before the first one.
        messages: The pulled messages that are not settled; None for a consumer that settles none.
        size: The bytes of their bodies.
    """

    topic: str
    lag: int | None
    messages: int | None = None
    size: int | None = None


class ProducerMeter:
    """The counters of one producer."""

    def __init__(self, metrics: ClientMetrics, client_id: str) -> None:
        self._metrics = metrics
        self._client_id = client_id
        self._sends: dict[str, tuple[_Histogram, _Histogram]] = {}

    def sent(self, topic: str, seconds: float, *, succeeded: bool) -> None:
        """Count a send that has ended.

        Args:
            topic: The topic, without its namespace.
            seconds: How long it took.
            succeeded: Whether a broker has stored it.
        """
        self.know(topic)[succeeded].observe(seconds * 1000)

    def attempt_failed(self, topic: str) -> None:
        """Count an attempt of a send that has failed."""
        self.know(topic)
        self._metrics.add(FAILED_ATTEMPTS, (self._counted_as(topic), self._client_id), 1)

    def know(self, topic: str) -> "tuple[_Histogram, _Histogram]":
        """Return the histograms of failed and of successful sends to a topic; they begin with 0."""
        found = self._sends.get(topic)
        if found is None:
            name = self._counted_as(topic)
            self._metrics.add(FAILED_ATTEMPTS, (name, self._client_id), 0)
            failed, succeeded = (
                self._metrics.histogram(SEND_COST_TIME, (name, self._client_id, _STATUSES[status]))
                for status in (False, True)
            )
            found = failed, succeeded
            if name == topic:
                self._sends[topic] = found
        return found

    def _counted_as(self, topic: str) -> str:
        return topic if topic in self._sends or len(self._sends) < MOST_TOPICS else OTHER_TOPICS


class ConsumerMeter:
    """The counters of one consumer.

    Attributes:
        queues: Returns the queues that it reads.
    """

    def __init__(
        self, metrics: ClientMetrics, client_id: str, group: str, queues: Callable[[], Iterable[ReadQueue]] | None
    ) -> None:
        self._metrics = metrics
        self._client_id = client_id
        self._group = group
        self._topics: dict[str, _OfTopic] = {}
        self._lags: dict[MessageQueue, int] = {}
        self.queues = queues or self._pulled_queues

    def _pulled_queues(self) -> list[ReadQueue]:
        # A copy: another thread may pull meanwhile.
        return [ReadQueue(queue.topic, lag) for queue, lag in self._lags.copy().items()]

    def labels(self, topic: str) -> _Labels:
        """Return the values of the labels that a topic's metrics have."""
        return topic, self._client_id, self._group

    def know(self, topic: str) -> "_OfTopic":
        """Return the histograms of a topic; they begin with 0."""
        found = self._topics.get(topic)
        if found is None:
            is_counted_alone = len(self._topics) < MOST_TOPICS
            labels = self.labels(topic if is_counted_alone else OTHER_TOPICS)
            histogram = self._metrics.histogram
            self._metrics.add(RECEIVED_MESSAGES, labels, 0)
            found = _OfTopic(
                labels=labels,
                latency=histogram(DELIVERY_LATENCY, labels),
                awaited=histogram(AWAIT_TIME, labels),
                failed=histogram(PROCESS_TIME, (*labels, _STATUSES[False])),
                succeeded=histogram(PROCESS_TIME, (*labels, _STATUSES[True])),
            )
            if is_counted_alone:
                self._topics[topic] = found
        return found

    def received(self, topic: str, count: int) -> None:
        """Count the messages of a pull.

        Args:
            topic: The topic, without its namespace.
            count: The number of the messages.
        """
        self._metrics.add(RECEIVED_MESSAGES, self.know(topic).labels, count)

    def pulled(self, queue: MessageQueue, count: int, lag: int) -> None:
        """Count the messages of a pull, and note the lag of the queue.

        Args:
            queue: The queue, without its namespace.
            count: The number of the messages.
            lag: The messages of the queue that are still to be pulled.
        """
        self.received(queue.topic, count)
        self._lags[queue] = lag

    def arrived(self, topic: str, milliseconds: float) -> None:
        """Count a pull that found messages.

        Args:
            topic: The topic, without its namespace.
            milliseconds: How long the first message was on its way. Clocks differ, so it may be less than 0.
        """
        self.know(topic).latency.observe(max(0.0, milliseconds))

    def awaited(self, topic: str, seconds: float) -> None:
        """Count how long the first message of a call of the listener has waited."""
        self.know(topic).awaited.observe(seconds * 1000)

    def processed(self, topic: str, seconds: float, *, succeeded: int, failed: int) -> None:
        """Count a call of the listener that has ended.

        Args:
            topic: The topic, without its namespace.
            seconds: How long the call took.
            succeeded: The number of its messages that need no further delivery.
            failed: The number of the others.
        """
        found = self.know(topic)
        if succeeded:
            found.succeeded.observe(seconds * 1000, succeeded)
        if failed:
            found.failed.observe(seconds * 1000, failed)


class _Histogram:
    """Counts values by size."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value ``times`` times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def samples(self, name: str, labels: str) -> Iterator[str]:
        """Yield the lines of the histogram."""
        total, counts = 0, self._counts[:]
        for bound, count in zip((*self._bounds, "+Inf"), counts, strict=True):
            total += count
            yield _sample(f"{name}_bucket", f'{labels},le="{bound}"', total)
        yield _sample(f"{name}_sum", labels, self._sum)
        yield _sample(f"{name}_count", labels, total)


class _OfTopic(msgspec.Struct, frozen=True):
    """The labels and the histograms of a consumer's topic."""

    labels: _Labels
    latency: _Histogram
    awaited: _Histogram
    failed: _Histogram
    succeeded: _Histogram


def _label_text(metric: ClientMetric, values: _Labels) -> str:
    pairs = zip(metric.labels, values, strict=True)
    return ",".join([f'{name}="{value.translate(_ESCAPED)}"' for name, value in pairs])


def _sample(name: str, labels: str, value: float) -> str:
    return f"{name}{{{labels}}} {repr(value).removesuffix('.0')}\n"
