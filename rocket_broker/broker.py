"""The broker: its parts, its start and its stop."""

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rocket_broker.access.audit_log import AuditLog
from rocket_broker.access.needs import RequestCheck, handlers_of
from rocket_broker.clients.client_channel import ClientChannel
from rocket_broker.clients.consumer_table import ConsumerTable
from rocket_broker.clients.heartbeat_limits import HeartbeatLimits
from rocket_broker.clients.lock_file import LockFile
from rocket_broker.clients.producer_table import ProducerTable
from rocket_broker.clients.queue_locks import QueueLocks
from rocket_broker.errors import OUT_OF_FILES, AddressUnreachable, StartError, StoreUnusable, TlsUnusable, TooFewFiles
from rocket_broker.filter.consumer_filter_table import ConsumerFilterTable
from rocket_broker.filter.filter_compiler import FilterCompiler
from rocket_broker.loop.loop_steps import run_in_steps
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.processors.known_pulls import CODE, DIGIT, KnownPulls, is_pull
from rocket_broker.processors.send_runs import RUN_CODES, SendRuns
from rocket_broker.pulling.pull_request_hold import PullRequestHold
from rocket_broker.registration import Registration
from rocket_broker.replication.master_address import MasterAddress
from rocket_broker.request_handlers import STORING, RequestHandlers, slave_table
from rocket_broker.requests.fast_failure import FastFailure
from rocket_broker.requests.serving import Dispatcher, RequestHandler, limits, listen, warn_if_open
from rocket_broker.schedule.delay_service import DelayService
from rocket_broker.schedule.timer_service import TimerService
from rocket_broker.settings.broker_settings import BrokerRole, BrokerSettings
from rocket_broker.settings.delay_levels import DelayLevels
from rocket_broker.statistics import BrokerStatistics
from rocket_broker.store.message_store import MessageStore
from rocket_broker.store.recovery import RecoveryReport
from rocket_broker.tables.consumer_offset_table import ConsumerOffsetTable
from rocket_broker.tables.subscription_group_table import SubscriptionGroupTable
from rocket_broker.tables.topic_table import TopicTable
from rocket_broker.transaction.check_service import TransactionCheckService
from rocket_broker.transaction.half_messages import HalfMessages
from rocket_broker.writing.message_writer import MessageWriter
from rocket_remoting.clock import Clock
from rocket_remoting.native import has_native_core
from rocket_remoting.session.address import format_address, parse_address
from rocket_remoting.session.arrivals import Taken
from rocket_remoting.session.buffers import BufferBudget
from rocket_remoting.session.connection import Connection, FramesHandler, Handler
from rocket_remoting.tls.contexts import client_context
from rocket_remoting.tls.settings import TlsMode
from rocket_remoting.transports.transport import Server, Transport
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.errors import ConnectError, RemotingError, TlsError
from rocket_remoting.wire.message import Host

if TYPE_CHECKING:  # what only some brokers need is imported where they make it: imports are most of a start's time
    from rocket_broker.access.access_control import AccessControl
    from rocket_broker.access.user_directory import UserDirectory
    from rocket_broker.metrics.broker_metrics import BrokerMetrics
    from rocket_broker.metrics.endpoint import MetricsEndpoint
    from rocket_broker.replication.master import SlaveServer
    from rocket_broker.replication.metadata import Metadata
    from rocket_broker.replication.slave import Slave
    from streamkit.chaos import Chaos

__all__ = ["Broker"]

logger = logging.getLogger(__name__)

VIP_OFFSET = 2
"""The VIP channel's port is the listening port minus this. Clients of the time of RocketMQ 4.4 send messages and
query offsets there by default."""

PAIRS_TRIED = 50
HOUSEKEEPING_SECONDS = 10.0
CONNECT_BACK_SECONDS = 3.0


class Broker:
    """A broker in the running event loop, a master or a slave.

    Attributes:
        settings: The settings of the broker.
        clock: Wall-clock time, for the stamps in messages.
        transport: Listens and connects.
        on_progress: Called every few seconds while `start` reads the commit log.
        store: The messages.
        topics: The topics.
        groups: The consumer groups.
        offsets: The consumer offsets of each group.
        consumers: The live consumers.
        filter_compiler: Compiles the expressions that clients send.
        filters: The property filters (SQL92) of groups.
        producers: The live producers.
        buffers: The budget of buffered bytes of all connections together.
        heartbeat_limits: Bounds what clients report in heartbeats.
        locks: The queue locks of ordered consumption.
        pull_request_hold: The pull requests that wait for a message.
        delays: Delivers delayed messages; set once `start` has returned.
        directory: The users of 5.3's access control; None if none are kept.
        accounts: The files of accounts; None unless they are 4.9's access control.
        access: Checks requests; None without access control.
        audit: Records administrative requests; None if they are not recorded.
        timers: Delivers timed messages; None before `start`, and if timers are turned off.
        halves: The half messages of transactions; set once `start` has returned.
        fast_failure: Refuses requests that have waited for too long; set once `start` has returned.
        slaves: Sends the log to slaves; None if they are not accepted.
        master: The addresses of the master, for a slave.
        slave: Copies the log of the master; None if this broker is a master.
        metadata: Copies the tables of the master; set once `start` has returned, None if this broker is a master.
        statistics: Counts messages and pulls since the start.
        recovery: What the store found when it was opened; set once `start` has returned.
        requests: The processors of the requests; set once `start` has returned.
        metrics_endpoint: Serves the metrics; None if they are not served.
    """

    delays: DelayService
    halves: HalfMessages
    recovery: RecoveryReport
    fast_failure: FastFailure
    requests: RequestHandlers

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        transport: Transport,
        clock: Clock,
        on_progress: Callable[[], object] = lambda: None,
        chaos: "Chaos | None" = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.transport = transport
        self.on_progress = on_progress
        self.store = MessageStore(settings.store_settings(), clock)
        self.topics = TopicTable(settings, clock)
        self.groups = SubscriptionGroupTable(settings, clock)
        self.offsets = ConsumerOffsetTable(settings)
        self.consumers = ConsumerTable()
        self.consumers.notify_enabled = lambda: settings.notify_consumer_ids_changed_enable
        self.consumers.guard.refuses = lambda: settings.refuse_different_subscriptions
        self.filter_compiler = FilterCompiler()
        self.filters = ConsumerFilterTable(settings, clock, self.filter_compiler.compile)
        self.consumers.on_heartbeat.append(self.filters.register)
        self.consumers.on_empty.append(self.filters.unregister)
        self.producers = ProducerTable()
        self.buffers = BufferBudget(settings.max_buffered_bytes)
        self.heartbeat_limits = HeartbeatLimits()
        self.locks = QueueLocks()
        self.pull_request_hold = PullRequestHold(self.store)
        self.statistics = BrokerStatistics(now_ms=self.clock.now_ms)
        self.directory = _users(settings, clock) if settings.keeps_users else None
        self.accounts: AccessControl | None = None
        self.access: RequestCheck | None = None
        if self.directory is not None and settings.checks_users:
            self.access = _policies(settings, self.directory)
        elif settings.acl_enable:
            self.access = self.accounts = _accounts(settings, clock)
        audited = settings.audit_file(settings.store_path_root_dir, is_default=True)
        self.audit = AuditLog.of(settings.broker_name, audited, settings, clock)
        self.timers: TimerService | None = None
        self.slaves = _slave_server(settings, self.store) if settings.slaves_port is not None else None
        if self.slaves is not None and settings.broker_role is BrokerRole.SYNC_MASTER:
            self.store.replicate = self.slaves.replicate
        self.master = MasterAddress(settings)
        self.slave = self._make_slave() if settings.is_slave else None
        self.metadata: Metadata | None = None
        self.metrics_endpoint: MetricsEndpoint | None = None
        self._chaos = chaos
        self._handlers: dict[int, RequestHandler] = {}
        self._send_runs: SendRuns | None = None
        self._known_pulls: KnownPulls | None = None  # only without access control
        self._server: Server | None = None
        self._running: AsyncExitStack | None = None

    @cached_property
    def metrics(self) -> "BrokerMetrics":
        """Reads the metrics; there once `start` has returned."""
        from rocket_broker.metrics.broker_metrics import BrokerMetrics

        return BrokerMetrics(self._context)

    @property
    def address(self) -> str:
        """Address of the broker in routes.

        Raises:
            RuntimeError: The broker is not started.
        """
        if self._server is None:
            raise RuntimeError("the broker is not started")
        return self._address(self._server.port)

    async def start(self) -> None:
        """Start serving. When this returns, every name server that is up has the broker in its routes.

        Raises:
            AclFileError: A file of accounts is wrong.
            AddressInUse: Another process has the port.
            AddressUnreachable: Clients could not connect to the advertised address.
            CannotListen: The operating system refuses to listen on the address.
            DamagedTable: A table's file and its backup are both unreadable.
            TableUnreadable: The file system refuses to read a table.
            TlsUnusable: A certificate, a key or the trusted certificates cannot be used.
            TooFewFiles: The process may not open enough files to accept connections.
            StoreUnusable: The file system refuses to read or write the store.
            StoreError: The store is in use by another broker, or damaged beyond repair.
        """
        try:
            async with AsyncExitStack() as undo:
                await self._open_files(undo)
                await self._listen(undo)
                await self._connect_back()
                self._run_loops(undo)
                await self._serve_metrics(undo)
                await self._register(undo)
                self._running = undo.pop_all()
        except OSError as e:
            raise StoreUnusable(self.settings.store_path_root_dir, e) from e

    async def stop(self) -> None:
        """Unregister from the name servers, close every connection, and write all tables."""
        running, self._running = self._running, None
        if running is not None:
            await running.aclose()

    # The steps of `start`. Each step pushes its undo; `stop` runs them in reverse order.

    async def _open_files(self, undo: AsyncExitStack) -> None:
        if self.accounts is not None:
            self.accounts.load()
        self.recovery = self.store.load(self.on_progress)
        undo.push_async_callback(self.store.stop)
        if not self.topics.load():
            self.topics.restore(self.store.topics_with_queues())
        undo.callback(self.topics.journal.merge, self.topics.save)
        self.groups.load()
        undo.callback(self.groups.journal.merge, self.groups.save)
        self._load_users(undo)
        self.offsets.load()
        self.offsets.bound(self.store.max_offset)
        undo.callback(_save, "consumer offsets", self.offsets.save)
        self.filters.load()
        undo.callback(_save, "consumer filters", self.filters.save)
        lock_file = LockFile(self.settings.config_dir / "queueLocks.json", self.locks, self.clock)
        lock_file.load()
        undo.callback(_save, "queue locks", lock_file.save)
        await self.store.start()

    def _load_users(self, undo: AsyncExitStack) -> None:
        if self.directory is None:
            return
        self.directory.load(undo)
        self.directory.create_missing(self.settings.first_user, self.settings.credentials)
        if self.settings.migrate_auth_from_v1_enabled:
            accounts = _accounts(self.settings, self.clock)
            accounts.load()
            self.directory.take_over(accounts.rules.accounts.values())

    async def _listen(self, undo: AsyncExitStack) -> None:
        s = self.settings
        self.fast_failure = FastFailure(s, time=asyncio.get_running_loop().time)
        self._dispatcher = Dispatcher("broker", self._handlers, admit=self.fast_failure.admit, storing=STORING)
        self._handler: Handler = self._dispatcher
        if self._chaos is not None:
            from rocket_broker.requests.fault_injection import FaultInjection

            self._handler = faults = FaultInjection(self._dispatcher, self._chaos)
            undo.callback(faults.stop)
        store_ip = await _ip_of(s.advertised_host)
        if s.listen_port:
            await self._build((store_ip, s.listen_port))
        servers = await (self._serve_at(s.listen_port) if s.listen_port else self._serve_anywhere())
        if self.audit is not None:
            undo.callback(self.audit.close)
        for server in servers:
            undo.push_async_callback(server.close)
        self._server = servers[0]
        if self.access is None:
            warn_if_open("broker", self._server)
        if not s.listen_port:
            await self._build((store_ip, self._server.port))
        await self._accept_slaves(undo)
        # Runs before the servers close: late answers still need their connections.
        undo.push_async_callback(self.requests.stop)
        undo.callback(self._dispatcher.stop)

    async def _accept_slaves(self, undo: AsyncExitStack) -> None:
        port = self.settings.slaves_port
        if self.slaves is None or port is None:
            return
        await self.slaves.start(self.settings.slaves_host, port)
        undo.push_async_callback(self.slaves.stop)

    async def _serve_at(self, port: int) -> list[Server]:
        """Listen at the port, and at the VIP channel's port if that one is free."""
        servers = [await self._serve(port)]
        if self.settings.vip_channel_enable and port > VIP_OFFSET:
            try:
                servers.append(await self._serve(port - VIP_OFFSET))
            except StartError as e:
                logger.warning("clients that use the VIP channel will not reach this broker: %s", e)
        return servers

    async def _serve_anywhere(self) -> list[Server]:
        """Listen at a free port, and at its VIP channel's port: if that one is taken, try another pair of ports."""
        if not self.settings.vip_channel_enable:
            return [await self._serve(0)]
        for _ in range(PAIRS_TRIED):
            server = await self._serve(0)
            try:
                return [server, await self._serve(server.port - VIP_OFFSET)]
            except StartError:
                await server.close()
        logger.warning(
            "clients that use the VIP channel will not reach this broker: no two free ports beside each other"
        )
        return [await self._serve(0)]

    async def _serve(self, port: int) -> Server:
        s = self.settings
        return await listen(
            self.transport,
            s.listen_host,
            port,
            self._handler,
            on_close=self._connection_closed,
            client_limits=limits(
                s.server_channel_max_idle_time_seconds,
                s.write_buffer_high_water_mark,
                address_percent=s.max_address_connections_ratio,
                buffers=self.buffers,
                knows_by_handler=self.access is not None,
            ),
            # Runs of sends are not decoded into commands, and chaos needs each command.
            frames_handler=self._frames_handler() if has_native_core() and self._chaos is None else None,
            tls=s.server_tls(),
        )

    def _frames_handler(self) -> FramesHandler:
        turns = self.fast_failure
        return FramesHandler(RUN_CODES, self._take_frames, self._take_alone, turns.begin_turn, turns.end_turn)

    def _take_frames(self, received: Sequence[tuple[Connection, memoryview]]) -> Sequence[Taken] | None:
        return self._send_runs.take(received) if self._send_runs is not None else None

    def _take_alone(self, connection: Connection, received: memoryview) -> Taken | None:
        # The digit tells most other requests without a call.
        if self._known_pulls is not None and len(received) > CODE and received[CODE] == DIGIT and is_pull(received):
            return self._known_pulls.take(connection, received)
        return self._send_runs.take_alone(connection, received) if self._send_runs is not None else None

    async def _connect_back(self) -> None:
        """Connect to the advertised address, so that a wrong address fails the start and not the clients."""
        try:
            connection = await self.transport.connect(self.address, timeout=CONNECT_BACK_SECONDS)
            tls = self.settings.server_tls()
            try:
                if tls is not None and tls.mode is TlsMode.ENFORCING:
                    return  # a request would need a certificate that the broker accepts, which it may not have
                # Any answer will do. Brokers have no routes, so this request needs no account, and is not recorded as
                # one that was refused.
                await connection.invoke(Code.GET_ROUTEINFO_BY_TOPIC, timeout=CONNECT_BACK_SECONDS)
            finally:
                await connection.close()
        except RemotingError as e:
            if self._lacks_files(e):
                raise TooFewFiles(self.address) from e
            raise AddressUnreachable(self.address, e.reason if isinstance(e, ConnectError) else str(e)) from e

    def _lacks_files(self, error: RemotingError) -> bool:
        """Return whether the connection to the broker itself failed because the process could open no more files."""
        refused = self._server is not None and self._server.lacks_files
        cause = error.__cause__
        return refused or (isinstance(cause, OSError) and cause.errno in OUT_OF_FILES)

    def _run_loops(self, undo: AsyncExitStack) -> None:
        hold = self.pull_request_hold
        self.store.queue_listeners.append((hold.queues, hold.messages_arrived))
        self.pull_request_hold.start()
        undo.callback(self.pull_request_hold.stop)
        loops = {
            "topics": self.topics.journal.merge_periodically(self.topics.write),
            "consumer groups": self.groups.journal.merge_periodically(self.groups.write),
            "consumer offsets": self.offsets.save_periodically(self.store),
            "consumer filters": self.filters.save_periodically(),
            "housekeeping": self._run_housekeeping(),
        }
        if self.slave is None:
            loops["transaction checks"] = self._run_as_master(undo).run()
        else:
            loops |= self._loops_of_slave(self.slave)
        if self.accounts is not None:
            loops["accounts"] = self.accounts.follow_files()
        if self.directory is not None:
            loops |= self.directory.loops()
        for name, loop in loops.items():
            task = asyncio.create_task(loop, name=f"broker {self.settings.broker_name}: {name}")
            undo.push_async_callback(_cancel, task)

    def _run_as_master(self, undo: AsyncExitStack) -> TransactionCheckService:
        """Begin to deliver what waits; return the checks of transactions."""
        self.delays.start()
        undo.callback(self.delays.stop)
        undo.push_async_callback(self.halves.commit_progress)
        if self.timers is not None:
            self.timers.start(f"broker {self.settings.broker_name}")
            undo.push_async_callback(self.timers.stop)
        return TransactionCheckService(
            settings=self.settings,
            clock=self.clock,
            halves=self.halves,
            producers=self.producers,
            statistics=self.statistics,
            may_know=self._may_know,
        )

    def _make_slave(self) -> "Slave":
        from rocket_broker.replication.slave import Slave

        return Slave(self.settings, self.store, self.master, self.transport, self.clock)

    def _loops_of_slave(self, slave: "Slave") -> dict[str, Coroutine[Any, Any, None]]:
        from rocket_broker.replication.account_copy import AccountCopy
        from rocket_broker.replication.metadata import Metadata
        from rocket_broker.schedule.timer_checkpoint import TimerCheckpoint

        timers, has_timers = self.settings.timer_settings(), self.settings.timer_wheel_enable
        self.metadata = Metadata(
            self.settings,
            self.master,
            self.transport,
            store=self.store,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            delays=self.delays,
            timers=TimerCheckpoint(timers.checkpoint_path, self.store.file_system) if has_timers else None,
            accounts=AccountCopy(self.settings, self.directory, self.accounts),
        )
        self.store.arrival_listeners.append(self.metadata.messages_arrived)
        return {"copy of the log": slave.run(), "copy of the tables": self.metadata.run()}

    async def _serve_metrics(self, undo: AsyncExitStack) -> None:
        s = self.settings
        if s.serves_metrics:
            from rocket_broker.metrics.endpoint import MetricsEndpoint

            endpoint = MetricsEndpoint(self.metrics.scrape, s.metrics_prom_exporter_host, s.metrics_prom_exporter_port)
            await endpoint.start()
            undo.push_async_callback(endpoint.stop)
            self.metrics_endpoint = endpoint

    async def _register(self, undo: AsyncExitStack) -> None:
        port = parse_address(self.address)[1]
        tls = self.settings.client_tls()
        if tls is not None:
            try:
                client_context(tls)  # a file that cannot be used fails the start, and not each registration
            except TlsError as e:
                raise TlsUnusable(self.settings.namesrv_addr, e, "connect by") from e
        registration = Registration(
            self.settings,
            self.topics,
            transport=self.transport,
            address=self.address,
            ha_address=self._ha_address(port + 1),
            on_master=self.master.update,
        )
        undo.push_async_callback(registration.stop)
        await registration.start()
        for listener in (self._settings_updated, self.fast_failure.settings_updated):
            self.settings.on_update.append(listener)
            undo.callback(self.settings.on_update.remove, listener)

    def _address(self, port: int) -> str:
        return format_address((self.settings.advertised_host, port))

    def _ha_address(self, usual_port: int) -> str:
        port = self.slaves.port if self.slaves is not None else usual_port
        return format_address((self.settings.broker_ip2 or self.settings.advertised_host, port))

    # Events and loops while the broker runs

    def _connection_closed(self, connection: Connection) -> None:
        self.pull_request_hold.connection_closed(connection)
        self.consumers.connection_closed(connection)
        self.producers.connection_closed(connection)
        self.heartbeat_limits.connection_closed(connection)
        self.filter_compiler.connection_closed(connection)

    def _settings_updated(self, keys: Collection[str]) -> None:
        try:
            if "brokerPermission" in keys:
                self.topics.register_again()
            self.topics.follow_settings()
        except OSError as e:  # the settings have changed in memory all the same
            logger.error("could not write the topics after a change of the settings: %s", e)
        self.store.keep_files_as(self.settings.store_settings())

    async def _run_housekeeping(self) -> None:
        """Remove silent clients and expired locks, and sample the statistics, every `HOUSEKEEPING_SECONDS`."""
        while True:
            await run_in_steps("sampling the statistics", self.statistics.sample())
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            seconds = self.settings.channel_expired_timeout / 1000
            silent = [
                *await run_in_steps("removing consumers without heartbeat", self.consumers.remove_silent(seconds)),
                *await run_in_steps("removing producers without heartbeat", self.producers.remove_silent(seconds)),
            ]
            for connection in set(silent):
                connection.abort("no heartbeat")
            await run_in_steps("removing expired queue locks", self.locks.remove_expired())

    # Processors

    async def _build(self, store_host: Host) -> None:
        """Create the parts that need the broker's address, and fill the table of handlers."""
        s = self.settings
        levels = DelayLevels(s.message_delay_level)
        writer = MessageWriter(self.store, levels, self.clock, store_host)
        self.delays = DelayService(
            levels=levels,
            store=self.store,
            writer=writer,
            clock=self.clock,
            path=s.config_dir / "delayOffset.json",
            flush_interval_ms=s.flush_delay_offset_interval,
            statistics=self.statistics,
        )
        self.delays.load()
        if s.timer_wheel_enable and not s.is_slave:
            self.timers = TimerService(
                s.timer_settings(),
                store=self.store,
                writer=writer,
                clock=self.clock,
                statistics=self.statistics,
            )
            self.timers.load()
        self.halves = HalfMessages(
            store=self.store, writer=writer, topics=self.topics, offsets=self.offsets, clock=self.clock
        )
        if not s.is_slave:
            await self.halves.load()
        context = BrokerContext(
            settings=s,
            clock=self.clock,
            store=self.store,
            writer=writer,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            consumers=self.consumers,
            filter_compiler=self.filter_compiler,
            filters=self.filters,
            producers=self.producers,
            heartbeat_limits=self.heartbeat_limits,
            queue_locks=self.locks,
            pull_request_hold=self.pull_request_hold,
            delays=self.delays,
            timers=self.timers,
            halves=self.halves,
            slaves=self.slaves,
            slave=self.slave,
            statistics=self.statistics,
            fast_failure=self.fast_failure,
            access=self.access,
            audit=self.audit,
            accounts=self.accounts,
            directory=self.directory,
            address=self._address(store_host[1]),
        )
        self._context = context
        self.requests = RequestHandlers(context)
        check = self.access.check if self.access is not None else None
        table = slave_table(self.requests.table, s.broker_name) if s.is_slave else self.requests.table
        self._handlers.update(handlers_of(table, check, self.audit))
        self._send_runs = self.requests.send_runs
        if self.access is None:
            self._known_pulls = self.requests.known_pulls

    def _may_know(self, producer: ClientChannel, topic: str, group: str) -> bool:
        access = self.access
        return access is None or access.may_check(producer.connection, producer.access_key, topic, group)


def _users(settings: BrokerSettings, clock: Clock) -> "UserDirectory":
    from rocket_broker.access.user_directory import UserDirectory

    return UserDirectory(settings, clock)


def _policies(settings: BrokerSettings, directory: "UserDirectory") -> RequestCheck:
    from rocket_broker.access.policy_control import PolicyControl

    return PolicyControl(settings, directory)


def _slave_server(settings: BrokerSettings, store: MessageStore) -> "SlaveServer":
    from rocket_broker.replication.master import SlaveServer

    return SlaveServer(settings, store)


def _accounts(settings: BrokerSettings, clock: Clock) -> "AccessControl":
    from rocket_broker.access.access_control import AccessControl

    return AccessControl(settings.accounts_dir, clock, needs_scope=settings.require_signed_code)


def _save(what: str, save: Callable[[], None]) -> None:
    """Write a table at the stop. If the disk is full, log the error, so that the broker still stops in order."""
    try:
        save()
    except OSError as e:
        logger.error("could not write the %s; the next start uses what was written before: %s", what, e)


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _ip_of(host: str) -> str:
    """Return the host's IP address, since records in the commit log hold addresses and no names.

    Raises:
        AddressUnreachable: The name cannot be resolved.
    """
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None)
    except OSError as e:
        raise AddressUnreachable(host, e.strerror or str(e)) from e
    return str(found[0][4][0])
