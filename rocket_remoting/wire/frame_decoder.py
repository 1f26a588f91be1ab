"""From the bytes of a connection to commands; the layout of a frame is drawn in `command`.

This module does no I/O: whoever reads the connection puts bytes in and takes commands out.
"""

import struct
from collections.abc import Callable

from rocket_remoting.wire.command import (
    MAX_HEADER,
    PREFIX,
    RemotingCommand,
    decode_binary_header,
    decode_json_header,
)
from rocket_remoting.wire.errors import RemoteProtocolError

DEFAULT_MAX_FRAME = 16 * 1024 * 1024  # Apache's default, the length field included

_HEADER_DECODERS: tuple[Callable[[bytes], RemotingCommand], ...] = (decode_json_header, decode_binary_header)


class FrameDecoder:
    """Turns the bytes of one connection into commands.

    Bytes come in by `feed`, or without a copy by `writable` and `received`. A body is copied once, out of the
    receive buffer; a frame is refused before memory is taken for it.

    Args:
        max_frame: Most bytes of a frame, its length field included.
        max_header: Most bytes of a frame's header: reading a header takes time for each of its fields.
        shared: Room of `BUFFER_SIZE` that decoders used by turns share. Bytes are put there and taken out within one
            turn; a decoder has room of its own only once it must keep a part of a frame.
    """

    # Invariant: bytes between _start and _end of _view are received and not decoded. After `settle` they are at the
    # begin of a _view that is not _shared, or there are none. _frame is the size of the frame that `next` found to be
    # not whole, 0 if that is not known.
    __slots__ = ("_end", "_frame", "_max_frame", "_max_header", "_shared", "_start", "_view", "failure")

    BUFFER_SIZE = 64 * 1024
    IDLE_SIZE = 16 * 1024
    """What a connection begins with: thousands of them do little more than send heartbeats."""

    def __init__(
        self,
        max_frame: int = DEFAULT_MAX_FRAME,
        shared: memoryview | None = None,
        *,
        max_header: int = MAX_HEADER,
    ) -> None:
        self._max_frame = max_frame
        self._max_header = max_header
        self._shared = shared
        self._view = memoryview(bytearray(self.IDLE_SIZE)) if shared is None else shared
        self._start = self._end = self._frame = 0
        self.failure: RemoteProtocolError | None = None  # why this connection cannot be read any further

    @property
    def pending(self) -> int:
        """Bytes received and not decoded; after `received`, those of a frame that is not whole yet."""
        return self._end - self._start

    @property
    def capacity(self) -> int:
        """Bytes of the receive buffer: more once a read has filled a small one, or a frame needs it."""
        return len(self._view)

    @property
    def excess(self) -> int:
        """Bytes by which the receive buffer is larger than usual: a large frame is on its way."""
        return max(0, len(self._view) - self.BUFFER_SIZE)

    def shrink(self) -> None:
        """Give back the room of a busy time, if nothing is in it."""
        if self.pending or self._view is self._shared:
            return
        if self._shared is not None:
            self._view = self._shared
        elif self.capacity > self.IDLE_SIZE:
            self._view = memoryview(bytearray(self.IDLE_SIZE))
        self._start = self._end = 0

    def feed(self, data: bytes | bytearray | memoryview) -> list[RemotingCommand]:
        """The commands that `data` completes.

        Raises:
            RemoteProtocolError: The bytes are no frame. Whole frames before it are returned first: then
                `failure` is set at once, and the next call raises it.
        """
        commands: list[RemotingCommand] = []
        rest = memoryview(data)
        while rest and not (commands and self.failure):
            room = self.writable()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            try:
                commands += self.received(count)
            except RemoteProtocolError:
                if not commands:
                    raise
            rest = rest[count:]
        return commands

    def writable(self) -> memoryview:
        """Room for the next bytes; never empty after `settle`, unless whole frames wait. Then call `put`."""
        return self._view[self._end :]

    def put(self, count: int) -> None:
        """Take in ``count`` bytes that were put at the begin of `writable`; call `next` for what is in them."""
        self._end += count
        self._frame = 0

    def next(self) -> RemotingCommand | None:
        """Return the command of the next frame; None if that is not whole, or is none: see `failure`."""
        view, start = self._view, self._start
        received = self._end - start
        if received < 8 or self.failure is not None:
            return None
        length, word = PREFIX.unpack_from(view, start)
        header_length = word & MAX_HEADER
        frame = length + 4
        try:
            if frame > self._max_frame or header_length > length - 4 or word > 0x1FFFFFF:
                raise RemoteProtocolError(_refusal(bytes(view[start : start + 8]), self._max_frame))
            if header_length > self._max_header:
                raise RemoteProtocolError(
                    f"a header of {header_length} bytes, at most {self._max_header} are read"
                )
            if received < frame:
                self._frame = frame
                return None
            header_end = start + 8 + header_length
            command: RemotingCommand = _HEADER_DECODERS[word >> 24](bytes(view[start + 8 : header_end]))
        except RemoteProtocolError as error:
            self.failure = error
            return None
        self._start = end = start + frame
        command.body = bytes(view[header_end:end])
        return command

    def received(self, count: int) -> list[RemotingCommand]:
        """The commands that `count` bytes, put at the begin of `writable`, complete.

        Raises:
            RemoteProtocolError: As `feed` does.
        """
        commands: list[RemotingCommand] = []
        if self.failure is None:
            self.put(count)
            commands += iter(self.next, None)
            self.settle()
        if self.failure is not None and not commands:
            raise self.failure
        return commands

    def settle(self) -> None:
        """Keep what is not decoded in room of this decoder's own, and leave room for more: this turn ends."""
        pending = self._end - self._start
        frame = self._frame
        if self._view is self._shared:
            if pending:
                self._move(self._grown(self.IDLE_SIZE, max(frame, pending), pending))
            self._start, self._end = 0, pending
            return
        capacity = len(self._view)
        # A read that filled the buffer may have left more behind.
        size = max(capacity, self.BUFFER_SIZE) if self._end == capacity else capacity
        if not pending:
            self._start = self._end = 0
            size = min(size, self.BUFFER_SIZE)
            if size != capacity:
                self._view = memoryview(bytearray(size)) if self._shared is None else self._shared
        elif self._end == capacity or self._start + frame > capacity:
            size = self._grown(size, frame, pending)
            if self._start or size != capacity:
                self._move(size)

    def _grown(self, size: int, frame: int, pending: int) -> int:
        """Return how many bytes of room a frame gets: at most twice what has come of it, whatever it announces."""
        if frame <= size:
            return size
        return max(size, self.IDLE_SIZE, min(frame, 2 * pending))

    def _move(self, size: int) -> None:
        """Put what is pending at the begin of room of its own."""
        pending = self.pending
        stays = size == len(self._view) and self._view is not self._shared
        target = self._view if stays else memoryview(bytearray(size))
        target[:pending] = self._view[self._start : self._end]
        self._view = target
        self._start, self._end = 0, pending


def _refusal(prefix: bytes, max_frame: int) -> str:
    length, header_word = struct.unpack(">ii", prefix)
    read = f"read {prefix.hex(' ')}"
    if prefix[0] == 0x16:
        return f"this looks like a TLS handshake, which is not served here ({read})"
    if prefix[:4].isalpha() or prefix[:4] in (b"GET ", b"PUT "):
        return f"this looks like text, not a frame ({prefix!r})"
    if length < 4 or length + 4 > max_frame:
        return f"a frame of {length} bytes, allowed are 4 to {max_frame - 4} ({read})"
    encoding, header_length = header_word >> 24 & 0xFF, header_word & MAX_HEADER
    if encoding > 1:
        return f"header encoding {encoding}, known are 0 (JSON) and 1 (ROCKETMQ) ({read})"
    return f"a header of {header_length} bytes in a frame of {length} ({read})"
