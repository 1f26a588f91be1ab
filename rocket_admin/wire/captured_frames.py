"""The commands in the bytes of one direction of a captured connection, some of which may be missing. No I/O.

A frame says its length, so most of what is missing costs no more than the commands that it belongs to. If the length
itself is missing, or the capture begins later than the connection, the next command is found by its first bytes::

    length (4)   encoding 0 (1)   length of the header (3)   {"…          JSON
    length (4)   encoding 1 (1)   length of the header (3)   code (2) …   ROCKETMQ
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec

from rocket_admin.wire.reassembly import Chunk, Gap
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    HeaderEncoding,
    RemotingCommand,
    decode_binary_header,
    decode_json_header,
)
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.frame_decoder import DEFAULT_MAX_FRAME

__all__ = ["CapturedFrame", "CapturedFrames", "Fault"]

PREFIX: Final = 8
"""Bytes of a frame before its header."""
LONGEST_SEARCHED: Final = 64 * 1024
"""A longer header (bytes) is not taken for one in a search."""

_BEGIN: Final = re.compile(rb'(?=[\x00\x01][\x00-\xff]{3}(?:\x00[\x00-\xff]{3}\{"|\x01[\x00-\xff]{3}[\x00-\x7f]))')
_LONGEST_BEGIN: Final = 10
_KNOWN: Final = {*map(int, RequestCode), *map(int, ResponseCode)}


class CapturedFrame(msgspec.Struct, frozen=True):
    """A command.

    Attributes:
        at: When its last byte was captured.
        command: The command; without a body if bytes of that are missing.
        body_size: Bytes of its body.
    """

    at: datetime
    command: RemotingCommand
    body_size: int

    @property
    def lacks_body(self) -> bool:
        """Whether bytes of the body were not captured."""
        return len(self.command.body) < self.body_size


class Fault(msgspec.Struct, frozen=True):
    """Bytes that are not commands, or were not captured.

    Attributes:
        at: When they were captured, or those behind them.
        reason: What is wrong.
        goes_on: Whether commands behind them are read.
    """

    at: datetime
    reason: str
    goes_on: bool


class CapturedFrames:
    """Cuts the bytes of one direction into commands.

    Attributes:
        found: Commands that were read.
    """

    def __init__(self) -> None:
        self.found = 0
        self._waiting = bytearray()
        self._at: datetime | None = None
        # Bytes of the present frame that are not wanted any more.
        self._skipped = 0
        self._is_searching = self._is_given_up = False
        # Whether every byte since the connection began was seen: if not, wrong bytes may be the search's mistake.
        self._is_whole = True
        self._passed_over = 0

    @property
    def waiting(self) -> int:
        """Bytes of an incomplete command."""
        return len(self._waiting)

    def take(self, part: Chunk | Gap) -> Iterator[CapturedFrame | Fault]:
        """Yield the commands that the next bytes complete, and what is wrong with them."""
        if self._is_given_up:
            return
        if isinstance(part, Gap):
            self._is_whole = False
            yield from self._over(part)
            return
        skipped = min(self._skipped, len(part.data))
        self._skipped -= skipped
        if skipped == len(part.data):
            return
        self._at = part.at if self._at is None or not self._waiting else max(self._at, part.at)
        self._waiting += part.data[skipped:] if skipped else part.data
        yield from self._frames(self._at, part.at)

    def end(self) -> Iterator[CapturedFrame | Fault]:
        """Yield what is left when no more bytes come."""
        if self._is_given_up or self._at is None:
            return
        yield from self._frames(self._at, self._at, is_end=True)
        if self._waiting and not self._is_searching:
            yield Fault(self._at, f"the capture ends within a command, after {len(self._waiting):,} bytes of it", False)
        elif self._skipped:
            yield Fault(self._at, f"the last {self._skipped:,} bytes of a command are missing in the capture", False)
        self._is_given_up = True
        self._waiting.clear()

    def _frames(self, at: datetime, latest: datetime, *, is_end: bool = False) -> Iterator[CapturedFrame | Fault]:
        while not self._is_given_up:
            if self._is_searching:
                place, is_found = self._search(is_end=is_end)
                self._passed_over += place
                del self._waiting[:place]
                if not is_found:
                    return
                self._is_searching = False
                if self._passed_over:
                    lost = f"{self._passed_over:,} bytes before the next command belong to one whose begin is missing"
                    yield Fault(at, lost, True)
                self._passed_over = 0
            frame = self._next_frame(at)
            if frame is None:
                return
            at = latest  # what comes behind it came with the last bytes
            self.found += isinstance(frame, CapturedFrame)
            yield frame

    def _next_frame(self, at: datetime) -> CapturedFrame | Fault | None:
        """Take out the next whole frame."""
        waiting = self._waiting
        if len(waiting) < PREFIX:
            return None
        size, encoding, header = int.from_bytes(waiting[:4]) + 4, waiting[4], int.from_bytes(waiting[5:PREFIX])
        if size > DEFAULT_MAX_FRAME or header + PREFIX > size or encoding > 1:
            return self._refused(at, "TLS" if waiting[0] == 0x16 else "these bytes are not a command of RocketMQ")
        if size > len(waiting):
            return None
        data = bytes(waiting[:size])
        del waiting[:size]
        try:
            command = _decoded(encoding, data[PREFIX : PREFIX + header])
        except RemoteProtocolError as error:
            return Fault(at, str(error), True)
        command.body = data[PREFIX + header :]
        return CapturedFrame(at, command, size - PREFIX - header)

    def _refused(self, at: datetime, reason: str) -> Fault:
        if self._is_whole:
            self._is_given_up = True
            self._waiting.clear()
            return Fault(at, reason, False)
        del self._waiting[:1]
        self._is_searching = True
        return Fault(at, reason, True)

    def _over(self, gap: Gap) -> Iterator[CapturedFrame | Fault]:
        """Go over bytes that are missing."""
        self._at = gap.at
        if gap.size is None:
            self._is_searching = True
            return
        size = gap.size
        if not self._is_searching and self._waiting:
            yield self._incomplete(gap.at)
        skipped = min(self._skipped, size)
        self._skipped -= skipped
        if skipped == size:
            return
        self._passed_over += len(self._waiting)
        self._waiting.clear()
        if not self._is_searching:
            yield Fault(gap.at, f"{size - skipped:,} bytes are missing in the capture", True)
        self._is_searching = True

    def _incomplete(self, at: datetime) -> CapturedFrame | Fault:
        """Take out the frame that a gap interrupts: its header says what it was, if that is there."""
        waiting = bytes(self._waiting)
        self._waiting.clear()
        size = int.from_bytes(waiting[:4]) + 4
        if len(waiting) < PREFIX or size > DEFAULT_MAX_FRAME:
            self._is_searching = True
            return Fault(at, "the beginning of a command is missing in the capture", True)
        self._skipped = max(0, size - len(waiting))
        encoding, header = waiting[4], int.from_bytes(waiting[5:PREFIX])
        if len(waiting) >= PREFIX + header and encoding <= 1:
            try:
                command = _decoded(encoding, waiting[PREFIX : PREFIX + header])
            except RemoteProtocolError:
                pass
            else:
                self.found += 1
                return CapturedFrame(at, command, size - PREFIX - header)
        return Fault(at, f"bytes of a command of {size:,} bytes are missing in the capture", True)

    def _search(self, *, is_end: bool) -> tuple[int, bool]:
        """Search the next command; return the bytes before it or where it may yet begin, and whether it was found."""
        waiting = self._waiting
        for found in _BEGIN.finditer(waiting):
            place = found.start()
            size, encoding = int.from_bytes(waiting[place : place + 4]) + 4, waiting[place + 4]
            header = int.from_bytes(waiting[place + 5 : place + PREFIX])
            begin = place + PREFIX
            if size > DEFAULT_MAX_FRAME or header + PREFIX > size or header > LONGEST_SEARCHED:
                continue
            if begin + header > len(waiting):
                if is_end:
                    continue
                return place, False
            if _looks_right(encoding, bytes(waiting[begin : begin + header])):
                return place, True
        return max(0, len(waiting) - _LONGEST_BEGIN + 1), False


def _decoded(encoding: int, header: bytes) -> RemotingCommand:
    return decode_json_header(header) if encoding == HeaderEncoding.JSON else decode_binary_header(header)


def _looks_right(encoding: int, header: bytes) -> bool:
    if encoding == HeaderEncoding.JSON and not header.endswith(b"}"):
        return False
    try:
        command = _decoded(encoding, header)
    except RemoteProtocolError:
        return False
    return command.code in _KNOWN and not command.flag & ~(RESPONSE_FLAG | ONEWAY_FLAG)
