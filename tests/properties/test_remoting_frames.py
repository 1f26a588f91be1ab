"""Frames: every command round-trips, and arbitrary bytes are commands or a protocol error."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from rocket_remoting.wire.command import HeaderEncoding, RemotingCommand
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.frame_decoder import FrameDecoder

int32 = st.integers(-(2**31), 2**31 - 1)
short = st.integers(-(2**15), 2**15 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
fields = st.dictionaries(texts, texts, max_size=8)
MAX_FRAME = 100_000


@st.composite
def commands(draw: st.DrawFn) -> RemotingCommand:
    """Generate a command."""
    encoding = draw(st.sampled_from(HeaderEncoding))
    return RemotingCommand(
        code=draw(short),
        opaque=draw(int32),
        flag=draw(int32),
        body=draw(st.binary(max_size=300)),
        remark=draw(st.none() | texts.filter(bool)),
        encoding=encoding,
        language=draw(st.sampled_from(["JAVA", "PYTHON", "OTHER"])),
        version=draw(short),
        extra=draw(fields),
    )


def facts(command: RemotingCommand) -> tuple[object, ...]:
    """Return all fields of a command."""
    return (
        command.code,
        command.opaque,
        command.flag,
        bytes(command.body),
        command.remark,
        command.encoding,
        command.language,
        command.version,
        command.ext_fields,
    )


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    """Return the bytes split at these places."""
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


@given(st.lists(commands(), max_size=5), st.lists(st.integers(0, 10_000), max_size=12))
def test_commands_round_trip_however_frames_are_split(sent: list[RemotingCommand], cuts: list[int]) -> None:
    """In both encodings."""
    data = b"".join(piece for command in sent for piece in command.encode())
    decoder = FrameDecoder(MAX_FRAME)
    received = [command for chunk in chunks(data, cuts) for command in decoder.feed(chunk)]
    assert [facts(command) for command in received] == [facts(command) for command in sent]
    assert decoder.pending == 0


@given(commands(), st.sampled_from(HeaderEncoding))
def test_decoded_command_can_be_encoded_again(command: RemotingCommand, encoding: HeaderEncoding) -> None:
    """With the same content."""
    (received,) = FrameDecoder().feed(b"".join(command.encode()))
    (again,) = FrameDecoder().feed(b"".join(received.encode()))
    assert facts(again) == facts(command)


def drain(data: bytes, cuts: list[int]) -> list[RemotingCommand]:
    """Return the commands of any bytes until they are refused; every field is read."""
    decoder, received = FrameDecoder(MAX_FRAME), []
    try:
        for chunk in chunks(data, cuts):
            for command in decoder.feed(chunk):
                received.append(command)
                assert command.ext_fields is not None
                assert repr(command)
    except RemoteProtocolError:
        pass
    assert len(decoder.writable()) <= MAX_FRAME
    return received


@given(st.binary(max_size=2000), st.lists(st.integers(0, 10_000), max_size=5))
def test_garbage_is_a_protocol_error(data: bytes, cuts: list[int]) -> None:
    """Whatever the bytes."""
    drain(data, cuts)


@given(st.binary(max_size=300), st.integers(0, 3), st.integers(0, 400), st.binary(max_size=50))
def test_garbage_in_a_frame_is_a_protocol_error(header: bytes, encoding: int, length: int, body: bytes) -> None:
    """Within valid or nearly valid lengths."""
    frame = struct.pack(">II", 4 + len(header) + len(body), encoding << 24 | length) + header + body
    drain(frame, [])


@given(commands(), st.integers(0, 10_000), st.integers(0, 255))
def test_changed_byte_is_a_command_or_a_protocol_error(command: RemotingCommand, position: int, value: int) -> None:
    """One byte of a valid frame."""
    frame = bytearray(b"".join(command.encode()))
    frame[position % len(frame)] = value
    drain(bytes(frame), [])
