"""The table of `rocket_client`'s metrics, for `streamkit metrics` and docs/observability.md."""

from typing import Final

from rocket_client.metrics import METRICS
from streamkit.exposition import Alert, Kind, Metric, MetricTable

__all__ = ["TABLE"]

TABLE: Final = MetricTable(
    "RocketMQ client",
    [Metric(each.name, Kind(each.kind.value), each.text, each.labels, each.buckets) for each in METRICS],
    [
        Alert(
            "RocketmqClientAttemptsFail",
            "sum by (job, topic) (increase(streamkit_client_failed_attempts_total[5m])) > 0",
            "5m",
            "warning",
            "Attempts to send to topic {{ $labels.topic }} fail.",
            "streamkit doctor says which broker cannot be reached; the application's log has each send that failed.",
        ),
    ],
)
"""The metrics of producers and consumers of `rocket_client`, and what to alert on."""
