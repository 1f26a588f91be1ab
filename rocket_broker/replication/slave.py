"""The slave's side of replication: copies the log of its master.

The slave learns its master's addresses when it registers with a name server. Before it copies, it compares its last
message with the master's message at the same offset: the protocol itself would append to any log of the same length.
"""

import asyncio
import errno
import logging
from collections.abc import Generator
from typing import cast

from rocket_broker.loop.step_line import run_slice
from rocket_broker.loop.watchdog import Watchdog
from rocket_broker.replication.bytes_a_second import BytesASecond
from rocket_broker.replication.frames import REPORT, SliceReader
from rocket_broker.replication.master_address import MasterAddress
from rocket_broker.settings.broker_settings import BrokerSettings
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

__all__ = ["Slave"]

logger = logging.getLogger(__name__)

FIRST_RETRY = 0.5
LONGEST_RETRY = 5.0
_READ_AHEAD = 256 * 1024
"""The largest number of bytes that are read in one turn of the loop."""


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
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: _Connection(self), *parse_address(address)
            )
        try:
            self._logged = ""
            self.connected_to = address
            logger.info("copying the log of the master at %s, from %d on", address, start)
            await connection.ended
        finally:
            await connection.close()

    def _check_disk(self) -> None:
        """Check that messages may be stored: reports would count as copies that no disk has."""
        if self._store.is_broken:
            raise OSError(errno.EIO, "the disk refused a flush, restart this broker on a disk that works")

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


class _Connection(asyncio.BufferedProtocol):
    """The connection to the master: stores what arrives, and reports up to where the log reaches.

    ::

        bytes ──► log ──► entries ──► report ──► more bytes
                            │ └ after 2 ms without an end: in the loop's next turns, nothing is read meanwhile
                            └ the disk is far behind: nothing is read until it has caught up

    Attributes:
        ended: Done when the connection has ended; it has the reason as its exception.
    """

    def __init__(self, slave: Slave) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._lost: asyncio.Future[None] = loop.create_future()
        self._slave = slave
        self._store = slave._store
        self._replica = slave._replica
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._slices = SliceReader()
        self._buffer = memoryview(bytearray(_READ_AHEAD))
        self._steps: Generator[None, None, None] | None = None
        self._flush: asyncio.Task[None] | None = None
        self._reported = -1
        self._reported_at = self._heard_at = loop.time()
        self._timer: asyncio.Handle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._report()
        self._beat()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.ended.done():
            return
        slave = self._slave
        self._heard_at = self._loop.time()
        slave.read_ms = slave._clock.now_ms()
        slave.copied.add(nbytes)
        try:
            for offset, part in self._slices.feed(self._buffer[:nbytes]):
                slave._check_disk()
                self._replica.write(offset, part)
        except (LogMismatch, StoreFull, OSError) as e:
            self._end(e)
        else:
            self._steps = self._replica.dispatch()
            self._advance()

    def _advance(self) -> None:
        """Make entries for 2 ms, report if all are made, and go on in the next turn if not."""
        steps = self._steps
        if steps is None or self.ended.done():
            return
        try:
            with Watchdog("storing messages of the master"):
                run_slice(steps)
        except StopIteration:
            self._steps = None
        except (LogMismatch, StoreFull, OSError) as e:
            self._end(e)
            return
        if self._steps is not None:
            self._pause()
            self._loop.call_soon(self._advance)
            return
        if self._replica.end > self._reported:
            self._report()
        if self._store.unflushed_bytes > self._store.settings.max_unflushed_bytes // 2:
            self._pause()
            self._flush = self._loop.create_task(self._wait_for_disk())
        else:
            self._resume()

    async def _wait_for_disk(self) -> None:
        """Read on when the disk has caught up: the operating system would stop the whole broker to write."""
        await self._store.flush_to(self._store.committed_end)
        self._resume()

    def _pause(self) -> None:
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def _resume(self) -> None:
        self._heard_at = self._loop.time()
        if self._transport is not None and not self.ended.done() and not self._transport.is_reading():
            self._transport.resume_reading()

    def _report(self) -> None:
        """Report up to where the log reaches."""
        if self._transport is not None:
            self._reported = self._replica.end
            self._reported_at = self._loop.time()
            self._slave.reported_ms = self._slave._clock.now_ms()
            self._transport.write(REPORT.pack(self._reported))

    def _beat(self) -> None:
        """Report if that was not done for a while, and end the connection to a silent master."""
        settings, now = self._slave._settings, self._loop.time()
        silence = settings.ha_housekeeping_interval / 1000
        interval = settings.ha_send_heartbeat_interval / 1000
        is_reading = self._transport is not None and self._transport.is_reading()
        if is_reading and now >= self._heard_at + silence:
            self._end(TimeoutError(f"it has sent nothing for {settings.ha_housekeeping_interval} ms"))
            return
        if now >= self._reported_at + interval:
            self._report()
        silent_at = self._heard_at + silence if is_reading else now + silence
        due = min(self._reported_at + interval, silent_at)
        self._timer = self._loop.call_at(due, self._beat)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc if exc is not None else EOFError("it has closed the connection"))
        if self._timer is not None:
            self._timer.cancel()
        self._lost.set_result(None)

    def _end(self, reason: Exception) -> None:
        if not self.ended.done():
            self.ended.set_exception(reason)
            if self._transport is not None:
                self._transport.abort()

    async def close(self) -> None:
        """Close the connection."""
        if self._flush is not None:
            self._flush.cancel()
            await asyncio.wait([self._flush])
        if not self.ended.done():
            self.ended.cancel()
        if self._transport is not None:
            self._transport.abort()
            await self._lost
