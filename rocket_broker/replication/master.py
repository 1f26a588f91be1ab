"""The master's side of replication: accepts slaves, and sends each the commit log from where it asks for it.

Nothing is queued for a slave: `BYTES_A_TURN` of the log are read when the slave's socket has taken those before. So a
slave that is slow, stopped or far behind costs the master so much memory, and clients are served in between. What was
stored last is in the page cache, and is read in the loop; what a slave that is farther behind needs may have to be read
from the disk, so a thread reads it.

The protocol has no accounts: whoever may connect reads the log, so `haAllowedSlaves` says who may. What a slave reports
is not believed blindly, since senders are answered by it: a slave whose log is not a part of this one, and one that
reports bytes it was not sent, is refused.
"""

import asyncio
import errno
import logging
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from rocket_broker.errors import AddressInUse, CannotListen
from rocket_broker.loop.watchdog import Watchdog
from rocket_broker.replication.acknowledged import AcknowledgedOffset
from rocket_broker.replication.bytes_a_second import BytesASecond
from rocket_broker.replication.frames import ReportReader, heartbeat, slice_frames
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.store.message_store import MessageStore
from rocket_broker.store.messages import PutStatus
from rocket_remoting.session.address import format_address, log_peer

__all__ = ["BYTES_A_TURN", "MOST_SLAVES", "MOST_SLAVES_OF_ADDRESS", "SlaveServer"]

logger = logging.getLogger(__name__)

BYTES_A_TURN = 256 * 1024
"""Maximum number of bytes of the log that one slave is sent in one turn of the loop."""

NEAR_BYTES = 4 * 1024 * 1024
"""A slave at most this many bytes behind is sent bytes that were stored just now: the loop reads them, from the page
cache. For a slave that is farther behind a thread reads them, perhaps from the disk."""

MOST_SLAVES = 16
"""Maximum number of connections of slaves. Each may make the master read the whole log."""

MOST_SLAVES_OF_ADDRESS = MOST_SLAVES // 4
"""Maximum number of connections of slaves from one address, so that no machine keeps the slaves of others away."""

_MOST_READS = 2
"""Number of reads of the log at the same time: more would not make a disk faster."""

_SECONDS_BETWEEN_WARNINGS = 1.0


class SlaveServer:
    """Accepts the slaves of one master.

    Attributes:
        acknowledged: The offset that slaves have reported.
        port: The port that it listens on; 0 before `start`.
    """

    def __init__(self, settings: BrokerSettings, store: MessageStore) -> None:
        self.acknowledged = AcknowledgedOffset(settings)
        self.port = 0
        self._settings = settings
        self._allowed = settings.allowed_slaves
        self._store = store
        self._slaves: dict[_Slave, None] = {}
        self._server: asyncio.Server | None = None
        self._is_woken = False
        self._next_warning_at = 0.0
        self._threads: ThreadPoolExecutor | None = None
        self._reads: set[asyncio.Future[bytes]] = set()

    async def start(self, host: str, port: int) -> None:
        """Listen at the address; port 0 takes any free port.

        Raises:
            AddressInUse: Another process listens there.
            CannotListen: The address is not this machine's, or needs privileges.
        """
        try:
            self._server = await asyncio.get_running_loop().create_server(lambda: _Slave(self), host, port)
        except OSError as e:
            address = f"{host}:{port}"
            if e.errno == errno.EADDRINUSE:
                raise AddressInUse(address, "haListenPort") from e
            raise CannotListen(address, e) from e
        self.port = self._server.sockets[0].getsockname()[1]
        logger.info("slaves are accepted at %s", format_address((host, self.port)))

    async def stop(self) -> None:
        """Stop listening, and close the connections of all slaves."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for slave in list(self._slaves):
                slave.close()
            await server.wait_closed()
            await asyncio.sleep(0)  # the connections' sockets are closed in the loop's next turn
        if self._reads:
            await asyncio.wait(self._reads)
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None

    @property
    def slaves(self) -> Sequence["_Slave"]:
        """The slaves that are connected and follow the log."""
        return [slave for slave in self._slaves if slave.requested is not None]

    def messages_arrived(
        self, topic: str, queue_id: int, queue_offset: int, tags_codes: Sequence[int], store_timestamp: int
    ) -> None:
        """Send slaves what is new, in the loop's next turn; the store's arrival listener while slaves follow."""
        self._wake()

    def replicate(self, end: int) -> Awaitable[PutStatus]:
        """Begin to wait until a slave has the log up to `end` (`AcknowledgedOffset.wait_for`)."""
        self._wake()
        return self.acknowledged.wait_for(end)

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._send_new)

    def _send_new(self) -> None:
        self._is_woken = False
        for slave in list(self._slaves):
            slave.send()

    def read(self, offset: int) -> "asyncio.Future[bytes] | None":
        """Begin to read the log from an offset on, in a thread; return None if the log has nothing there.

        The future has the bytes, or an `OSError`.
        """
        part = self._store.log_part(offset, BYTES_A_TURN)
        if part is None:
            return None
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_MOST_READS, "slave-reads")
        read = asyncio.get_running_loop().run_in_executor(self._threads, part)
        self._reads.add(read)
        read.add_done_callback(self._reads.discard)
        return read

    # Events of slaves

    def connected(self, slave: "_Slave") -> bool:
        """Return whether a new connection is kept."""
        if self._allowed is not None and not self._allowed.have(slave.host):
            self._warn_of_refusal("haAllowedSlaves does not have its address", slave.address)
            return False
        of_address = [other for other in self._slaves if other.host == slave.host]
        for slaves, most in ((of_address, MOST_SLAVES_OF_ADDRESS), (list(self._slaves), MOST_SLAVES)):
            if len(slaves) < most:
                continue
            # Connections that report nothing must not keep slaves away.
            silent = next((other for other in slaves if other.requested is None), None)
            if silent is None:
                self._warn_of_refusal(
                    f"{len(slaves)} are connected{' from there' if slaves is of_address else ''}, which is the limit",
                    slave.address,
                )
                return False
            self._slaves.pop(silent)
            silent.close()
        if self._server is None:
            return False
        self._slaves[slave] = None
        return True

    def _warn_of_refusal(self, reason: str, address: str) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._next_warning_at:  # a flood of connections must not flood the log
            self._next_warning_at = now + _SECONDS_BETWEEN_WARNINGS
            logger.warning("refusing the slave %s and further ones: %s", address, reason, extra=log_peer(address))

    def follows(self, slave: "_Slave") -> None:
        """Count a slave whose first report was accepted."""
        self.acknowledged.slaves += 1
        if self.acknowledged.slaves == 1:
            self._store.arrival_listeners.append(self.messages_arrived)

    def disconnected(self, slave: "_Slave") -> None:
        """Forget a slave."""
        self._slaves.pop(slave, None)
        if slave.requested is not None:
            self.acknowledged.slaves -= 1
            if not self.acknowledged.slaves:
                self._store.arrival_listeners.remove(self.messages_arrived)


class _Slave(asyncio.Protocol):
    """One connection of a slave.

    Attributes:
        address: The slave's address, ``host:port``.
        host: The host in it.
        requested: The offset from which the log is sent; None before the first report.
        sent: The offset up to which it was sent.
        reported: The offset up to which the slave has it, by its last report.
        written: Counts the bytes that were sent.
        is_paused: Whether the slave has not read what was sent, so that nothing more is sent now.
    """

    def __init__(self, server: SlaveServer) -> None:
        self.address = self.host = ""
        self.requested: int | None = None
        self.sent = 0
        self.reported = 0
        self._server = server
        self._store = server._store
        self._settings = server._settings
        self._reports = ReportReader()
        self._transport: asyncio.Transport | None = None
        self.is_paused = False
        self.written = BytesASecond()
        self._is_scheduled = False
        self._is_reading = False
        self._heard_at = self._wrote_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")[:2]
        self.address, self.host = format_address(peer), peer[0]
        self._transport = cast(asyncio.Transport, transport)
        # Sending pauses as soon as the socket does not take all of a slice.
        self._transport.set_write_buffer_limits(high=0)
        self._heard_at = self._wrote_at = asyncio.get_running_loop().time()
        if not self._server.connected(self):
            self._transport.abort()
            self._transport = None
            return
        self._beat()

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        self._heard_at = asyncio.get_running_loop().time()
        reports = self._reports.feed(data)
        # Of many reports only the extremes are looked at: a flood of them must not keep clients waiting.
        if reports and all(map(self._take, (reports[0], min(reports), max(reports)))):
            self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.requested is not None:
            logger.warning(
                "slave %s is gone, it had the log up to %d of %d%s",
                self.address, self.reported, self._store.committed_end, f": {exc}" if exc is not None else "",
                extra=log_peer(self.address),
            )  # fmt: skip
        self._transport = None
        self._server.disconnected(self)

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False
        self.send()

    def close(self) -> None:
        """Close the connection; bytes that the slave has not read are dropped."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def send(self) -> None:
        """Send what the log has behind `sent`, as far as the socket takes it, and continue in later turns."""
        if self.requested is None or self._is_scheduled or self._is_reading or not self._may_send:
            return
        if self._store.committed_end - self.sent > NEAR_BYTES:
            self._read()
            return
        with Watchdog("sending the commit log to a slave"):
            data = self._store.log_slice(self.sent, BYTES_A_TURN)
            if data is not None:
                self._write_log(data)
        if data is None:
            self._refuse_deleted()
        elif self.sent < self._store.committed_end:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._continue)

    def _read(self) -> None:
        """Read what the log has behind `sent` in a thread, and send it then."""
        read = self._server.read(self.sent)
        if read is None:
            self._refuse_deleted()
        else:
            self._is_reading = True
            read.add_done_callback(self._was_read)

    def _was_read(self, read: "asyncio.Future[bytes]") -> None:
        self._is_reading = False
        error = read.exception()
        if self._transport is None:
            return
        if isinstance(error, FileNotFoundError):
            self._refuse_deleted()
        elif error is not None:
            self._refuse(f"the log from {self.sent} on cannot be read: {error}")
        else:
            with Watchdog("sending the commit log to a slave"):
                self._write_log(memoryview(read.result()))
            self.send()

    def _write_log(self, data: memoryview) -> None:
        self._write(slice_frames(self.sent, data, self._settings.ha_transfer_batch_size))
        self.sent += len(data)

    def _refuse_deleted(self) -> None:
        """Refuse a slave that needs a file that has been deleted; a slave that has all is sent nothing."""
        if self.sent < self._store.committed_end:
            self._refuse(f"the log from {self.sent} on has been deleted")

    @property
    def buffered_bytes(self) -> int:
        """Bytes that wait until the slave reads."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    @property
    def _may_send(self) -> bool:
        return self._transport is not None and not self.is_paused and not self._transport.is_closing()

    def _write(self, frame: bytes) -> None:
        if self._transport is not None:
            self._transport.write(frame)
            self.written.add(len(frame))
            self._wrote_at = asyncio.get_running_loop().time()

    def _continue(self) -> None:
        self._is_scheduled = False
        self.send()

    def _take(self, offset: int) -> bool:
        """Take note of a report; return False if it is refused, and the connection closed."""
        if self.requested is None:
            return self._begin(offset)
        if not 0 <= offset <= self.sent:
            return self._refuse(f"it reports the log up to {offset}, and was sent it up to {self.sent}")
        if offset > self.reported:
            self.reported = offset
            self._server.acknowledged.reported(offset)
        return True

    def _begin(self, offset: int) -> bool:
        """Begin to send from where a slave's first report asks for it; return False if it is refused."""
        first, end = self._store.min_commit_log_offset, self._store.committed_end
        start = offset
        if offset == 0:
            start = first
            if self._settings.sync_from_last_file and end > first:
                start = max(first, self._store.next_log_file(end - 1) - self._settings.mapped_file_size_commit_log)
        elif not first <= offset <= end:
            return self._refuse(
                f"its log ends at {offset}, and this master has the log from {first} to {end}: it is not a copy of "
                "this log, or was stopped for too long. Remove its store, so that it copies the log anew"
            )
        self.requested = self.sent = start
        self.reported = offset
        self._server.follows(self)
        self._server.acknowledged.reported(offset)
        logger.info("slave %s follows the log from %d on, it ends at %d", self.address, start, end)
        return True

    def _refuse(self, reason: str) -> bool:
        logger.error("refusing the slave %s: %s", self.address, reason, extra=log_peer(self.address))
        self.close()
        return False

    def _beat(self) -> None:
        """Send a heartbeat if nothing was sent for a while, and close the connection of a silent slave."""
        if self._transport is None:
            return
        loop, settings = asyncio.get_running_loop(), self._settings
        interval, silence = settings.ha_send_heartbeat_interval / 1000, settings.ha_housekeeping_interval / 1000
        now = loop.time()
        if now >= self._heard_at + silence:
            self._refuse(f"it has reported nothing for {settings.ha_housekeeping_interval} ms")
            return
        beat_at = self._wrote_at + interval
        if now >= beat_at:
            if self.requested is not None and self._may_send:
                self._write(heartbeat(self.sent))
                self.send()
            beat_at = now + interval
        self._timer = loop.call_at(min(beat_at, self._heard_at + silence), self._beat)
