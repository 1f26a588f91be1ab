"""The packets of a capture file, as tcpdump, Wireshark and dumpcap write it: pcap or pcapng. One is read at a time.

::

    pcap      header (24 bytes), then for each packet: seconds, fraction, length here, length on the wire, bytes
    pcapng    blocks: type, length, content, length again
                section 0x0A0D0D0A   byte order; forgets the interfaces before
                interface 1          link type, unit of time
                packet 6, 3          enhanced: interface, time, lengths, bytes; simple: length, bytes

A file may be cut off at any byte, or be damaged: no length in it makes this module take memory for more than a packet.
"""

import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import IO, Final, NamedTuple

import msgspec

__all__ = ["CaptureFileError", "Packet", "read_packets"]

MAX_PACKET: Final = 1024 * 1024
"""Maximum number of bytes of a packet; libpcap writes at most 256 KiB of one."""
MAX_INTERFACES: Final = 10_000

_PCAP: Final = {0xA1B2C3D4: 1_000_000, 0xA1B23C4D: 1_000_000_000}
"""The numbers at the beginning of a pcap file, with the fractions of a second that its times count."""
_SECTION: Final = 0x0A0D0D0A
_BYTE_ORDER: Final = 0x1A2B3C4D
_INTERFACE: Final = 1
_SIMPLE: Final = 3
_ENHANCED: Final = 6
_IF_TSRESOL: Final = 9
_IF_TSOFFSET: Final = 14
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PIECE: Final = 64 * 1024


class CaptureFileError(Exception):
    """The file is not a capture, is damaged, or ends within a packet; packets before that were yielded."""


class Packet(msgspec.Struct, frozen=True):
    """A packet.

    Attributes:
        at: When it was captured; the epoch if the file does not tell.
        link_type: The type of its link layer, by tcpdump's list of link-layer header types.
        data: Its bytes, as far as they were captured.
    """

    at: datetime
    link_type: int
    data: bytes


class _Interface(NamedTuple):
    link_type: int
    snap_length: int
    units: int
    offset: int


def read_packets(file: IO[bytes]) -> Iterator[Packet]:
    """Yield the packets of a capture.

    Args:
        file: The file; a pipe will do.

    Raises:
        CaptureFileError: The file is not a capture, is damaged, or ends within a packet.
        OSError: It cannot be read.
    """
    begin = file.read(4)
    for order in "<>":
        magic = struct.unpack(f"{order}I", begin)[0] if len(begin) == 4 else 0
        if magic in _PCAP:
            yield from _pcap(file, order, _PCAP[magic])
            return
        if magic == _SECTION:  # the same in both byte orders
            yield from _pcapng(file)
            return
    raise CaptureFileError("the file is neither a pcap nor a pcapng capture")


def _pcap(file: IO[bytes], order: str, units: int) -> Iterator[Packet]:
    header = _exactly(file, 20, "header")
    link_type = struct.unpack_from(f"{order}I", header, 16)[0] & 0xFFFF  # the upper bits are of the checksum
    record = struct.Struct(f"{order}4I")
    while head := file.read(record.size):
        if len(head) < record.size:
            raise _cut_off("packet")
        seconds, fraction, length, _ = record.unpack(head)
        _check_length(length)
        yield Packet(_time(seconds * units + fraction, units), link_type, _exactly(file, length, "packet"))


def _pcapng(file: IO[bytes]) -> Iterator[Packet]:
    order = "<"
    interfaces: list[_Interface] = []
    kind = _SECTION
    while True:
        if kind == _SECTION:
            order = _byte_order(head := _exactly(file, 8, "section"))
            _skip(file, _length(order, head, 28) - 12)
            interfaces = []
        else:
            length = _length(order, _exactly(file, 4, "block"), 12) - 8
            if kind in (_INTERFACE, _ENHANCED, _SIMPLE):
                _check_length(length)
                content = _exactly(file, length, "block")[:-4]
                try:
                    if kind == _INTERFACE:
                        interfaces.append(_interface(order, content))
                    else:
                        yield _packet(order, kind, content, interfaces)
                except (struct.error, IndexError) as error:
                    raise CaptureFileError(f"a block of type {kind} is damaged") from error
                if len(interfaces) > MAX_INTERFACES:
                    raise CaptureFileError(f"more than {MAX_INTERFACES:,} interfaces")
            else:  # statistics, names, comments
                _skip(file, length)
        head = file.read(4)
        if not head:
            return
        if len(head) < 4:
            raise _cut_off("block")
        kind = struct.unpack(f"{order}I", head)[0]


def _byte_order(head: bytes) -> str:
    for order in "<>":
        if struct.unpack_from(f"{order}I", head, 4)[0] == _BYTE_ORDER:
            return order
    raise CaptureFileError("a section without a byte order")


def _length(order: str, head: bytes, least: int) -> int:
    """Return the length of a block, which is a multiple of four."""
    length: int = struct.unpack_from(f"{order}I", head)[0]
    if length < least or length % 4:
        raise CaptureFileError(f"a block of {length:,} bytes")
    return length


def _interface(order: str, content: bytes) -> _Interface:
    link_type, _, snap_length = struct.unpack_from(f"{order}HHI", content)
    units, offset = 1_000_000, 0
    place = 8
    while place + 4 <= len(content):
        code, length = struct.unpack_from(f"{order}HH", content, place)
        value = content[place + 4 : place + 4 + length]
        if code == _IF_TSRESOL and len(value) == 1:
            base, exponent = (2, value[0] & 0x7F) if value[0] & 0x80 else (10, value[0])
            units = base ** min(exponent, 64)
        elif code == _IF_TSOFFSET and len(value) == 8:
            offset = struct.unpack(f"{order}q", value)[0]
        elif code == 0:
            break
        place += 4 + (length + 3) // 4 * 4
    return _Interface(link_type, snap_length, units, offset)


def _packet(order: str, kind: int, content: bytes, interfaces: list[_Interface]) -> Packet:
    if kind == _SIMPLE:
        interface = interfaces[0]
        (length,) = struct.unpack_from(f"{order}I", content)
        captured = min(length, interface.snap_length or length)
        return Packet(_EPOCH, interface.link_type, content[4 : 4 + captured])
    number, high, low, captured, _ = struct.unpack_from(f"{order}5I", content)
    interface = interfaces[number]
    at = _time((high << 32 | low) + interface.offset * interface.units, interface.units)
    return Packet(at, interface.link_type, content[20 : 20 + captured])


def _time(count: int, units: int) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=count * 1_000_000 // units)
    except OverflowError:
        return _EPOCH


def _check_length(length: int) -> None:
    if length > MAX_PACKET:
        raise CaptureFileError(f"a packet of {length:,} bytes: the file is damaged")


def _exactly(file: IO[bytes], count: int, what: str) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise _cut_off(what)
    return data


def _skip(file: IO[bytes], count: int) -> None:
    while count > 0:
        count -= len(_exactly(file, min(count, _PIECE), "block"))


def _cut_off(what: str) -> CaptureFileError:
    return CaptureFileError(f"the file ends within a {what}")
