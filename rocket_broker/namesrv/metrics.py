"""The metrics of a name server. Apache's has none, so these have names of their own."""

from collections.abc import Callable, Generator
from typing import Final

from rocket_broker.metrics.scrape import LEFT_OUT, Samples, Source, one, scrape
from rocket_broker.namesrv.route_table import RouteTable
from rocket_broker.namesrv.settings import NameServerSettings
from rocket_broker.settings.checks import MASTER_ID
from rocket_remoting.clock import Clock
from streamkit.exposition import Alert, Kind, Metric, MetricTable, label_text

__all__ = ["TABLE", "NameServerMetrics"]

BROKERS: Final = Metric(
    "streamkit_namesrv_brokers", Kind.GAUGE, "Registered addresses of brokers.", ("cluster", "broker")
)
ROUTES: Final = Metric(
    "streamkit_namesrv_routes", Kind.GAUGE, "Topics of all brokers; a topic counts once for each of its brokers."
)
MASTERLESS: Final = Metric(
    "streamkit_namesrv_brokers_without_master", Kind.GAUGE, "Brokers of which only slaves are registered."
)
START: Final = Metric("process_start_time_seconds", Kind.GAUGE, "When the name server started, in seconds since 1970.")

TABLE: Final = MetricTable(
    "Name server",
    [BROKERS, ROUTES, MASTERLESS, START, LEFT_OUT],
    [
        Alert(
            "RocketmqBrokerWithoutMaster",
            "streamkit_namesrv_brokers_without_master > 0",
            "2m",
            "critical",
            "Name server {{ $labels.instance }} knows a broker of which no master is registered.",
            "Start the master, or promote a slave: streamkit broker promote.",
        ),
        Alert(
            "RocketmqBrokersGone",
            "sum by (instance, cluster) (streamkit_namesrv_brokers) < "
            "sum by (instance, cluster) (max_over_time(streamkit_namesrv_brokers[1h]))",
            "2m",
            "warning",
            "A broker of cluster {{ $labels.cluster }} is not registered any more.",
            "Check whether the broker runs and reaches the name server.",
        ),
    ],
)
"""The metrics of a name server, and what to alert on."""


class NameServerMetrics:
    """Reads the metrics of one name server.

    Args:
        settings: Its settings.
        routes: The live brokers and their topics.
        clock: Wall-clock time.
        address: Returns its address.
    """

    def __init__(
        self, settings: NameServerSettings, routes: RouteTable, clock: Clock, address: Callable[[], str]
    ) -> None:
        self._settings = settings
        self._routes = routes
        self._started_ms = clock.now_ms()
        self._address = address
        self._sources = [
            Source(BROKERS, self._brokers),
            Source(ROUTES, lambda: one(self._routes.route_count)),
            Source(MASTERLESS, self._masterless),
            Source(START, lambda: one(self._started_ms / 1000)),
        ]

    def scrape(self) -> Generator[None, None, list[bytes]]:
        """Read all metrics in steps; return their text in pieces."""
        labels = [("node_type", "namesrv"), ("node_id", self._address()), *self._settings.labels]
        return scrape(self._sources, label_text(labels), self._settings.metrics_otel_cardinality_limit)

    def _brokers(self) -> Samples:
        known = self._routes.cluster_info()
        for cluster, names in known.cluster_addr_table.items():
            for name in sorted(names):
                broker = known.broker_addr_table.get(name)
                if broker is not None:
                    yield label_text({"cluster": cluster, "broker": name}), len(broker.broker_addrs)

    def _masterless(self) -> Samples:
        brokers = self._routes.cluster_info().broker_addr_table.values()
        return one(sum(MASTER_ID not in broker.broker_addrs for broker in brokers))
