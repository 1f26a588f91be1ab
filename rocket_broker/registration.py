"""Registration of the broker with every name server.

Name servers do not talk to each other, so the broker registers with each over a connection of its own: at the
start; every 30 seconds; at once when a topic changes; and at once when a lost connection is made again, since a
restarted name server has lost its routes. A name server that is down delays neither the broker nor the registration
with the others.

Between these, a change registers only the topics that have changed since the version that the name server confirmed
over the present connection, as Apache's brokers do: all topics would cost time for each of thousands. Name servers with
``deleteTopicWithBrokerRegistration`` forget topics that a registration does not list, so they always get all.
"""

import asyncio
import logging
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

import msgspec

from rocket_broker.loop.loop_steps import collected, run_in_steps
from rocket_broker.perm import READ, WRITE
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.tables.topic_table import TopicTable, table_body
from rocket_remoting.session.connection import Connection
from rocket_remoting.transports.transport import Transport
from rocket_remoting.wire.bodies import (
    DataVersion,
    KVTable,
    LongBody,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    decode_body,
    encode_body,
    encode_in_pieces,
    register_broker_blocks,
)
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import RemotingError, ResponseError
from rocket_remoting.wire.headers import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from rocket_remoting.wire.record import body_crc32

__all__ = ["Registration"]

logger = logging.getLogger(__name__)

SHORTEST_PERIOD_MS = 10_000
LONGEST_PERIOD_MS = 60_000
UNREGISTER_TIMEOUT = 3.0
_SLACK = 0.001
"""Seconds by which a timer may be early."""
FIRST_RETRY = 0.5
LARGE_BODY = 64 * 1024
MOST_PLAIN = 8 * 1024 * 1024
"""A longer body (bytes) is compressed, whatever the settings say: name servers read no frame above 16 MiB."""
BYTES_PER_SECOND = 16 * 1024 * 1024
LONGEST_PAUSE = 1.0
"""The rate of registrations in bytes a second, and the longest pause in seconds after one. The registration of
thousands of topics costs the broker and the name server time, so after a body above `LARGE_BODY` bytes the next
registration waits, even if topics change meanwhile."""


_FORGETS = "deletetopicwithbrokerregistration=true"

STEP = "encoding the topics for the name servers"


class RegistrationBody(NamedTuple):
    """A broker's topics in the form in which they are registered.

    Attributes:
        data: The bytes to send.
        compressed: Whether `data` is compressed.
        crc32: Checksum of `data`.
        size: Number of bytes before compression.
    """

    data: bytes
    compressed: bool
    crc32: int
    size: int


class Registration:
    """The broker's registration with the name servers in ``namesrvAddr``.

    Args:
        settings: The broker's name, cluster, id and name servers.
        topics: The topics to register; each change is registered at once.
        transport: Makes the connections.
        address: The broker's address for clients.
        ha_address: The broker's address for slaves.
        on_master: Called with each answer's address of the master, and its address for slaves, if the broker is a
            slave.

    Attributes:
        pause: Seconds to wait after a registration, by the size of its body; 0 for a small body.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicTable,
        *,
        transport: Transport,
        address: str,
        ha_address: str,
        on_master: Callable[[str | None, str | None], None] = lambda clients, slaves: None,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._transport = transport
        self._address = address
        self._ha_address = ha_address
        self._on_master = on_master
        self._links = [_Link(self, name_server) for name_server in settings.name_servers]
        self._tasks: list[asyncio.Task[None]] = []
        self._writing = asyncio.Lock()
        self._written: tuple[tuple[DataVersion, int, bool], RegistrationBody] | None = None
        self.pause = 0.0

    async def start(self) -> None:
        """Register with every name server; return when each has answered or failed."""
        self._topics.on_change.append(self.register_now)
        self._topics.until_announced = self.until_registered
        self._tasks = [
            asyncio.create_task(link.run(), name=f"registration with {link.name_server}") for link in self._links
        ]
        await asyncio.gather(*(link.tried.wait() for link in self._links))

    async def stop(self) -> None:
        """Unregister over each open connection, and close the connections."""
        self._topics.on_change.remove(self.register_now)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        for link in self._links:
            link.release_waiters()
        await asyncio.gather(*(link.unregister() for link in self._links))

    def register_now(self) -> None:
        """Schedule a registration of the current topics at every name server."""
        for link in self._links:
            link.wake.set()

    async def until_registered(self) -> None:
        """Return when each name server has the present topics, has failed, or takes too long."""
        waiting = [link.next_attempt() for link in self._links if self._tasks]
        if waiting:
            await asyncio.wait(waiting, timeout=self._timeout)

    async def body(self) -> tuple[RegistrationBody, DataVersion]:
        """Return all topics in the form in which they are registered, and their version.

        The body is encoded in steps, and only once for all name servers.
        """
        s = self._settings
        key = (self._topics.data_version, s.broker_permission, s.compressed_register)
        async with self._writing:
            if self._written is None or self._written[0] != key:
                self._written = key, await self._write(list(self._topics.configs().values()), *key)
            body = self._written[1]
        self.pause = min(LONGEST_PAUSE, body.size / BYTES_PER_SECOND) if body.size > LARGE_BODY else 0.0
        return body, key[0]

    async def _write(
        self, configs: list[TopicConfig], version: DataVersion, permission: int, compressed: bool
    ) -> RegistrationBody:
        if permission & (READ | WRITE) != READ | WRITE:
            await run_in_steps(STEP, _restrict(configs, permission))
        if not compressed:
            pieces = await run_in_steps(STEP, collected(_plain(version, configs)))
            size = sum(map(len, pieces))
            if size <= LARGE_BODY:
                return _joined(pieces)
            if size <= MOST_PLAIN:
                return await asyncio.to_thread(_joined, pieces)
        blocks = await run_in_steps(STEP, collected(register_broker_blocks(version, configs)))
        return await asyncio.to_thread(_compressed, blocks)

    async def register(self, connection: Connection) -> tuple[KVTable | None, DataVersion]:
        """Register over the connection.

        Without ``forceRegister``, a name server that already has the present version of the topics is not sent them.

        Returns:
            The name server's ordered topics, None if there are none; and the version of the topics that it has now.

        Raises:
            ResponseError: The name server refused.
            RemotingError: The connection failed or the name server did not answer in time.
        """
        s, present = self._settings, self._topics.data_version
        # A slave registers in any case: the answer names its master.
        if not s.force_register and not s.is_slave and not await self._is_outdated(connection):
            return None, present
        body, version = await self.body()
        return await self._send(connection, body), version

    async def register_changes(
        self, connection: Connection, after: DataVersion
    ) -> tuple[KVTable | None, DataVersion] | None:
        """Register the topics that have changed after a version that the name server has.

        Returns:
            As `register` does; None if all topics must be registered instead.

        Raises:
            ResponseError: The name server refused.
            RemotingError: The connection failed or the name server did not answer in time.
        """
        version = self._topics.data_version
        configs = self._topics.changed_since(after)
        if configs is None or 2 * len(configs) > len(self._topics):
            return None
        self.pause = 0.0
        if not configs:
            return None, version
        s = self._settings
        body = await self._write(configs, version, s.broker_permission, s.compressed_register)
        return await self._send(connection, body), version

    async def _send(self, connection: Connection, body: RegistrationBody) -> KVTable | None:
        s = self._settings
        header = RegisterBrokerRequestHeader(
            cluster_name=s.broker_cluster_name,
            broker_name=s.broker_name,
            broker_id=s.broker_id,
            broker_addr=self._address,
            ha_server_addr=self._ha_address,
            compressed=body.compressed,
            body_crc32=body.crc32,
        )
        answer = await connection.invoke(RequestCode.REGISTER_BROKER, header, body.data, timeout=self._timeout)
        _check(answer, connection, RequestCode.REGISTER_BROKER)
        master = answer.header(RegisterBrokerResponseHeader)
        self._on_master(master.master_addr, master.ha_server_addr)
        return decode_body(answer.body, KVTable) if answer.body else None

    async def forgets_missing_topics(self, connection: Connection) -> bool:
        """Ask the name server whether it forgets topics that a registration does not list; True if it does not say."""
        try:
            answer = await connection.invoke(RequestCode.GET_NAMESRV_CONFIG, timeout=self._timeout)
        except RemotingError:
            return True
        if answer.code != ResponseCode.SUCCESS:
            return True
        settings = bytes(answer.body).decode(errors="replace").lower().splitlines()
        return any(line.replace(" ", "") == _FORGETS for line in settings)

    async def unregister(self, connection: Connection) -> None:
        """Unregister the broker at the name server."""
        s = self._settings
        header = UnRegisterBrokerRequestHeader(
            cluster_name=s.broker_cluster_name,
            broker_name=s.broker_name,
            broker_id=s.broker_id,
            broker_addr=self._address,
        )
        await connection.invoke(RequestCode.UNREGISTER_BROKER, header, timeout=UNREGISTER_TIMEOUT)

    async def _is_outdated(self, connection: Connection) -> bool:
        s = self._settings
        header = QueryDataVersionRequestHeader(
            cluster_name=s.broker_cluster_name,
            broker_name=s.broker_name,
            broker_id=s.broker_id,
            broker_addr=self._address,
        )
        body = encode_body(self._topics.data_version)
        answer = await connection.invoke(RequestCode.QUERY_DATA_VERSION, header, body, timeout=self._timeout)
        _check(answer, connection, RequestCode.QUERY_DATA_VERSION)
        known = decode_body(answer.body, DataVersion) if answer.body else None
        return answer.header(QueryDataVersionResponseHeader).changed or known != self._topics.data_version

    @property
    def _timeout(self) -> float:
        """Seconds to wait for a name server's answer."""
        return self._settings.register_broker_timeout_mills / 1000

    @property
    def period(self) -> float:
        """Seconds between registrations."""
        period = self._settings.register_name_server_period
        return max(SHORTEST_PERIOD_MS, min(period, LONGEST_PERIOD_MS)) / 1000

    async def connect(self, name_server: str) -> Connection:
        """Return a new connection to the name server."""
        timeout = self._settings.connect_timeout_millis / 1000
        connection = await self._transport.connect(name_server, timeout=timeout, tls=self._settings.client_tls())
        connection.sign_with(self._settings.credentials)
        return connection

    def take_ordered_topics(self, name_server: str, ordered: KVTable | None) -> None:
        """Take over which topics are ordered, from the first name server only: the others must not contradict it."""
        if name_server == self._links[0].name_server:
            self._topics.mark_ordered(ordered)


class _Link:
    """The connection to one name server."""

    def __init__(self, registration: Registration, name_server: str) -> None:
        self.name_server = name_server
        self.wake = asyncio.Event()
        self.tried = asyncio.Event()
        self._registration = registration
        self._connection: Connection | None = None
        self._registered: bool | None = None
        # The version of the topics that the name server confirmed over the present connection; when it got all of
        # them; and whether it forgets topics that a registration does not list.
        self._confirmed: DataVersion | None = None
        self._all_at = 0.0
        self._forgets = True
        # Those that wait for the end of an attempt that has not begun yet: an attempt under way may have read the
        # topics before they changed.
        self._waiting: list[asyncio.Future[None]] = []

    def next_attempt(self) -> asyncio.Future[None]:
        """Return a future that is done when the next attempt to register has ended, with or without success."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(ended)
        self.wake.set()
        return ended

    def release_waiters(self) -> None:
        """End the waits for attempts: there will be none."""
        _finish(self._waiting)

    async def run(self) -> None:
        """Register periodically until cancelled; after a failure retry with doubled waits."""
        retry = FIRST_RETRY
        while True:
            self.wake.clear()
            waiting, self._waiting = self._waiting, []
            try:
                await self._register()
                wait = max(0.0, self._all_at + self._registration.period - asyncio.get_running_loop().time())
                retry = FIRST_RETRY
                self._log_state(True, "")
            except (RemotingError, OSError) as e:
                wait = retry
                retry = min(retry * 2, self._registration.period)
                self._log_state(False, str(e))
            finally:
                _finish(waiting)
            self.tried.set()
            await asyncio.sleep(self._registration.pause)
            await self._sleep(wait)

    async def unregister(self) -> None:
        """Unregister, so that routes lose the broker at once, and close the connection."""
        connection, self._connection = self._connection, None
        if connection is None or connection.is_closed:
            return
        try:
            await self._registration.unregister(connection)
        except RemotingError as e:
            logger.warning("could not unregister from name server %s: %s", self.name_server, e)
        await connection.close()

    async def _register(self) -> None:
        if self._connection is None or self._connection.is_closed:
            self._confirmed = None
            self._connection = await self._registration.connect(self.name_server)
            self._connection.add_close_callback(lambda _: self.wake.set())
        done = await self._register_changes(self._connection)
        if done is None:
            done = await self._registration.register(self._connection)
            self._all_at = asyncio.get_running_loop().time()
            # Asked each time, because its settings may change; and now, because the next change should not wait for it.
            self._forgets = await self._registration.forgets_missing_topics(self._connection)
        ordered, self._confirmed = done
        self._registration.take_ordered_topics(self.name_server, ordered)

    async def _register_changes(self, connection: Connection) -> tuple[KVTable | None, DataVersion] | None:
        """Register the changed topics; return None if all topics must be registered instead."""
        elapsed = asyncio.get_running_loop().time() - self._all_at
        if self._confirmed is None or self._forgets or elapsed > self._registration.period - _SLACK:
            return None
        return await self._registration.register_changes(connection, self._confirmed)

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.wake.wait()
        except TimeoutError:
            pass

    def _log_state(self, registered: bool, problem: str) -> None:
        """Log changes of the state only: a name server that stays down is logged once."""
        if registered is not self._registered:
            self._registered = registered
            if registered:
                logger.info("registered with name server %s", self.name_server)
            else:
                logger.warning("could not register with name server %s, trying again: %s", self.name_server, problem)


def _finish(waiting: list[asyncio.Future[None]]) -> None:
    for each in waiting:
        if not each.done():
            each.set_result(None)


def _check(answer: RemotingCommand, connection: Connection, code: RequestCode) -> None:
    if answer.code != ResponseCode.SUCCESS:
        raise ResponseError(answer.code, answer.remark, address=connection.remote_address, request_code=code)


def _restrict(configs: list[TopicConfig], permission: int) -> Generator[None, None, None]:
    """Replace each topic's permission by the broker's own."""
    for index, config in enumerate(configs):
        configs[index] = msgspec.structs.replace(config, perm=permission)
        yield


def _plain(version: DataVersion, configs: list[TopicConfig]) -> Iterator[bytes]:
    empty = TopicConfigSerializeWrapper(topic_config_table={}, data_version=version)
    body = RegisterBrokerBody(topic_config_serialize_wrapper=empty, filter_server_list=[])
    return encode_in_pieces(LongBody(body, topic_config_serialize_wrapper=table_body(version, configs)))


def _joined(pieces: list[bytes]) -> RegistrationBody:
    data = b"".join(pieces)
    return RegistrationBody(data, False, body_crc32(data), len(data))


def _compressed(blocks: list[bytes]) -> RegistrationBody:
    compressor = zlib.compressobj()
    data = b"".join([*map(compressor.compress, blocks), compressor.flush()])
    return RegistrationBody(data, True, body_crc32(data), sum(map(len, blocks)))
