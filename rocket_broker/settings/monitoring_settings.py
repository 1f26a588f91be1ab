"""The settings of the log and of the metrics of a broker and a name server."""

from dataclasses import dataclass

from rocket_broker.settings import checks
from rocket_broker.settings.apache_settings import ApacheSettings, setting
from rocket_broker.settings.checks import LARGEST_PORT

__all__ = ["MonitoringSettings"]


@dataclass(init=False, repr=False, eq=False)
class MonitoringSettings(ApacheSettings):
    """The settings of the log and of the metrics, which a broker and a name server share."""

    log_format: str = setting(
        "text",
        "Format of the log: text, or json for a JSON object on each line (no key of Apache's).",
        check=checks.log_format,
        fixed=True,
    )
    metrics_exporter_type: str = setting(
        "DISABLE",
        "PROM serves metrics to Prometheus over HTTP, at /metrics (5.x).",
        check=checks.metrics_exporter,
        fixed=True,
    )
    metrics_prom_exporter_host: str = setting(
        "127.0.0.1",
        "Address that the metrics are served at; default of 5.x: brokerIP1. They need no login and are not encrypted.",
        check=checks.host,
        fixed=True,
    )
    metrics_prom_exporter_port: int = setting(
        5557,
        "TCP port that the metrics are served at (5.x); 0 takes any free port, which the log names.",
        maximum=LARGEST_PORT,
        fixed=True,
    )
    metrics_label: str = setting(
        "",
        "Labels of all metrics, as zone:a,rack:7 (5.x).",
        check=checks.labels,
        fixed=True,
    )
    metrics_otel_cardinality_limit: int = setting(
        50_000,
        "Maximum number of samples of a metric (5.x); further topics and groups are left out, and "
        "streamkit_metrics_samples_left_out counts them.",
        minimum=1,
        fixed=True,
    )

    @property
    def serves_metrics(self) -> bool:
        """Whether the metrics are served."""
        return self.metrics_exporter_type == "PROM"

    @property
    def labels(self) -> list[tuple[str, str]]:
        """The names and values of `metricsLabel`."""
        pairs = (part.partition(":") for part in self.metrics_label.split(",") if part.strip())
        return [(name.strip(), value.strip()) for name, _, value in pairs]
