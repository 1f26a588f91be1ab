"""The bytes of the HA protocol of Apache RocketMQ 4.9, which a master and a slave exchange over TCP. No I/O.

The slave connects, and reports again and again up to where its commit log reaches. The first report asks for what
follows; an empty slave reports 0::

    slave ──► master     reached 8

The master sends its commit log from there, in slices. A slice belongs at its offset in the slave's log, ends at the
latest with its file, and may begin and end within a record. A slice without bytes is a heartbeat::

    master ──► slave     offset 8   size 4   bytes (size)
"""

import struct
from collections.abc import Iterator

from rocket_broker.settings.broker_settings import MOST_TRANSFERRED
from rocket_broker.store.errors import LogMismatch

__all__ = ["REPORT", "ReportReader", "SliceReader", "heartbeat", "slice_frames"]

REPORT = struct.Struct(">q")
SLICE_HEADER = struct.Struct(">qi")


def slice_frames(offset: int, data: memoryview, most: int) -> bytes:
    """Return the frames with bytes of the log, in slices of at most `most` bytes."""
    pieces: list[bytes | memoryview] = []
    for start in range(0, len(data), most):
        piece = data[start : start + most]
        pieces += (SLICE_HEADER.pack(offset + start, len(piece)), piece)
    return b"".join(pieces)


def heartbeat(offset: int) -> bytes:
    """Return the frame that a master sends if the log has nothing new behind `offset`."""
    return SLICE_HEADER.pack(offset, 0)


class ReportReader:
    """Reads the reports of a slave."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """Return the offsets of the reports that are complete with these bytes."""
        data = self._rest + data
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        return [offset for (offset,) in REPORT.iter_unpack(data[:whole])]


class SliceReader:
    """Reads the slices of a master, in the parts in which they arrive."""

    def __init__(self) -> None:
        self._head = b""
        self._offset = 0
        self._left = 0

    def feed(self, data: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Yield offset and bytes of each part of a slice, in the order of the log.

        Raises:
            LogMismatch: A slice has no possible size, so this is no master.
        """
        while data:
            if not self._left:
                missing = SLICE_HEADER.size - len(self._head)
                self._head += data[:missing]
                data = data[missing:]
                if len(self._head) < SLICE_HEADER.size:
                    return
                self._offset, self._left = SLICE_HEADER.unpack(self._head)
                self._head = b""
                if not 0 <= self._left <= MOST_TRANSFERRED:
                    raise LogMismatch(self._offset, f"a slice of {self._left} bytes was announced")
                continue
            part = data[: self._left]
            data = data[len(part) :]
            offset = self._offset
            self._offset += len(part)
            self._left -= len(part)
            yield offset, part
