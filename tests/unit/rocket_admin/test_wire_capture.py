"""A capture is explained as the proxy explains what passes through it, whatever of it is late, repeated or missing."""

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from rocket_admin.commands.wire import wire
from rocket_admin.wire import capture
from rocket_admin.wire.capture import Capture
from rocket_admin.wire.capture_file import CaptureFileError
from rocket_admin.wire.conversation import ExplainedCommand, Unreadable
from tests.traced_memory import memory_below
from tests.unit.rocket_admin.captures import (
    Piece,
    Said,
    at_port,
    handshake,
    packet,
    pcap,
    pcapng,
    pieces_of,
    recorded,
)

Seen = list[ExplainedCommand | Unreadable]

NAMES = [
    *("GET_ROUTEINFO_BY_TOPIC", "SUCCESS") * 2,
    *("GET_ROUTEINFO_BY_TOPIC", "TOPIC_NOT_EXIST"),
    *("GET_ROUTEINFO_BY_TOPIC", "SUCCESS"),
    *("GET_BROKER_CLUSTER_INFO", "SUCCESS"),
]


@pytest.fixture(scope="module")
def said() -> list[Said]:
    """What a client and a name server really said."""
    return recorded()


def seen_in(data: bytes) -> Seen:
    return list(Capture(io.BytesIO(data)).commands())


def of(pieces: Sequence[Piece]) -> Seen:
    return seen_in(pcap([packet(piece) for piece in pieces]))


def told(seen: Seen) -> list[str]:
    """Return the names of commands, and the reasons of what cannot be read."""
    return [each.name if isinstance(each, ExplainedCommand) else each.reason for each in seen]


def flat(said: Sequence[Said], size: int = 1460) -> list[Piece]:
    return list(chain(handshake(), *pieces_of(said, size)))


def test_commands_have_names_addresses_and_times(said: list[Said]) -> None:
    """As those of the proxy."""
    seen = of(flat(said))
    assert told(seen) == NAMES
    request, response = seen[:2]
    assert isinstance(request, ExplainedCommand)
    assert isinstance(response, ExplainedCommand)
    assert request.fields["topic"] == "orders"
    assert (request.by_client, request.server, request.connection) == (True, "10.0.0.2:10911", 1)
    assert (response.by_client, response.answers, response.milliseconds) == (False, "GET_ROUTEINFO_BY_TOPIC", 1)
    assert f"{request.time:%Y-%m-%dT%H:%M:%S.%f}" == "2026-01-01T12:00:00.003000"


@settings(max_examples=20)
@given(st.data())
def test_segments_may_come_late_and_twice(said: list[Said], data: st.DataObject) -> None:
    """In any order within a flight, repeated, in other pieces the second time; two connections in turn."""
    size = data.draw(st.integers(20, 2000), label="size")
    packets: list[Piece] = []
    for flight in pieces_of(said, size):
        again = data.draw(st.lists(st.sampled_from(flight), max_size=4), label="again")
        longer = [Piece(each.by_client, each.place, each.data[: len(each.data) // 2 + 1]) for each in again]
        packets += data.draw(st.permutations([*flight, *again, *longer]), label="order")
    both = [each for pair in zip(packets, at_port(packets, 50_001), strict=True) for each in pair]
    seen = of([*handshake(), *handshake(50_001), *both])
    for number in (1, 2):
        assert told([each for each in seen if each.connection == number]) == NAMES


@pytest.mark.parametrize("link_type", [0, 1, 101, 113, 276])
@pytest.mark.parametrize("is_ipv6", [False, True])
def test_links(said: list[Said], link_type: int, *, is_ipv6: bool) -> None:
    """Ethernet with a VLAN, both cooked forms, loopback, none; in both byte orders of the file."""
    packets = [packet(piece, link_type, is_ipv6=is_ipv6) for piece in flat(said)]
    seen = seen_in(pcap(packets, link_type, order=">"))
    assert told(seen) == NAMES
    assert seen[0].server == ("[fd00::2]:10911" if is_ipv6 else "10.0.0.2:10911")


@pytest.mark.parametrize("order", ["<", ">"])
def test_pcapng_has_several_interfaces(said: list[Said], order: str) -> None:
    """The times are the same as in a pcap file, though in another unit."""
    pieces = flat(said)
    links = [(1, 113)[number % 2] for number in range(len(pieces))]
    packets = [(link, packet(piece, link)) for link, piece in zip(links, pieces, strict=True)]
    assert seen_in(pcapng(packets, order)) == of(pieces)


@settings(max_examples=30)
@given(st.data())
def test_capture_may_begin_amid_a_connection(said: list[Said], data: st.DataObject) -> None:
    """From anywhere on: the commands that are whole are read, and the ends are told apart without the handshake."""
    pieces = list(chain(*pieces_of(said, 50)))
    begin = data.draw(st.integers(1, len(pieces) - 1))
    seen = of(pieces[begin:])
    commands = [each for each in seen if isinstance(each, ExplainedCommand)]
    assert told(list(commands)) == NAMES[len(NAMES) - len(commands) :]
    assert len(commands) >= len({each.place for each in pieces[begin:] if each.data.startswith(b"\0\0")}) - 2
    assert all(each.server == "10.0.0.2:10911" for each in seen if commands)
    assert all(each.goes_on for each in seen if commands and isinstance(each, Unreadable))


@settings(max_examples=30)
@given(st.data())
def test_lost_segments_cost_their_commands_only(said: list[Said], data: st.DataObject) -> None:
    """What the capture lacks is told; all commands of which nothing is missing are read."""
    pieces = list(chain(*pieces_of(said, 80)))
    lost = data.draw(st.sets(st.sampled_from(range(len(pieces))), min_size=1, max_size=3))
    seen = of([*handshake(), *(piece for number, piece in enumerate(pieces) if number not in lost)])
    commands = told([each for each in seen if isinstance(each, ExplainedCommand)])
    assert len(commands) >= len(NAMES) - 2 * len(lost)
    assert len(commands) < len(NAMES) or any(
        isinstance(each, Unreadable) or each.body == "not captured" for each in seen
    )


def test_begins_of_packets_tell_the_headers(said: list[Said]) -> None:
    """Of a capture with `tcpdump -s 300`, bodies are missing, but neither the commands nor the order."""
    seen = seen_in(pcap([packet(piece) for piece in flat(said, 65_000)], longest=320))
    assert told(seen) == NAMES
    bodies = [each.body for each in seen if isinstance(each, ExplainedCommand) and each.by_client is False]
    assert bodies[0] == "not captured"


@given(st.integers(0, 4000))
@settings(max_examples=30)
def test_file_may_be_cut_off_anywhere(said: list[Said], end: int) -> None:
    """The commands before are read, and the end is told."""
    whole = pcap([packet(piece) for piece in flat(said)])
    read = Capture(io.BytesIO(whole[: min(end, len(whole) - 1)]))
    seen: Seen = []
    try:
        seen.extend(read.commands())
    except CaptureFileError:
        pass
    assert told([each for each in seen if isinstance(each, ExplainedCommand)]) == NAMES[: len(told(seen))][: len(seen)]


@given(st.binary(max_size=300), st.integers(0, 600))
@settings(max_examples=50)
def test_damaged_files_end_with_an_error_of_ours_or_without(said: list[Said], noise: bytes, place: int) -> None:
    """Whatever is in them."""
    pieces = flat(said)[:6]
    for whole in (pcap([packet(piece) for piece in pieces]), pcapng([(1, packet(piece)) for piece in pieces])):
        try:
            seen_in(whole[:place] + noise + whole[place + len(noise) :])
        except CaptureFileError:
            pass


def test_other_protocols_are_reported_once() -> None:
    """TLS, and text; a datagram or a packet of another link has no connection."""
    hello = Piece(True, 0, bytes.fromhex("160301") + bytes(200))
    answer = Piece(False, 0, bytes.fromhex("160303") + bytes(200))
    assert told(of([*handshake(), hello, answer, hello])) == ["TLS"]
    text = Piece(True, 0, b"GET / HTTP/1.1\r\n\r\n")
    assert told(of([*handshake(), text])) == ["these bytes are not a command of RocketMQ"]
    assert told(of([text])) == ["no command of RocketMQ is in the 18 bytes of this connection"]
    read = Capture(io.BytesIO(pcap([b"?" * 40], link_type=147)))
    assert not list(read.commands())
    assert read.notes == ["packets of link type 147 cannot be read"]


def test_port_may_be_used_again(said: list[Said]) -> None:
    """A new handshake is a new connection, whatever is left of the old one."""
    again = [replace(piece, place=piece.place + 50_000_000) for piece in flat(said)]
    seen = of([*flat(said)[:-1], *again])
    assert told([each for each in seen if each.connection == 2]) == NAMES


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of connections that never complete a command, and of requests that are never answered."""
    monkeypatch.setattr(capture, "MOST_BYTES", 200_000)
    begin = Piece(True, 0, (10_000_000).to_bytes(4) + bytes(4) + b"x" * 20_000)
    pieces = [part for port in range(60) for part in (*handshake(port)[:1], replace(begin, client=port))]
    unanswered = b'\0\0\0\x1d\0\0\0\x19{"code":34,"opaque":%d}'
    sent = b"".join(unanswered % number for number in range(1000, 3000))
    pieces += [*handshake(60)[:1], *(Piece(True, n, sent[n : n + 1500], client=60) for n in range(0, len(sent), 1500))]
    data = pcap([packet(piece) for piece in pieces])
    with memory_below(1_000_000):
        told_of = sum(isinstance(each, Unreadable) for each in Capture(io.BytesIO(data)).commands())
    assert told_of >= 60


def test_command_prints_what_the_proxy_prints(said: list[Said], tmp_path: Path) -> None:
    """For people and as JSON; a file that is no capture is an error."""
    file = tmp_path / "shop.pcap"
    file.write_bytes(pcap([packet(piece) for piece in flat(said)]))
    done = CliRunner().invoke(wire, ["--read", str(file), "--only", "get_route*", "--json"])
    assert done.exit_code == 0, done.output
    assert [json.loads(line)["name"] for line in done.stdout.splitlines()] == NAMES[:-2]
    shown = CliRunner().invoke(wire, ["--read", str(file)]).stdout.splitlines()
    assert "1→10.0.0.2:10911 GET_ROUTEINFO_BY_TOPIC #" in shown[0]
    assert "topic=orders" in shown[0]
    file.write_bytes(b"no capture at all")
    done = CliRunner().invoke(wire, ["--read", str(file)])
    assert done.exit_code == 1
    assert "neither a pcap nor a pcapng capture" in done.stderr
    assert CliRunner().invoke(wire, ["--read", str(file), "--port", "1"]).exit_code == 2
