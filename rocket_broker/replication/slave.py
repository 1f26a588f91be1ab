"""The slave's side of replication: copies the log of its master.

The slave learns its master's addresses when it registers with a name server. Before it copies, it compares its last
message with the master's message at the same offset: the protocol itself would append to any log of the same length.
"""

import asyncio
import errno
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from rocket_broker.loop.loop_steps import run_in_steps
from rocket_broker.replication.bytes_a_second import BytesASecond
from rocket_broker.replication.frames import REPORT, SLICE_HEADER
from rocket_broker.settings.broker_settings import MOST_TRANSFERRED, BrokerSettings
from rocket_broker.store.errors import LogMismatch, StoreFull
from rocket_broker.store.message_store import MessageStore
from rocket_broker.store.replica import Replica
from rocket_remoting.clock import Clock
from rocket_remoting.session.address import parse_address
from rocket_remoting.transports.transport import Transport
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.headers import ViewMessageRequestHeader
from rocket_remoting.wire.record import peek_record

__all__ = ["MasterAddress", "Slave"]

logger = logging.getLogger(__name__)

FIRST_RETRY = 0.5
LONGEST_RETRY = 5.0
_READ_AHEAD = 1024 * 1024


class MasterAddress:
    """The addresses of the master, as name servers tell them to the slave.

    Attributes:
        clients: The master's address for clients; empty while it is not known.
        slaves: The master's address for slaves.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self.clients = ""
        self.slaves = settings.ha_master_address
        self._fixed = bool(settings.ha_master_address)
        self._known = asyncio.Event()

    def told(self, clients: str | None, slaves: str | None) -> None:
        """Take over what a name server has told; it tells nothing while the master is not registered."""
        if not clients or not (slaves or self._fixed):
            return
        if not self._fixed and slaves:
            self.slaves = slaves
        if clients != self.clients:
            logger.info("the master is at %s, and accepts slaves at %s", clients, self.slaves)
        self.clients = clients
        self._known.set()

    async def known(self) -> None:
        """Return as soon as the addresses are known."""
        await self._known.wait()


class Slave:
    """Copies the master's log into the store.

    Args:
        settings: The broker's settings.
        store: The broker's store, which is a replica.
        master: The master's addresses.
        transport: Connects to the master as a client.
        clock: Wall-clock time, for tools.

    Attributes:
        connected_to: The master's address for slaves while the log is copied; empty otherwise.
        copied: Counts the bytes that were copied.
        read_ms: The time of the last bytes from the master, in milliseconds since 1970.
        reported_ms: The time of the last report to the master, in milliseconds since 1970.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        master: MasterAddress,
        transport: Transport,
        clock: Clock,
    ) -> None:
        assert store.replica is not None, "the store of a slave is a replica"
        self.connected_to = ""
        self.copied = BytesASecond()
        self.read_ms = self.reported_ms = 0
        self._clock = clock
        self._settings = settings
        self._store = store
        self._replica: Replica = store.replica
        self._master = master
        self._transport = transport
        self._logged = ""

    async def run(self) -> None:
        """Copy the log until cancelled; connect again after a failure, with doubled waits."""
        retry = FIRST_RETRY
        while True:
            await self._master.known()
            before = self._replica.end
            try:
                await self._copy()
            except LogMismatch as e:
                self._log(logging.ERROR, f"{e}. Remove the store of this slave, so that it copies the log anew")
            except (StoreFull, OSError, EOFError, RemotingError) as e:
                self._log(logging.WARNING, f"the log of the master at {self._master.slaves} is not copied now: {e}")
            finally:
                self.connected_to = ""
            if self._replica.end > before:
                retry = FIRST_RETRY
            await asyncio.sleep(retry)
            retry = min(2 * retry, LONGEST_RETRY)

    async def _copy(self) -> None:
        """Connect to the master, and copy its log until the connection ends.

        Raises:
            LogMismatch: This log is not a part of the master's.
            StoreFull: The disk is full.
            OSError: The connection failed, or the disk refused.
            EOFError: The master closed the connection.
            RemotingError: The master could not be asked for its message.
        """
        address = self._master.slaves
        self._check_disk()
        start = self._replica.begin()
        await self._compare()
        async with asyncio.timeout(self._settings.connect_timeout_millis / 1000):
            reader, writer = await asyncio.open_connection(*parse_address(address), limit=_READ_AHEAD)
        reports = _Reports(self._settings.ha_send_heartbeat_interval / 1000, partial(self._report, writer))
        try:
            reports.send()
            self._logged = ""
            self.connected_to = address
            logger.info("copying the log of the master at %s, from %d on", address, start)
            while True:
                await self._read_slice(reader)
                if self._replica.end > reports.last:
                    reports.send()
        finally:
            reports.stop()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _report(self, writer: asyncio.StreamWriter) -> int:
        writer.write(REPORT.pack(self._replica.end))
        self.reported_ms = self._clock.now_ms()
        return self._replica.end

    async def _read_slice(self, reader: asyncio.StreamReader) -> None:
        """Read a slice or a heartbeat, and store what it brings."""
        offset, size = SLICE_HEADER.unpack(await self._read(reader, SLICE_HEADER.size))
        if not 0 <= size <= MOST_TRANSFERRED:
            raise LogMismatch(offset, f"a slice of {size} bytes was announced")
        self.read_ms = self._clock.now_ms()
        if not size:
            return
        self.copied.add(size)
        self._check_disk()
        self._replica.write(offset, memoryview(await self._read(reader, size)))
        await run_in_steps("storing messages of the master", self._replica.dispatch())
        # A master is faster than a slow disk: the operating system would stop the whole broker to write.
        if self._store.unflushed_bytes > self._store.settings.max_unflushed_bytes // 2:
            await self._store.flush_to(self._store.committed_end)

    def _check_disk(self) -> None:
        """Check that messages may be stored: reports would count as copies that no disk has."""
        if self._store.is_broken:
            raise OSError(errno.EIO, "the disk refused a flush, restart this broker on a disk that works")

    async def _read(self, reader: asyncio.StreamReader, size: int) -> bytes:
        async with asyncio.timeout(self._settings.ha_housekeeping_interval / 1000):
            return await reader.readexactly(size)

    async def _compare(self) -> None:
        """Compare the last message of this log with the master's message at its offset.

        Raises:
            LogMismatch: The master has another message there, or none.
            RemotingError: The master did not answer.
        """
        record = self._store.last_message()
        if record is None:
            return
        offset = peek_record(record).commit_log_offset
        timeout = self._settings.connect_timeout_millis / 1000
        connection = await self._transport.connect(
            self._master.clients, timeout=timeout, tls=self._settings.client_tls()
        )
        try:
            connection.sign_with(self._settings.credentials)
            header = ViewMessageRequestHeader(topic=peek_record(record).topic, offset=offset)
            answer = await connection.invoke(RequestCode.VIEW_MESSAGE_BY_ID, header, timeout=timeout)
        finally:
            await connection.close()
        if answer.code != ResponseCode.SUCCESS:
            raise LogMismatch(offset, f"the master does not show its message there: {answer.remark}")
        if bytes(answer.body) != bytes(record):
            raise LogMismatch(offset, "the master has another message there, so this is not a copy of its log")

    def _log(self, level: int, problem: str) -> None:
        """Log changes of the state only: a master that stays away is logged once."""
        if problem != self._logged:
            self._logged = problem
            logger.log(level, "%s", problem)


class _Reports:
    """Reports to the master up to where the log reaches, and again if there was no report for an interval.

    Attributes:
        last: The offset of the last report.
    """

    def __init__(self, interval: float, report: Callable[[], int]) -> None:
        self.last = -1
        self._report = report
        self._interval = interval
        self._timer: asyncio.TimerHandle | None = None

    def send(self) -> None:
        """Report now."""
        self.stop()
        self.last = self._report()
        self._timer = asyncio.get_running_loop().call_later(self._interval, self.send)

    def stop(self) -> None:
        """Report no more."""
        if self._timer is not None:
            self._timer.cancel()
