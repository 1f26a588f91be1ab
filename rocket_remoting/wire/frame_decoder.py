"""The decoder of a connection's bytes into commands; `command` draws the layout of a frame.

::

    _view    |  decoded  |  frames that are whole  |  begin of a frame  |  free  |
             0        _start                                          _end    len(_view)
                         └── next() takes one frame after the other     └── writable()

A connection with nothing to decode needs no memory of its own: all connections of a server share one `ReceiveBuffer`.
Its part is ``_origin`` to ``_end`` from a read until `settle`. Only when a frame is incomplete after a read does
`settle` move its bytes into a buffer of the connection's own. That buffer grows to at most twice the bytes that have
really come, so that a peer cannot take memory with a large length field; it is given back when the frame is complete.

This module does no I/O: the caller puts bytes in and takes commands out.
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
from rocket_remoting.wire.receive_buffer import BUFFER_SIZE, ReceiveBuffer

DEFAULT_MAX_FRAME = 16 * 1024 * 1024  # Apache's default, the length field included

_NOTHING = memoryview(b"")
_HEADER_DECODERS: tuple[Callable[[bytes], RemotingCommand], ...] = (decode_json_header, decode_binary_header)


class FrameDecoder:
    """Decodes the bytes of one connection into commands.

    Give it bytes with `feed`; or without a copy with `writable` and `received`, or with `writable`, `put`, `next` and
    `settle`. A body is copied once, out of the receive buffer. A frame that is too large is refused before memory is
    allocated for it.

    Args:
        max_frame: Maximum number of bytes of a frame, its length field included.
        max_header: Maximum number of bytes of a frame's header, because decoding takes time for each header field.
        shared: The memory that several decoders share; see the module. After a read, `settle` must come before the
            decoder's next read.
        keeps_buffer: Whether a buffer that has grown for a large frame stays for the next one, until `shrink`. It is
            for a reader of many large frames: to grow a buffer anew takes longer than to read the frame.

    Attributes:
        excess: Bytes of the decoder's own buffer beyond `BUFFER_SIZE`, allocated for a large frame.
        failure: Why the connection cannot be decoded any further; None if it can.
    """

    # Invariant: the bytes from _start to _end of _view are received and not decoded. After `settle` they are at the
    # begin of a _view that is not the shared one, or there are none. _frame is the size of the frame that `next` found
    # to be incomplete; 0 if that is not known.
    __slots__ = (
        "_end", "_frame", "_kept_size", "_max_frame", "_max_header", "_origin", "_shared", "_start", "_view", "excess",
        "failure",
    )  # fmt: skip

    BUFFER_SIZE = BUFFER_SIZE
    IDLE_SIZE = 16 * 1024
    """Bytes of a decoder's first buffer of its own. It is small because most connections only send heartbeats."""

    def __init__(
        self,
        max_frame: int = DEFAULT_MAX_FRAME,
        shared: ReceiveBuffer | None = None,
        *,
        max_header: int = MAX_HEADER,
        keeps_buffer: bool = False,
    ) -> None:
        self._max_frame = max_frame
        self._kept_size = max(max_frame, self.BUFFER_SIZE) if keeps_buffer else self.BUFFER_SIZE
        self._max_header = max_header
        self._shared = shared
        self._view = memoryview(bytearray(self.IDLE_SIZE)) if shared is None else shared.view
        self.excess = 0
        self._origin = self._start = self._end = self._frame = 0
        self.failure: RemoteProtocolError | None = None

    @property
    def pending(self) -> int:
        """Bytes received and not decoded; after `received`, those of an incomplete frame."""
        return self._end - self._start

    @property
    def is_full(self) -> bool:
        """Whether the last read filled the receive buffer, so that the socket may have more bytes."""
        return self._end == len(self._view)

    @property
    def capacity(self) -> int:
        """Bytes of the receive buffer."""
        return len(self._view)

    @property
    def _is_shared(self) -> bool:
        return self._shared is not None and self._view is self._shared.view

    def shrink(self) -> None:
        """Replace an empty receive buffer by the shared one, or by a small one."""
        if self.pending or self._is_shared:
            return
        self.excess = 0
        if self._shared is not None:
            self._view = self._shared.view
        elif self.capacity > self.IDLE_SIZE:
            self._view = memoryview(bytearray(self.IDLE_SIZE))
        self._start = self._end = 0

    def feed(self, data: bytes | bytearray | memoryview) -> list[RemotingCommand]:
        """Decode `data`; return the commands that it completes.

        Raises:
            RemoteProtocolError: A frame is invalid. Complete frames before it are returned first; in that case this
                call sets `failure`, and the next call raises it.
        """
        commands: list[RemotingCommand] = []
        rest = memoryview(data)
        while rest and not (commands and self.failure):
            # `received` has settled the buffer, so `writable` is not empty here, and each turn of this loop
            # takes bytes.
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
        """Return the free part of the receive buffer. Put bytes at its start, then call `put` or `received`.

        It is never empty after `settle`.
        """
        shared, view = self._shared, self._view
        if shared is not None and view is shared.view:
            self._origin = self._start = self._end = used = shared.used
            return view[used:] if used else view
        if self._end == len(view):  # full of whole frames that have not been taken with `next`
            self._move(self.pending + self.BUFFER_SIZE)
        return self._view[self._end :]

    def put(self, count: int) -> None:
        """Add ``count`` bytes that were put at the beginning of `writable`; `next` then returns the frames in them."""
        self._end += count
        self._frame = 0
        shared = self._shared
        if shared is not None and self._view is shared.view:
            shared.used = self._end

    def readable(self) -> memoryview:
        """Return the received bytes, at least the whole next frame; empty if the next frame is incomplete or invalid.

        They are at most `BUFFER_SIZE` bytes, unless the next frame is larger. See `skip`.
        """
        start, end, view = self._start, self._end, self._view
        size = end - start
        if size < 8 or self.failure is not None:
            return _NOTHING
        length, _ = PREFIX.unpack_from(view, start)
        frame: int = length + 4
        if frame > size:
            return _NOTHING
        if size > BUFFER_SIZE:
            end = min(end, start + max(frame, BUFFER_SIZE))
        return view[start:end]

    def skip(self, count: int) -> int:
        """Take out the first ``count`` bytes of `readable`, the frames that were handled without `next`.

        Returns:
            The received bytes that are left, as `pending`.
        """
        self._start += count
        return self._end - self._start

    def skip_all(self, count: int) -> bool:
        """Take out the first ``count`` bytes of `readable`, as `skip` does; settle if nothing is left.

        A buffer of the decoder's own stays as it is.

        Returns:
            Whether nothing is left and the decoder is settled.
        """
        start = self._start + count
        shared = self._shared
        if start == self._end and shared is not None and self._view is shared.view:
            if shared.used == start:
                shared.used = self._origin
            self._origin = self._start = self._end = 0
            return True
        self._start = start
        return False

    def next(self) -> RemotingCommand | None:
        """Return the command of the next frame.

        None if the frame is incomplete; also None if it is invalid, and then `failure` is set.
        """
        view, start = self._view, self._start
        received = self._end - start
        if received < 8 or self.failure is not None:
            return None
        # Both numbers are read unsigned. A negative length of a hostile or foreign peer becomes one above 2
        # GiB, which the limit refuses without a check of its own.
        length, word = PREFIX.unpack_from(view, start)
        header_length = word & MAX_HEADER
        frame = length + 4
        try:
            # All checks need only these eight bytes. So a wrong frame is refused at once, and not after the
            # peer has sent it. The last check is of the encoding: a top byte above 1.
            if frame > self._max_frame or header_length > length - 4 or word > 0x1FFFFFF:
                raise RemoteProtocolError(_refusal(bytes(view[start : start + 8]), self._max_frame))
            if header_length > self._max_header:
                raise RemoteProtocolError(f"a header of {header_length} bytes, at most {self._max_header} are allowed")
            if received < frame:
                self._frame = frame
                return None
            header_end = start + 8 + header_length
            command: RemotingCommand = _HEADER_DECODERS[word >> 24](bytes(view[start + 8 : header_end]))
        except RemoteProtocolError as error:
            self.failure = error
            return None
        # Only a decoded frame is taken out of the buffer; after a failure its bytes stay, and `next`
        # returns None forever.
        self._start = end = start + frame
        # A copy: the receive buffer is overwritten by the next read, perhaps of another connection.
        command.body = bytes(view[header_end:end])
        return command

    def received(self, count: int) -> list[RemotingCommand]:
        """Decode `count` bytes that were put at the beginning of `writable`; return the commands that they complete.

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
        """Move undecoded bytes out of the shared buffer, and make space for more; call it after the last `next`."""
        pending = self._end - self._start
        frame = self._frame
        shared = self._shared
        if shared is not None and self._view is shared.view:
            if shared.used == self._end:  # otherwise the bytes of others lie behind these
                shared.used = self._origin
            if pending:
                self._move(self._grown(self.IDLE_SIZE, max(frame, pending), pending))
            self._origin, self._start, self._end = 0, 0, pending
            return
        capacity = len(self._view)
        if not pending and self._end < capacity <= self._kept_size:
            self._start = self._end = 0
            return
        # A read that filled the buffer may have left more bytes in the socket: the next read should be larger.
        size = max(capacity, self.BUFFER_SIZE) if self._end == capacity else capacity
        if not pending:
            self._start = self._end = 0
            size = min(size, self._kept_size)
            if size != capacity:
                self._view = memoryview(bytearray(size)) if self._shared is None else self._shared.view
                self.excess = 0
        # Otherwise the next read has room behind the pending bytes: for the whole frame, if its size is known.
        elif self._end == capacity or self._start + frame > capacity:
            size = self._grown(size, frame, pending)
            if self._start or size != capacity:
                self._move(size)

    def _grown(self, size: int, frame: int, pending: int) -> int:
        """Return the buffer size for an incomplete frame: at most twice its received bytes, whatever its length."""
        if frame <= size:
            return size
        return max(size, self.IDLE_SIZE, min(frame, 2 * pending))

    def _move(self, size: int) -> None:
        """Move the pending bytes to the beginning of a buffer of `size` bytes that is not shared."""
        pending = self.pending
        stays = size == len(self._view) and not self._is_shared
        target = self._view if stays else memoryview(bytearray(size))
        # Source and target may overlap if the buffer stays the same; a memoryview copies overlapping ranges correctly.
        target[:pending] = self._view[self._start : self._end]
        self._view = target
        self.excess = max(0, size - self.BUFFER_SIZE)
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
