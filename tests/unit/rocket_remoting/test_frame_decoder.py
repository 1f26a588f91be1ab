"""Decodes bytes into commands."""

import random
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.frame_decoder import FrameDecoder
from rocket_remoting.wire.receive_buffer import ReceiveBuffer

MIB = 1024 * 1024


def frame(body: bytes, opaque: int = 0) -> bytes:
    """Return a frame of a request with this body."""
    command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, body=body)
    command.opaque = opaque
    return b"".join(command.encode())


def test_several_frames_in_one_chunk() -> None:
    """All complete frames are returned, in order."""
    commands = FrameDecoder().feed(b"".join(frame(b"x" * n, n) for n in range(100)))
    assert [(command.opaque, len(command.body)) for command in commands] == [(n, n) for n in range(100)]


@pytest.mark.parametrize("size", [1, 3, 7, 100, 65_536, 100_000])
def test_frames_in_chunks(size: int) -> None:
    """The result does not depend on how the bytes are split, nor on the size of the receive buffer."""
    data = frame(b"a" * 10, 1) + frame(b"b" * 200_000, 2) + frame(b"", 3)
    decoder, commands = FrameDecoder(), []
    for start in range(0, len(data), size):
        commands += decoder.feed(data[start : start + size])
    assert [(command.opaque, command.body) for command in commands] == [
        (1, b"a" * 10),
        (2, b"b" * 200_000),
        (3, b""),
    ]
    assert decoder.pending == 0


def test_bodies_do_not_share_the_buffer() -> None:
    """Bytes received later do not change a body."""
    decoder = FrameDecoder()
    (first,) = decoder.feed(frame(b"first"))
    decoder.feed(frame(b"other"))
    assert first.body == b"first"
    assert type(first.body) is bytes


def test_buffer_always_has_free_space() -> None:
    """At any moment of a large frame."""
    data, decoder, commands = frame(b"x" * 3 * MIB), FrameDecoder(), []
    while data:
        room = decoder.writable()
        assert len(room) > 0
        count = min(len(room), len(data), 50_000)
        room[:count] = data[:count]
        commands += decoder.received(count)
        data = data[count:]
    assert len(commands) == 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">ii", -5, 0), "a frame of -5 bytes"),
        (struct.pack(">ii", 3, 0), "a frame of 3 bytes"),
        (struct.pack(">ii", 16 * MIB - 3, 0), "a frame of 16777213 bytes"),
        (struct.pack(">ii", 2**31 - 1, 0), "a frame of 2147483647 bytes"),
        (struct.pack(">ii", 10, 7), "a header of 7 bytes in a frame of 10"),
        (struct.pack(">ii", 10, 2 << 24), "header encoding 2"),
        (struct.pack(">ii", 10, -1), "header encoding 255"),
        (bytes.fromhex("1603010200010001fc"), "TLS handshake"),
        (b"GET / HTTP/1.1\r\n\r\n", "looks like text"),
        (b"HELO example.org\r\n", "looks like text"),
    ],
)
def test_malformed_frame_is_refused(data: bytes, reason: str) -> None:
    """By its first eight bytes, which the error shows."""
    with pytest.raises(RemoteProtocolError, match=reason):
        FrameDecoder().feed(data)


def test_frame_limit_includes_the_length_field() -> None:
    """A frame of the limit's size is accepted, as by Apache's decoder; one byte more is refused."""
    data = frame(b"x" * 100)
    assert len(FrameDecoder(max_frame=len(data)).feed(data)) == 1
    with pytest.raises(RemoteProtocolError, match="allowed are 4 to"):
        FrameDecoder(max_frame=len(data) - 1).feed(data)


def test_valid_frames_before_garbage_are_returned() -> None:
    """Afterwards the decoder refuses all data."""
    decoder = FrameDecoder()
    assert len(decoder.feed(frame(b"good") + struct.pack(">ii", -1, -1))) == 1
    assert decoder.failure is not None
    with pytest.raises(RemoteProtocolError, match="a frame of -1 bytes"):
        decoder.feed(frame(b"too late"))


def test_valid_frames_of_an_earlier_buffer_are_returned() -> None:
    """Also if the garbage comes with a later read."""
    decoder = FrameDecoder()
    good = frame(b"x" * 60_000)
    assert len(decoder.feed(good + good + b"\xff" * 100)) == 2
    assert decoder.failure is not None


def test_memory_grows_with_received_bytes_only() -> None:
    """A peer that announces a large frame and sends little of it costs little."""
    tracemalloc.start()
    decoders = [FrameDecoder() for _ in range(10)]
    for decoder in decoders:
        decoder.feed(struct.pack(">ii", 16 * MIB - 4, 100) + b"{}")
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 12 * MIB


def test_memory_is_released_after_a_large_frame() -> None:
    """The decoder is then as small as before."""
    tracemalloc.start()
    decoder = FrameDecoder()
    for command in decoder.feed(frame(bytes(8 * MIB))):
        del command
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert decoder.pending == 0
    assert used < MIB


def test_kept_buffer_serves_the_next_large_frame() -> None:
    """It neither shrinks nor grows between two frames, and is released at last."""
    decoder = FrameDecoder(keeps_buffer=True)
    sizes = set()
    for _ in range(3):
        assert len(decoder.feed(frame(bytes(MIB)))) == 1
        sizes.add(decoder.capacity)
    assert len(sizes) == 1
    assert sizes.pop() >= MIB
    decoder.shrink()
    assert decoder.capacity == FrameDecoder.IDLE_SIZE


def test_pending_counts_bytes_of_incomplete_frames() -> None:
    """Complete frames do not count."""
    decoder = FrameDecoder()
    decoder.feed(frame(b"x") + frame(b"y")[:20])
    assert decoder.pending == 20


def test_buffer_grows_with_reads_and_shrinks_when_idle() -> None:
    """A connection that sends rarely has a small buffer, one that fills it a large one."""
    decoder = FrameDecoder()
    decoder.feed(frame(b"now and then"))
    assert decoder.capacity == FrameDecoder.IDLE_SIZE
    burst = b"".join(frame(b"x" * 100, n) for n in range(200))
    assert len(decoder.feed(burst)) == 200
    assert decoder.capacity == FrameDecoder.BUFFER_SIZE
    decoder.shrink()
    assert decoder.capacity == FrameDecoder.IDLE_SIZE


def test_incomplete_frame_survives_shrinking() -> None:
    """A buffer with data in it is kept."""
    decoder, data = FrameDecoder(), frame(b"x" * 30_000)
    decoder.feed(data[:20_000])
    decoder.shrink()
    (command,) = decoder.feed(data[20_000:])
    assert command.body == b"x" * 30_000


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60_000)), max_size=12), st.randoms())
def test_decoders_with_a_shared_buffer_do_not_mix_their_bytes(
    sent: list[tuple[int, int]], chance: random.Random
) -> None:
    """Each keeps its incomplete frame for itself, however frames are split."""
    room = ReceiveBuffer()
    decoders = [FrameDecoder(shared=room) for _ in range(3)]
    streams = [b"".join(frame(bytes([who]) * size, who) for to, size in sent if to == who) for who in range(3)]
    got: list[list[int]] = [[], [], []]
    while any(streams):
        who = chance.choice([who for who in range(3) if streams[who]])
        cut = chance.randint(1, 70_000)
        for command in decoders[who].feed(streams[who][:cut]):
            assert set(command.body) <= {who}
            got[who].append(len(command.body))
        streams[who] = streams[who][cut:]
        if chance.random() < 0.2:
            decoders[who].shrink()
    assert got == [[size for to, size in sent if to == who] for who in range(3)]
    assert [decoder.pending for decoder in decoders] == [0, 0, 0]


def test_bytes_of_others_stay_where_they_are_when_a_decoder_settles() -> None:
    """They lie behind its own, and are decoded later; the next read must not overwrite them."""
    room = ReceiveBuffer()
    first, second, third = (FrameDecoder(shared=room) for _ in range(3))
    for decoder, data in ((first, frame(b"first")[:20]), (second, frame(b"second")), (third, frame(b"third"))):
        decoder.writable()[: len(data)] = data
        decoder.put(len(data))
        if decoder is second:
            first.settle()
    for decoder, body in ((second, b"second"), (third, b"third")):
        command = decoder.next()
        assert command is not None
        assert command.body == body
    assert first.feed(frame(b"first")[20:])[0].body == b"first"


def test_complete_frames_need_no_buffer_of_their_own() -> None:
    """Only incomplete ones do, until the connection is idle; a failed decoder does not affect the others."""
    room = ReceiveBuffer()
    idle, busy, broken = (FrameDecoder(shared=room) for _ in range(3))
    assert len(idle.feed(frame(b"heartbeat") * 3)) == 3
    with pytest.raises(RemoteProtocolError):
        broken.feed(b"\xff" * 64)
    busy.feed(frame(b"x" * 100)[:20])
    assert [decoder._view is room.view for decoder in (idle, busy)] == [True, False]
    assert busy.capacity == FrameDecoder.IDLE_SIZE
    assert len(busy.feed(frame(b"x" * 100)[20:])) == 1
    busy.shrink()
    assert busy._view is room.view


@pytest.mark.parametrize("announced", [100_000, 8 * MIB])
def test_frame_buffer_is_at_most_twice_the_received_bytes(announced: int) -> None:
    """Whatever size is announced; the first kilobyte fits the initial buffer."""
    decoder = FrameDecoder()
    frame = b"".join(map(bytes, RemotingCommand.request(10, body=bytes(announced)).encode()))
    sent = 0
    usual = FrameDecoder.BUFFER_SIZE
    for size, most in ((1024, FrameDecoder.IDLE_SIZE), (20_000, usual), (90_000, 2 * 90_000)):
        decoder.feed(frame[sent:size])
        sent = size
        assert decoder.capacity <= most
    assert [len(command.body) for command in decoder.feed(frame[sent:])] == [announced]


def test_header_beyond_the_limit_is_not_read() -> None:
    """It is refused by its announced size; one of the limit's size is read."""
    fields = {"a": "x" * 1000}
    header = b"".join(map(bytes, RemotingCommand.request(10, ext_fields=fields).encode()))
    size = len(header) - 8
    assert len(FrameDecoder(max_header=size).feed(header)) == 1
    with pytest.raises(RemoteProtocolError, match=f"a header of {size} bytes, at most {size - 1} are allowed"):
        FrameDecoder(max_header=size - 1).feed(header[:8])


@pytest.mark.parametrize("others", [b"", b"of another connection"])
def test_skipping_all_frames_frees_the_shared_buffer(others: bytes) -> None:
    """Its end, that is: the bytes of other connections behind them stay."""
    shared = ReceiveBuffer()
    decoder, other = FrameDecoder(shared=shared), FrameDecoder(shared=shared)
    whole = frame(b"one")
    for each, data in ((decoder, whole), (other, others)):
        each.writable()[: len(data)] = data
        each.put(len(data))
    assert bytes(decoder.readable()) == whole
    assert decoder.skip_all(len(whole))
    assert decoder.pending == 0
    assert other.pending == len(others)
    assert shared.used == (len(whole + others) if others else 0)


def test_skipping_some_frames_leaves_the_others() -> None:
    """They are decoded next; in a buffer of its own the decoder settles as after each read."""
    for shared in (ReceiveBuffer(), None):
        decoder = FrameDecoder(shared=shared)
        data = frame(b"one") + frame(b"two")
        decoder.writable()[: len(data)] = data
        decoder.put(len(data))
        assert not decoder.skip_all(len(frame(b"one")))
        assert decoder.pending == len(frame(b"two"))
        assert decoder.skip_all(len(frame(b"two"))) is (shared is not None)
        decoder.settle()
        assert decoder.pending == 0
        assert len(decoder.writable()) >= FrameDecoder.IDLE_SIZE
