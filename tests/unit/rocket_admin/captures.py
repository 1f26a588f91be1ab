"""What a client and a broker really said over a socket, and capture files of it as tcpdump and Wireshark write them."""

import asyncio
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address

from rocket_broker.embedded import EmbeddedBroker
from rocket_client import Admin, ClientSettings, Producer, ProducerSettings
from rocket_remoting import Message
from rocket_remoting.transports.tcp import TcpTransport
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.headers import GetRouteInfoRequestHeader

CLIENT, SERVER = 50_000, 10_911
NOON_US = 1_767_268_800_000_000
FIRST = 4_294_967_000
"""The sequence number of the client's first byte: it begins again at 0 soon."""

Said = tuple[bool, bytes]
"""Bytes that one end sent, and whether that was the client."""


@dataclass(frozen=True)
class Piece:
    """A TCP segment to be written.

    Attributes:
        by_client: Who sends it.
        place: How many bytes its end sent before it.
        data: The bytes.
        flags: TCP's.
        client: The client's port.
    """

    by_client: bool
    place: int
    data: bytes
    flags: int = 0x18
    client: int = CLIENT

    def tcp(self) -> bytes:
        """Return the segment with its header."""
        ports = (self.client, SERVER) if self.by_client else (SERVER, self.client)
        sequence = ((FIRST if self.by_client else 77) + self.place) % 2**32
        return struct.pack(">HHIIBBHHH", *ports, sequence, 0, 5 << 4, self.flags, 8192, 0, 0) + self.data


def recorded() -> list[Said]:
    """Return what a client and a broker say: routes, sends, a refusal; on one connection, byte by byte as it came."""
    said: list[Said] = []

    async def scene() -> None:
        async with EmbeddedBroker() as broker:
            settings = ClientSettings(name_servers=broker.name_server_address)
            async with Producer("shop", ProducerSettings(name_servers=broker.name_server_address)) as producer:
                await producer.send(Message("orders", b"tea" * 40))
            async with Admin(settings) as admin:
                await admin.topics()

            async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                address = broker.name_server_address.split(":")
                from_server, to_server = await asyncio.open_connection(*address)

                async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, *, by_client: bool) -> None:
                    while data := await source.read(65_536):
                        said.append((by_client, data))
                        target.write(data)
                    target.close()

                await asyncio.gather(
                    pump(reader, to_server, by_client=True), pump(from_server, writer, by_client=False)
                )

            async with await asyncio.start_server(carry, "127.0.0.1", 0) as tap:
                host, port = tap.sockets[0].getsockname()
                connection = await TcpTransport().connect(f"{host}:{port}", timeout=30)
                for topic in ("orders", "TBW102", "missing", "orders"):
                    header = GetRouteInfoRequestHeader(topic=topic)
                    await connection.invoke(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, timeout=30)
                await connection.invoke(RequestCode.GET_BROKER_CLUSTER_INFO, timeout=30)
                await connection.close()

    asyncio.run(scene())
    return said


def handshake(client: int = CLIENT) -> list[Piece]:
    """Return the segments that open a connection."""
    return [Piece(True, -1, b"", 0x02, client), Piece(False, -1, b"", 0x12, client), Piece(True, 0, b"", 0x10, client)]


def pieces_of(said: Iterable[Said], size: int = 1460, client: int = CLIENT) -> list[list[Piece]]:
    """Return the segments of each flight: of what one end sent before the other answered."""
    flights: list[list[Piece]] = []
    places = {True: 0, False: 0}
    for by_client, data in said:
        flights.append([])
        for start in range(0, len(data), size):
            part = data[start : start + size]
            flights[-1].append(Piece(by_client, places[by_client] + start, part, client=client))
        places[by_client] += len(data)
    return flights


def packet(piece: Piece, link_type: int = 1, *, is_ipv6: bool = False) -> bytes:
    """Return the packet of a segment on a link."""
    tcp = piece.tcp()
    hosts = [ip_address(f"fd00::{end}" if is_ipv6 else f"10.0.0.{end}").packed for end in (1, 2)]
    source, target = hosts if piece.by_client else reversed(hosts)
    if is_ipv6:  # with a header of options before TCP's
        internet = struct.pack(">IHBB", 6 << 28, len(tcp) + 8, 0, 64) + source + target + b"\6\0\1\4\0\0\0\0" + tcp
    else:
        internet = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 7, 0x4000, 64, 6, 0) + source + target + tcp
    kind = b"\x86\xdd" if is_ipv6 else b"\x08\x00"
    before = {
        0: struct.pack("<I", 30 if is_ipv6 else 2),
        1: bytes(12) + b"\x81\x00\x00\x05" + kind,
        101: b"",
        113: bytes(14) + kind,
        276: kind + bytes(18),
    }
    ethernet_padding = bytes(max(0, 46 - len(internet))) if link_type == 1 else b""
    return before[link_type] + internet + ethernet_padding


def pcap(packets: Sequence[bytes], link_type: int = 1, *, order: str = "<", longest: int = 262_144) -> bytes:
    """Return a pcap file with a packet each millisecond."""
    data = struct.pack(f"{order}IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, longest, link_type)
    for number, each in enumerate(packets):
        seconds, rest = divmod(NOON_US + number * 1000, 1_000_000)
        here = each[:longest]
        data += struct.pack(f"{order}IIII", seconds, rest, len(here), len(each)) + here
    return data


def pcapng(packets: Sequence[tuple[int, bytes]], order: str = "<") -> bytes:
    """Return a pcapng file with a packet each millisecond; each has a link type, so there are several interfaces."""

    def block(kind: int, content: bytes) -> bytes:
        content += bytes(-len(content) % 4)
        size = struct.pack(f"{order}I", len(content) + 12)
        return struct.pack(f"{order}I", kind) + size + content + size

    links = sorted({link_type for link_type, _ in packets})
    data = block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1))
    for link_type in links:  # times in nanoseconds
        data += block(1, struct.pack(f"{order}HHIHHB3xHH", link_type, 0, 0, 9, 1, 9, 0, 0))
    data += block(5, bytes(12))
    for number, (link_type, each) in enumerate(packets):
        at = (NOON_US + number * 1000) * 1000
        head = struct.pack(f"{order}5I", links.index(link_type), at >> 32, at & 0xFFFFFFFF, len(each), len(each))
        data += block(6, head + each)
    return data


def at_port(pieces: Iterable[Piece], client: int) -> list[Piece]:
    """Return the segments as those of another client."""
    return [replace(piece, client=client) for piece in pieces]
