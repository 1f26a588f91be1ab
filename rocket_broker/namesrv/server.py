"""The name server: its listening socket and the loop that removes dead brokers."""

import asyncio
import logging
from typing import TYPE_CHECKING

from rocket_broker.access.audit_log import AuditLog
from rocket_broker.access.needs import handlers_of
from rocket_broker.loop.loop_steps import run_in_steps
from rocket_broker.namesrv.kv_config import KVConfig
from rocket_broker.namesrv.processor import NameServerProcessor
from rocket_broker.namesrv.route_table import BROKER_EXPIRY_SECONDS, RouteTable
from rocket_broker.namesrv.settings import NameServerSettings
from rocket_broker.requests.serving import Dispatcher, limits, listen, warn_if_open
from rocket_remoting.clock import Clock, SystemClock
from rocket_remoting.session.buffers import BufferBudget
from rocket_remoting.session.connection import Connection
from rocket_remoting.transports.transport import Server, Transport

if TYPE_CHECKING:
    from rocket_broker.access.access_control import AccessControl
    from rocket_broker.metrics.endpoint import MetricsEndpoint

__all__ = ["NameServer"]

logger = logging.getLogger(__name__)

MAX_BUFFERED = 256 * 1024 * 1024
"""Bytes for all connections together: data that peers do not read, and incomplete frames."""


class NameServer:
    """Tells clients the routes to the brokers, which register every 30 seconds.

    Attributes:
        settings: The settings.
        routes: The live brokers and their topics.
        kv_config: The key-value configuration.
        access: Checks requests; None without access control.
        audit: Records administrative requests; None if they are not recorded.
        metrics_endpoint: Serves the metrics; None if they are not served.
    """

    def __init__(self, settings: NameServerSettings, *, transport: Transport, clock: Clock | None = None) -> None:
        clock = clock or SystemClock()
        self.settings = settings
        self.access = _access_control(settings, clock)
        audited = settings.audit_file(settings.kv_config_path.parent, is_default=settings.acl_enable)
        self.audit = AuditLog.of("name server", audited, settings, clock)
        self.kv_config = KVConfig(settings.kv_config_path)
        self.routes = RouteTable(
            lambda: asyncio.get_running_loop().time(),
            forget_missing_topics=settings.delete_topic_with_broker_registration,
        )
        self.metrics_endpoint: MetricsEndpoint | None = None
        self._clock = clock
        self._transport = transport
        self._server: Server | None = None
        self._loops: list[asyncio.Task[None]] = []

    @property
    def address(self) -> str:
        """The address for clients and brokers.

        Raises:
            RuntimeError: The name server is not started.
        """
        if self._server is None:
            raise RuntimeError("the name server is not started")
        return self._server.address

    async def start(self) -> None:
        """Start the server, which serves when this returns.

        Raises:
            AclFileError: A file of accounts is wrong.
            AddressInUse: Another process uses the port, or that of the metrics.
            CannotListen: The operating system refuses to listen on the address.
            TlsUnusable: A file of TLS cannot be used.
            DamagedTable: The key-value configuration cannot be read.
        """
        if self.access is not None:
            self.access.load()
        self.kv_config.load()
        processor = NameServerProcessor(self.settings, self.routes, self.kv_config)
        check = self.access.check if self.access is not None else None
        handlers = handlers_of(processor.table, check, self.audit, is_local_enough=self._may_administrate)
        self._dispatcher = Dispatcher("name server", handlers)
        self._server = await listen(
            self._transport,
            self.settings.bind_address,
            self.settings.listen_port,
            self._dispatcher,
            on_close=self.routes.connection_closed,
            client_limits=limits(
                self.settings.server_channel_max_idle_time_seconds,
                address_percent=self.settings.max_address_connections_ratio,
                buffers=BufferBudget(MAX_BUFFERED),
            ),
            tls=self.settings.server_tls(),
        )
        if self.access is None:
            warn_if_open("name server", self._server)
        else:
            follow = self.access.follow_files()
            self._loops.append(asyncio.create_task(follow, name="name server: changes of accounts"))
        if self.settings.serves_metrics:
            from rocket_broker.metrics.endpoint import MetricsEndpoint
            from rocket_broker.namesrv.metrics import NameServerMetrics

            metrics = NameServerMetrics(self.settings, self.routes, self._clock, lambda: self.address)
            host, port = self.settings.metrics_prom_exporter_host, self.settings.metrics_prom_exporter_port
            self.metrics_endpoint = MetricsEndpoint(metrics.scrape, host, port)
            await self.metrics_endpoint.start()
        scan = self._remove_silent_brokers()
        self._loops.append(asyncio.create_task(scan, name="name server: scan for dead brokers"))

    async def stop(self) -> None:
        """Close every connection; brokers and clients continue with the routes that they have."""
        loops, self._loops = self._loops, []
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        if self.metrics_endpoint is not None:
            await self.metrics_endpoint.stop()
            self.metrics_endpoint = None
        if self._server is not None:
            self._dispatcher.stop()
            await self._server.close()
            self.routes.stop()
            self._server = None
        if self.audit is not None:
            self.audit.close()

    def _may_administrate(self, connection: Connection) -> bool:
        # An empty address is the server's own; others of its machine are those of the loopback network.
        near = not connection.counted_as or connection.counted_as.startswith("127.")
        return near or self.settings.remote_administration_enable

    async def _remove_silent_brokers(self) -> None:
        while True:
            await asyncio.sleep(self.settings.scan_not_active_broker_interval / 1000)
            removing = self.routes.remove_silent(BROKER_EXPIRY_SECONDS)
            for connection in await run_in_steps("removing brokers that stopped registering", removing):
                connection.abort("no registration")  # a dead peer would never read the unwritten data


def _access_control(settings: NameServerSettings, clock: Clock) -> "AccessControl | None":
    if not settings.acl_enable:
        return None
    # Imported here: a name server without access control reads no YAML.
    from rocket_broker.access.access_control import AccessControl

    return AccessControl(settings.accounts_dir, clock, needs_scope=settings.require_signed_code)
