"""Message ids: where a record lies (offset id), and the key a client gives before it sends (unique id).

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
    """The 4 or 16 bytes of an address written in digits.

    Raises:
        LocalProtocolError: It is a name, or no address at all.
    """
    try:
        return (
            socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
            if ":" in host
            else socket.inet_aton(host)
        )
    except OSError:
        raise LocalProtocolError(f"{host!r} is not an IP address") from None


def unpack_ip(packed: bytes) -> str:
    """The address in digits that 4 or 16 bytes stand for."""
    return socket.inet_ntoa(packed) if len(packed) == 4 else socket.inet_ntop(socket.AF_INET6, packed)


def create_offset_id(host: str, port: int, commit_log_offset: int) -> str:
    """The id of the record at `commit_log_offset` on the broker at `host` and `port`."""
    return (pack_ip(host) + _PORT_AND_OFFSET.pack(port, commit_log_offset)).hex().upper()


def parse_offset_id(offset_id: str) -> tuple[str, int, int]:
    """Host, port and commit log offset of an offset id.

    Raises:
        RemoteProtocolError: The text is none.
    """
    raw = _from_hex(offset_id)
    port, offset = _PORT_AND_OFFSET.unpack_from(raw, len(raw) - _PORT_AND_OFFSET.size)
    return unpack_ip(raw[: -_PORT_AND_OFFSET.size]), port, offset


class UniqueIdGenerator:
    """Makes ids as Apache's Java client does: unique over hosts, processes and 65,536 messages a millisecond.

    Args:
        ip: This host's address in digits; by default the one that outgoing traffic has.
        clock: Where the milliseconds come from.
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
        self._wrapped_at = -1  # the millisecond at which the counter last began anew
        self._skew = 0  # milliseconds added while the counter begins anew within one of them
        self._adopt_process()

    def create(self) -> str:
        """A new id."""
        now = self._clock.now_ms()
        if os.getpid() != self._pid:
            self._adopt_process()
        if not self._month_start <= now < self._month_end:
            self._month_start, self._month_end = _month_around(now)
        number = next(self._counter)
        if not number & 0xFFFF:
            self._skew = self._skew + 1 if now <= self._wrapped_at else 0
            self._wrapped_at = now
        return f"{self._fixed}{now + self._skew - self._month_start:08X}{number & 0xFFFF:04X}"

    def _adopt_process(self) -> None:
        self._pid = os.getpid()
        loader = int.from_bytes(
            os.urandom(4), "big"
        )  # Java puts a class loader's hash here; ours tells generators apart
        self._fixed = (self._ip + _UNIQUE_FIXED.pack(self._pid & 0xFFFF, loader)).hex().upper()

    def __repr__(self) -> str:
        return f"UniqueIdGenerator({unpack_ip(self._ip)!r})"


def parse_unique_id(unique_id: str, now_ms: int) -> tuple[str, int, int]:
    """Host, process id and birth in milliseconds of a unique id that is less than a month old at `now_ms`.

    Raises:
        RemoteProtocolError: The text is none.
    """
    raw = _from_hex(unique_id)
    pid, _loader, since_month, _number = _UNIQUE_TAIL.unpack_from(raw, len(raw) - _UNIQUE_TAIL.size)
    month_start, _ = _month_around(now_ms)
    if month_start + since_month > now_ms:
        month_start, _ = _month_around(month_start - 1)
    return unpack_ip(raw[: -_UNIQUE_TAIL.size]), pid, month_start + since_month


def local_ip() -> str:
    """The address other hosts see this one under; the loopback address where there is no route out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(
                ("192.0.2.1", 9)
            )  # a documentation address; connecting a datagram socket sends nothing
        except OSError:
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
    return address


def _from_hex(text: str) -> bytes:
    if len(text) not in (32, 56):
        raise RemoteProtocolError(
            f"a message id has 32 or 56 characters, this one {len(text)}: {text[:60]!r}"
        )
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) * 2 != len(text):
        raise RemoteProtocolError(f"not a message id, which is hexadecimal: {text!r}")
    return raw


def _month_around(moment_ms: int) -> tuple[int, int]:
    """First millisecond of the month that holds `moment_ms`, and of the next one."""
    year, month = time.localtime(moment_ms // 1000)[:2]
    start = time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))
    end = time.mktime((year, month + 1, 1, 0, 0, 0, 0, 0, -1))
    return int(start) * 1000, int(end) * 1000
