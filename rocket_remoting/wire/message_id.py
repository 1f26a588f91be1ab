"""Message ids: the offset id, which names a stored record, and the unique id, which a client creates before a send.

::

    offset id     16 bytes (28 with IPv6) as upper-case hex, 32 or 56 characters
                  | ip 4 or 16 | port 4 | commit log offset 8 |

    unique id     16 bytes (28 with IPv6) as upper-case hex, 32 or 56 characters
                  | ip 4 or 16 | pid 2 | class loader 4 | ms since the month began 4 | counter 2 |

Months begin at local midnight, as they do for Apache's Java client.
"""

import os
import socket
import struct
import time
from itertools import count

from rocket_remoting.clock import Clock, SystemClock
from rocket_remoting.wire.errors import LocalProtocolError, RemoteProtocolError

_PORT_AND_OFFSET = struct.Struct(">iq")
_UNIQUE_FIXED = struct.Struct(">HI")
_UNIQUE_TAIL = struct.Struct(">HIIH")


def pack_ip(host: str) -> bytes:
    """Return the 4 or 16 bytes of an IP address.

    Raises:
        LocalProtocolError: The text is not an IP address.
    """
    try:
        return socket.inet_pton(socket.AF_INET6, host.partition("%")[0]) if ":" in host else socket.inet_aton(host)
    except OSError:
        raise LocalProtocolError(f"{host!r} is not an IP address") from None


def unpack_ip(packed: bytes) -> str:
    """Return the text of an IP address of 4 or 16 bytes."""
    return socket.inet_ntoa(packed) if len(packed) == 4 else socket.inet_ntop(socket.AF_INET6, packed)


def create_offset_id(host: str, port: int, commit_log_offset: int) -> str:
    """Return the id of the record at `commit_log_offset` on the broker at `host` and `port`."""
    return (pack_ip(host) + _PORT_AND_OFFSET.pack(port, commit_log_offset)).hex().upper()


def parse_offset_id(offset_id: str) -> tuple[str, int, int]:
    """Return host, port and commit log offset of an offset id.

    Raises:
        RemoteProtocolError: The text is not an offset id.
    """
    raw = _from_hex(offset_id)
    port, offset = _PORT_AND_OFFSET.unpack_from(raw, len(raw) - _PORT_AND_OFFSET.size)
    return unpack_ip(raw[: -_PORT_AND_OFFSET.size]), port, offset


class UniqueIdGenerator:
    """Creates ids as Apache's Java client does: unique over hosts, processes and 65,536 messages in a millisecond.

    Args:
        ip: This host's IP address; by default the one of outgoing traffic.
        clock: The clock of the ids' milliseconds; the system clock by default.
    """

    __slots__ = (
        "_clock",
        "_counter",
        "_fixed",
        "_ip",
        "_month_end",
        "_month_start",
        "_pid",
        "_skew",
        "_wrapped_at",
    )

    def __init__(self, ip: str | None = None, *, clock: Clock | None = None) -> None:
        self._ip = pack_ip(ip if ip is not None else local_ip())
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._counter = count()
        self._month_start = self._month_end = 0
        self._wrapped_at = -1  # the millisecond in which the counter was last 0
        self._skew = 0  # milliseconds added to ids, so that a counter that overflows within a millisecond repeats no id
        self._adopt_process()

    def create(self) -> str:
        """Return a new id."""
        now = self._clock.now_ms()
        # A forked child has the parent's counter and fixed part. Without a new fixed part both would create equal ids.
        if os.getpid() != self._pid:
            self._adopt_process()
        if not self._month_start <= now < self._month_end:
            self._month_start, self._month_end = _month_around(now)
        number = next(self._counter)
        # The counter begins again at 0. If that happens twice in one millisecond, the same time and counter
        # would give an id twice. Apache's MessageClientIDSetter (4.9.8) does not look for that.
        if not number & 0xFFFF:
            self._skew = self._skew + 1 if now <= self._wrapped_at else 0
            self._wrapped_at = now
        return f"{self._fixed}{now + self._skew - self._month_start:08X}{number & 0xFFFF:04X}"

    def _adopt_process(self) -> None:
        self._pid = os.getpid()
        # Java puts a class loader's hash here; ours tells generators apart.
        loader = int.from_bytes(os.urandom(4), "big")
        self._fixed = (self._ip + _UNIQUE_FIXED.pack(self._pid & 0xFFFF, loader)).hex().upper()

    def __repr__(self) -> str:
        return f"UniqueIdGenerator({unpack_ip(self._ip)!r})"


def parse_unique_id(unique_id: str, now_ms: int) -> tuple[str, int, int]:
    """Return host, process id and creation time of a unique id.

    Args:
        unique_id: The id; it has only the time since the month began.
        now_ms: Milliseconds since the epoch; the id must be less than a month older.

    Raises:
        RemoteProtocolError: The text is not a unique id.
    """
    raw = _from_hex(unique_id)
    pid, _loader, since_month, _number = _UNIQUE_TAIL.unpack_from(raw, len(raw) - _UNIQUE_TAIL.size)
    month_start, _ = _month_around(now_ms)
    if month_start + since_month > now_ms:
        month_start, _ = _month_around(month_start - 1)
    return unpack_ip(raw[: -_UNIQUE_TAIL.size]), pid, month_start + since_month


def local_ip() -> str:
    """Return this host's IP address of outgoing traffic; the loopback address if there is no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # A documentation address; connecting a datagram socket sends nothing.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
    return address


def _from_hex(text: str) -> bytes:
    if len(text) not in (32, 56):
        raise RemoteProtocolError(f"a message id has 32 or 56 characters, this one {len(text)}: {text[:60]!r}")
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) * 2 != len(text):
        raise RemoteProtocolError(f"not a message id, which is hexadecimal: {text!r}")
    return raw


def _month_around(moment_ms: int) -> tuple[int, int]:
    """Return the first milliseconds of the month of `moment_ms` and of the next month, in local time."""
    year, month = time.localtime(moment_ms // 1000)[:2]
    start = time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))
    # mktime turns month 13 into January of the next year; -1 lets it find out whether daylight saving time holds.
    end = time.mktime((year, month + 1, 1, 0, 0, 0, 0, 0, -1))
    return int(start) * 1000, int(end) * 1000
