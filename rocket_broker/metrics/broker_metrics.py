"""The metrics of a broker, with the names and labels of RocketMQ 5 where it has the same.

Nothing is counted for them: a scrape reads the tables and counters that the broker has anyway. What a scrape would have
to read from old files of the log, such as the time of each group's oldest unconsumed message, is not offered.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Final, Literal

from rocket_broker.metrics.scrape import LEFT_OUT, Samples, Source, one, scrape
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.traffic import MOST_TRAFFIC
from rocket_remoting.wire.bodies import ConsumeType
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.record import peek_record
from rocket_remoting.wire.topics import (
    dlq_topic,
    is_dead_letter_topic,
    is_retry_topic,
    is_system_group,
    is_system_topic,
)
from streamkit.exposition import Alert, Kind, Metric, MetricTable, label_text

__all__ = ["TABLE", "BrokerMetrics"]

_TOPIC: Final = ("topic", "is_system")
_GROUP: Final = ("topic", "consumer_group", "is_retry", "is_system")
_STORE: Final = ("storage_type", "storage_medium")
_ON_DISK: Final = label_text({"storage_type": "local", "storage_medium": "disk"})
_PROTOCOL: Final = ("protocol_type", "remoting")
_MODES: Final = {
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_POP: "pop",
}


def _gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name, Kind.GAUGE, text, labels)


def _counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name, Kind.COUNTER, text, labels)


PERMISSION: Final = _gauge("rocketmq_broker_permission", "The setting brokerPermission: 6, 4 (read only) or 2.")
TOPICS: Final = _gauge("rocketmq_topic_number", "Topics, including the broker's own.")
GROUPS: Final = _gauge("rocketmq_consumer_group_number", "Consumer groups, including those without members.")
MESSAGES_IN: Final = _counter("rocketmq_messages_in_total", "Messages stored in the topic.", _TOPIC)
BYTES_IN: Final = _counter("rocketmq_throughput_in_total", "Bytes of these messages in the log.", _TOPIC)
MESSAGES_OUT: Final = _counter("rocketmq_messages_out_total", "Messages sent to the group.", _GROUP)
BYTES_OUT: Final = _counter("rocketmq_throughput_out_total", "Bytes of these messages.", _GROUP)
DEAD_LETTERS: Final = _counter(
    "rocketmq_send_to_dlq_messages_total", "Messages stored in the group's dead letter topic.", ("consumer_group",)
)
PRODUCERS: Final = _gauge("rocketmq_producer_connections", "Connections of producers.", ("language", "protocol_type"))
CONSUMERS: Final = _gauge(
    "rocketmq_consumer_connections",
    "Connections of consumers.",
    ("consumer_group", "language", "consume_mode", "protocol_type", "is_system"),
)
LAG: Final = _gauge(
    "rocketmq_consumer_lag_messages",
    "Messages behind the group's committed offsets, in the queues that have one.",
    _GROUP,
)
HALVES: Final = _gauge("rocketmq_half_messages", "Half messages whose transaction is open.")
DISK_USED: Final = _gauge("rocketmq_storage_size", "Used bytes of the store's file system.", _STORE)
DISK_SIZE: Final = _gauge("streamkit_broker_storage_capacity_bytes", "Bytes of the store's file system.", _STORE)
UNFLUSHED: Final = _gauge("rocketmq_storage_flush_behind_bytes", "Bytes of the log that are not flushed yet.", _STORE)
RESERVE_TIME: Final = _gauge(
    "rocketmq_storage_message_reserve_time", "Milliseconds since the oldest message of the log was stored.", _STORE
)
LOG_MIN: Final = _gauge("streamkit_broker_log_min_offset", "The first position of the commit log.")
LOG_MAX: Final = _counter("streamkit_broker_log_bytes_total", "The end of the commit log: bytes that were ever stored.")
TIMER_LAG: Final = _gauge("rocketmq_timer_enqueue_lag", "Timed messages that have no timer yet.")
TIMER_LATENCY: Final = _gauge(
    "rocketmq_timer_dequeue_latency", "Milliseconds by which the delivery of timed messages is behind."
)
DELAYED: Final = _gauge(
    "streamkit_broker_delayed_messages", "Messages that wait for their delay, by delay level.", ("level",)
)
PUT_FAILURES: Final = _counter("streamkit_broker_put_failures_total", "Messages that the store refused.")
PULLS_FOUND: Final = _counter("streamkit_broker_pulls_found_total", "Pulls that were answered with messages.")
PULLS_MISSED: Final = _counter(
    "streamkit_broker_pulls_missed_total", "Pulls that were held, or answered without messages."
)
TRANSACTIONS_PUT_ASIDE: Final = _counter(
    "streamkit_broker_transactions_put_aside_total", "Half messages moved to TRANS_CHECK_MAX_TIME_TOPIC."
)
SLAVES: Final = _gauge("streamkit_broker_slaves", "Slaves that follow the log.")
SLAVE_BEHIND: Final = _gauge(
    "streamkit_broker_slave_behind_bytes", "Bytes of the log that the slave has not confirmed.", ("slave",)
)
START: Final = _gauge("process_start_time_seconds", "When the broker started, in seconds since 1970.")

TABLE: Final = MetricTable(
    "Broker",
    [
        PERMISSION, TOPICS, GROUPS, MESSAGES_IN, BYTES_IN, MESSAGES_OUT, BYTES_OUT, DEAD_LETTERS, PRODUCERS, CONSUMERS,
        LAG, HALVES, DISK_USED, DISK_SIZE, UNFLUSHED, RESERVE_TIME, LOG_MIN, LOG_MAX, TIMER_LAG, TIMER_LATENCY, DELAYED,
        PUT_FAILURES, PULLS_FOUND, PULLS_MISSED, TRANSACTIONS_PUT_ASIDE, SLAVES, SLAVE_BEHIND, START, LEFT_OUT,
    ],
    [
        Alert(
            "RocketmqDeadLetters",
            "sum by (cluster, consumer_group) (increase(rocketmq_send_to_dlq_messages_total[10m])) > 0",
            "0m",
            "critical",
            "Group {{ $labels.consumer_group }} gave messages up.",
            "streamkit dlq list shows them with their causes.",
        ),
        Alert(
            "RocketmqPutFailures",
            "increase(streamkit_broker_put_failures_total[5m]) > 0",
            "0m",
            "critical",
            "Broker {{ $labels.node_id }} refuses messages.",
            "Read the broker's log; a full disk is the usual cause.",
        ),
        Alert(
            "RocketmqDiskFills",
            "rocketmq_storage_size{node_type='broker'} / streamkit_broker_storage_capacity_bytes > 0.75",
            "10m",
            "warning",
            "The disk of broker {{ $labels.node_id }} is nearly full.",
            "Old messages are deleted, and new ones refused, at the ratios that the settings name.",
        ),
        Alert(
            "RocketmqConsumerLag",
            "sum by (cluster, consumer_group, topic) (rocketmq_consumer_lag_messages) > 10000 and "
            "sum by (cluster, consumer_group, topic) (deriv(rocketmq_consumer_lag_messages[15m])) > 0",
            "15m",
            "warning",
            "Group {{ $labels.consumer_group }} falls behind in topic {{ $labels.topic }}.",
            "streamkit group show names its members and their queues.",
        ),
        Alert(
            "RocketmqGroupWithoutConsumers",
            "sum by (cluster, consumer_group) (rocketmq_consumer_lag_messages{is_system='false'}) > 0 "
            "unless on (cluster, consumer_group) sum by (cluster, consumer_group) (rocketmq_consumer_connections)",
            "15m",
            "warning",
            "Messages wait for group {{ $labels.consumer_group }}, which has no members.",
            "Start the application, or delete the group if nobody needs it.",
        ),
        Alert(
            "RocketmqTransactionsStayOpen",
            "rocketmq_half_messages > 25000",
            "10m",
            "warning",
            "Broker {{ $labels.node_id }} has many open transactions.",
            "Start the producers that answer its checks. It refuses a group that has 50,000 open transactions.",
        ),
        Alert(
            "RocketmqTimersBehind",
            "rocketmq_timer_dequeue_latency > 60000",
            "5m",
            "warning",
            "Broker {{ $labels.node_id }} delivers timed messages late.",
            "Check the load and the disk of the broker.",
        ),
        Alert(
            "RocketmqSlaveBehind",
            "streamkit_broker_slave_behind_bytes > 100e6",
            "5m",
            "warning",
            "Slave {{ $labels.slave }} of broker {{ $labels.node_id }} is far behind.",
            "If the master failed now, these bytes would be lost.",
        ),
    ],
)  # fmt: skip
"""The metrics of a broker, and what to alert on."""


class BrokerMetrics:
    """Reads the metrics of one broker."""

    def __init__(self, context: BrokerContext) -> None:
        self._settings = context.settings
        self._clock = context.clock
        self._store = context.store
        self._topics = context.topics
        self._groups = context.groups
        self._offsets = context.offsets
        self._consumers = context.consumers
        self._producers = context.producers
        self._delays = context.delays
        self._timers = context.timers
        self._halves = context.halves
        self._slaves = context.slaves
        self._statistics = context.statistics
        self._started_ms = context.clock.now_ms()
        self._oldest: tuple[int, int | None] = (-1, None)
        self._labels = label_text(
            [
                ("cluster", self._settings.broker_cluster_name),
                ("node_type", "broker"),
                ("node_id", self._settings.broker_name),
                *self._settings.labels,
            ]
        )
        statistics = self._statistics
        plain: list[tuple[Metric, Callable[[], float | None]]] = [
            (PERMISSION, lambda: self._settings.broker_permission),
            (TOPICS, lambda: len(self._topics)),
            (GROUPS, lambda: len(self._groups)),
            (HALVES, lambda: self._halves.pending.count),
            (LOG_MIN, lambda: self._store.min_commit_log_offset),
            (LOG_MAX, lambda: self._store.max_commit_log_offset),
            (TIMER_LAG, lambda: None if self._timers is None else self._timers.messages_behind),
            (TIMER_LATENCY, lambda: None if self._timers is None else self._timers.seconds_behind * 1000),
            (PUT_FAILURES, lambda: statistics.put_failures),
            (PULLS_FOUND, lambda: statistics.pulls_found),
            (PULLS_MISSED, lambda: statistics.pulls_missed),
            (TRANSACTIONS_PUT_ASIDE, lambda: statistics.transactions_put_aside),
            (SLAVES, lambda: len(self._slaves.slaves) if self._slaves is not None else None),
            (START, lambda: self._started_ms / 1000),
        ]
        self._sources = [
            *(Source(metric, partial(_one_of, read)) for metric, read in plain),
            Source(MESSAGES_IN, lambda: self._stored("messages")),
            Source(BYTES_IN, lambda: self._stored("size")),
            Source(MESSAGES_OUT, lambda: self._sent("messages")),
            Source(BYTES_OUT, lambda: self._sent("size")),
            Source(DEAD_LETTERS, self._dead_letters),
            Source(PRODUCERS, self._producer_connections),
            Source(CONSUMERS, self._consumer_connections),
            Source(LAG, self._lags),
            Source(DISK_USED, lambda: [(_ON_DISK, self._disk().used)]),
            Source(DISK_SIZE, lambda: [(_ON_DISK, self._disk().total)]),
            Source(UNFLUSHED, lambda: [(_ON_DISK, self._store.unflushed_bytes)]),
            Source(RESERVE_TIME, self._reserve_time),
            Source(DELAYED, self._delayed),
            Source(SLAVE_BEHIND, self._slaves_behind),
        ]

    def scrape(self) -> Generator[None, None, list[bytes]]:
        """Read all metrics in steps; return their text in pieces."""
        return scrape(self._sources, self._labels, self._settings.metrics_otel_cardinality_limit)

    def _stored(self, field: Literal["messages", "size"]) -> Samples:
        puts = self._statistics.puts
        for topic in list(self._topics):
            traffic = puts.get(topic)
            if traffic is not None:
                yield _topic_labels(topic), getattr(traffic, field)
            else:
                # Once the table is full, what other topics store is counted in the broker's totals only.
                yield (_topic_labels(topic), 0) if len(puts) < MOST_TRAFFIC else None

    def _sent(self, field: Literal["messages", "size"]) -> Samples:
        gets = self._statistics.gets
        for (topic, group), traffic in list(gets.items()):
            yield _group_labels(topic, group), getattr(traffic, field)
        for topic, group in self._pairs():
            unread = (topic, group) not in gets and len(gets) < MOST_TRAFFIC
            yield (_group_labels(topic, group), 0) if unread else None

    def _dead_letters(self) -> Samples:
        puts = self._statistics.puts
        for group in list(self._groups):
            traffic = puts.get(dlq_topic(group))
            if traffic is not None or len(puts) < MOST_TRAFFIC:
                yield label_text({"consumer_group": group}), traffic.messages if traffic is not None else 0
            else:
                yield None

    def _lags(self) -> Samples:
        for topic, group in self._pairs():
            if self._topics.get(topic) is None or not self._is_consumed(group, topic):
                yield None
                continue
            behind = 0
            for queue_id, offset in list(self._offsets.queues(group, topic).items()):
                behind += max(0, self._store.max_offset(topic, queue_id) - offset)
                if queue_id % 64 == 63:
                    yield None
            yield _group_labels(topic, group), behind

    def _is_consumed(self, group: str, topic: str) -> bool:
        """Return whether the group, if it has live members, subscribes to the topic."""
        live = self._consumers.get(group)
        return live is None or not live.subscriptions or topic in live.subscriptions

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """Yield each topic with each group that has offsets in it."""
        for topic in list(self._topics):
            for group in self._offsets.groups_of(topic):
                yield topic, group

    def _producer_connections(self) -> Samples:
        counts: Counter[str] = Counter()
        for group in list(self._producers):
            counts.update(member.language.lower() for member in self._producers.members(group))
            yield None
        for language, count in counts.items():
            yield label_text([("language", language), _PROTOCOL]), count

    def _consumer_connections(self) -> Samples:
        for name in list(self._consumers):
            group = self._consumers.get(name)
            if group is None:
                continue
            mode = _MODES[group.consume_type] if group.consume_type is not None else ""
            counts = Counter(member.language.lower() for member in group.members())
            for language, count in counts.items():
                labels = [
                    ("consumer_group", name),
                    ("language", language),
                    ("consume_mode", mode),
                    _PROTOCOL,
                    ("is_system", _text(is_system_group(name))),
                ]
                yield label_text(labels), count
            yield None

    def _disk(self) -> "shutil._ntuple_diskusage":
        return shutil.disk_usage(self._settings.store_path_root_dir)

    def _reserve_time(self) -> Samples:
        first = self._store.min_commit_log_offset
        if self._oldest[0] != first or self._oldest[1] is None:
            # The oldest message is read once, not at each scrape, because its page may have to come from the disk.
            record = self._store.message_at(first)
            try:
                self._oldest = first, None if record is None else peek_record(record).store_timestamp
            except RemoteProtocolError:
                self._oldest = first, None
        stored_ms = self._oldest[1]
        return () if stored_ms is None else ((_ON_DISK, max(0, self._clock.now_ms() - stored_ms)),)

    def _delayed(self) -> Samples:
        for level, (offset, end) in self._delays.backlog().items():
            yield label_text({"level": str(level)}), max(0, end - offset)

    def _slaves_behind(self) -> Samples:
        if self._slaves is not None:
            end = self._store.max_commit_log_offset
            for slave in self._slaves.slaves:
                yield label_text({"slave": slave.address}), max(0, end - slave.reported)


def _one_of(read: Callable[[], float | None]) -> Samples:
    return one(read())


def _topic_labels(topic: str) -> str:
    return label_text({"topic": topic, "is_system": _text(is_system_topic(topic))})


def _group_labels(topic: str, group: str) -> str:
    return label_text(
        {
            "topic": topic,
            "consumer_group": group,
            "is_retry": _text(is_retry_topic(topic) or is_dead_letter_topic(topic)),
            "is_system": _text(is_system_topic(topic) or is_system_group(group)),
        }
    )


def _text(value: bool) -> str:
    return "true" if value else "false"
