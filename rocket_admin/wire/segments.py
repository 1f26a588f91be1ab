"""The TCP segments in packets, below which are IPv4 or IPv6, and Ethernet, Linux's cooked capture or a loopback.

Link types have the numbers of tcpdump's list of link-layer header types. Other packets, and fragments of IP, which TCP
avoids, have no segment for this module.
"""

import struct
from datetime import datetime
from ipaddress import ip_address
from typing import Final, NamedTuple

import msgspec

from rocket_admin.wire.capture_file import Packet

__all__ = ["LINK_TYPES", "Endpoint", "Segment", "segment_of"]

_ETHERNET: Final = 1
_COOKED: Final = 113
_COOKED_2: Final = 276
_LOOPBACKS: Final = (0, 108)
_RAW: Final = (12, 14, 101, 228, 229)
LINK_TYPES: Final = frozenset({_ETHERNET, _COOKED, _COOKED_2, *_LOOPBACKS, *_RAW})
"""The link types that can be read."""

_VLANS: Final = (b"\x81\x00", b"\x88\xa8", b"\x91\x00")
_MOST_TAGS: Final = 4
_TCP: Final = 6
_FRAGMENT: Final = 44
_AUTHENTICATION: Final = 51
_EXTENSIONS: Final = (0, 43, 60, _AUTHENTICATION)
"""Headers of IPv6 that may come before TCP's: hop-by-hop, routing, destination options, authentication."""
_MOST_EXTENSIONS: Final = 8
_FIN, _SYN, _RST, _ACK = 0x01, 0x02, 0x04, 0x10


class Endpoint(NamedTuple):
    """One end of a connection."""

    host: bytes
    port: int

    def __str__(self) -> str:
        host = str(ip_address(self.host))
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


class Segment(msgspec.Struct, frozen=True):
    """A TCP segment.

    Attributes:
        at: When it was captured.
        source: Who sent it.
        target: To whom.
        sequence: The sequence number of its first byte, or of SYN.
        is_syn: Whether it opens a connection, or answers that.
        is_ack: Whether it acknowledges bytes: a SYN that does is the server's.
        is_reset: Whether it ends the connection at once.
        data: Its bytes, as far as they were captured.
        missing: How many bytes of it were not captured.
    """

    at: datetime
    source: Endpoint
    target: Endpoint
    sequence: int
    is_syn: bool
    is_ack: bool
    is_reset: bool
    data: bytes
    missing: int


def segment_of(packet: Packet) -> Segment | None:
    """Return the segment in a packet; None if it has none, or its headers were not captured."""
    try:
        internet = _internet_of(packet)
        found = internet and (_of_ipv4(internet) if internet[0] >> 4 == 4 else _of_ipv6(internet))
        return None if not found else _tcp(packet.at, *found)
    except (struct.error, IndexError):
        return None


def _internet_of(packet: Packet) -> bytes | None:
    """Return the packet of IP in a packet of the link."""
    data, link_type = packet.data, packet.link_type
    if link_type == _ETHERNET:
        place = 12
        for _ in range(_MOST_TAGS):
            if data[place : place + 2] not in _VLANS:
                break
            place += 4
        return data[place + 2 :] if data[place : place + 2] in (b"\x08\x00", b"\x86\xdd") else None
    if link_type == _COOKED:
        return data[16:] if data[14:16] in (b"\x08\x00", b"\x86\xdd") else None
    if link_type == _COOKED_2:
        return data[20:] if data[:2] in (b"\x08\x00", b"\x86\xdd") else None
    if link_type in _LOOPBACKS:
        return data[4:]  # the family before differs between systems; the version in the packet does not
    return data if link_type in _RAW else None


def _of_ipv4(data: bytes) -> tuple[bytes, bytes, bytes, int] | None:
    """Return source, target, the bytes of TCP as far as they were captured, and their number."""
    header, total, fragment = (data[0] & 15) * 4, *struct.unpack_from(">H2xH", data, 2)
    # A total of 0 is of a packet that the network card would cut into smaller ones.
    size = (total or len(data)) - header
    if data[9] != _TCP or fragment & 0x3FFF or header < 20 or size < 0:
        return None
    return data[12:16], data[16:20], data[header : header + size], size


def _of_ipv6(data: bytes) -> tuple[bytes, bytes, bytes, int] | None:
    if data[0] >> 4 != 6:
        return None
    (size,) = struct.unpack_from(">H", data, 4)
    end = 40 + size if size else len(data)
    kind, place = data[6], 40
    for _ in range(_MOST_EXTENSIONS):
        if kind == _FRAGMENT:
            if struct.unpack_from(">H", data, place + 2)[0] & 0xFFF9:
                return None
            kind, place = data[place], place + 8
        elif kind in _EXTENSIONS:
            unit, more = (4, 2) if kind == _AUTHENTICATION else (8, 1)
            kind, place = data[place], place + unit * (data[place + 1] + more)
        else:
            break
    return (data[8:24], data[24:40], data[place:end], end - place) if kind == _TCP and place <= end else None


def _tcp(at: datetime, source: bytes, target: bytes, data: bytes, size: int) -> Segment | None:
    source_port, target_port, sequence, offset, flags = struct.unpack_from(">HHI4xBB", data)
    header = (offset >> 4) * 4
    if not 20 <= header <= size:
        return None
    payload = data[header:]
    return Segment(
        at=at,
        source=Endpoint(source, source_port),
        target=Endpoint(target, target_port),
        sequence=sequence,
        is_syn=bool(flags & _SYN),
        is_ack=bool(flags & _ACK),
        is_reset=bool(flags & _RST),
        data=payload,
        missing=size - header - len(payload),
    )
