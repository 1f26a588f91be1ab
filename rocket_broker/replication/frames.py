"""The bytes of the HA protocol of Apache RocketMQ 4.9, which a master and a slave exchange over TCP. No I/O.

The slave connects, and reports again and again up to where its commit log reaches. The first report asks for what
follows; an empty slave reports 0::

    slave ──► master     reached 8

The master sends its commit log from there, in slices. A slice belongs at its offset in the slave's log, ends at the
latest with its file, and may begin and end within a record. A slice without bytes is a heartbeat::

    master ──► slave     offset 8   size 4   bytes (size)
"""

import struct

__all__ = ["SLICE_HEADER", "ReportReader", "heartbeat", "slice_frame"]

REPORT = struct.Struct(">q")
SLICE_HEADER = struct.Struct(">qi")


def slice_frame(offset: int, data: memoryview) -> bytes:
    """Return the frame with a slice of the log."""
    return b"".join((SLICE_HEADER.pack(offset, len(data)), data))


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
