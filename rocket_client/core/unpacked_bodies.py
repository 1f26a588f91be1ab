"""Decompresses the bodies of messages when their turn comes, so that few of them are in memory at once.

::

    pulled          the body stays compressed: a queue's size counts the bytes that are here
    its turn        up to 256 KiB decompressed: at once, on the loop
                    more: when there is room for it among the others, in a thread
    consumed        the room is free again; what goes back to a broker is the body as it was stored

A consumer is given a message of its own with the body decompressed. A body that is damaged or exceeds the limit is
given to nobody: whoever asked gets an error instead, and says what becomes of the message.
"""

import asyncio
import copy
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from rocket_client.errors import UnreadableBodyError
from rocket_client.settings import ClientSettings
from rocket_remoting.wire.compression import BodyTooLargeError, decompress
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.message import MessageExt
from rocket_remoting.wire.sys_flag import COMPRESSED

SMALL_SIZE = 256 * 1024
"""Bytes that are decompressed on the loop for one call, which takes it less than a millisecond; they take no room."""


@dataclass(slots=True)
class Unpacked:
    """The messages of a call, as far as their bodies have been decompressed.

    Attributes:
        messages: The first messages of the call, as an application gets them.
        room: The bytes that they take of the room for large bodies.
        growth: The bytes by which their bodies have grown.
        error: Why the message behind them cannot be decompressed; None if it can, or there is none.
    """

    messages: list[MessageExt]
    room: int = 0
    growth: int = 0
    error: UnreadableBodyError | None = None

    def is_whole(self, messages: Sequence[MessageExt]) -> bool:
        """Return whether nothing is left to be decompressed of the messages of the call."""
        return self.error is not None or len(self.messages) == len(messages)


def is_compressed(messages: Sequence[MessageExt]) -> bool:
    """Return whether a body among the messages is compressed."""
    for message in messages:  # noqa: SIM110  # asked of every call: a generator would take five times as long
        if message.sys_flag & COMPRESSED:
            return True
    return False


class UnpackedBodies:
    """The decompressed bodies of one member that are in memory now."""

    def __init__(self, settings: ClientSettings) -> None:
        """Make it empty.

        Args:
            settings: How large one body, and all of them, may be.
        """
        self._limit = settings.max_decompressed_body_size
        self._room = settings.max_decompressed_size
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __repr__(self) -> str:
        return f"<UnpackedBodies: {self._taken} bytes of {self._room}, {len(self._waiting)} wait>"

    def unpack_small(self, messages: Sequence[MessageExt]) -> Unpacked:
        """Decompress the bodies of the first messages, as many as are small; they take no room."""
        unpacked = Unpacked([])
        _unpack(messages, unpacked, self._limit, SMALL_SIZE)
        unpacked.room = 0
        return unpacked

    async def unpack(self, messages: Sequence[MessageExt]) -> Unpacked:
        """Decompress the bodies of the first messages, as many as are small or as there is room for now.

        If the first body is large, wait for room. The room is taken until `release` gets the result's room.
        """
        unpacked = self.unpack_small(messages)
        return unpacked if unpacked.is_whole(messages) else await self.unpack_large(messages, unpacked)

    async def unpack_large(self, messages: Sequence[MessageExt], unpacked: Unpacked) -> Unpacked:
        """Do the same where `unpack_small` has left messages."""
        rest = messages[len(unpacked.messages) :]
        if unpacked.messages and not self._has_room:
            return unpacked
        await self._take_room()
        more = Unpacked([])
        try:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, _unpack, rest, more, self._limit, self._limit)
        except BaseException:
            self.release(self._limit)
            raise
        self.release(self._limit - more.room)
        growth = unpacked.growth + more.growth
        return Unpacked(unpacked.messages + more.messages, more.room, growth, more.error)

    def release(self, size: int) -> None:
        """Give room back."""
        self._taken -= size
        while self._waiting and self._has_room:
            turn = self._waiting.popleft()
            if not turn.done():
                self._taken += self._limit
                turn.set_result(None)

    @property
    def _has_room(self) -> bool:
        """Whether there is room for a body of any size that is allowed."""
        return self._taken + self._limit <= self._room

    async def _take_room(self) -> None:
        """Return when room for a body of any size has been taken for the caller; first come, first served."""
        if not self._waiting and self._has_room:
            self._taken += self._limit
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(self._limit)
            raise


def _unpack(messages: Sequence[MessageExt], unpacked: Unpacked, limit: int, room: int) -> None:
    """Decompress the bodies of the first messages, as many as fit into so many bytes.

    Args:
        messages: The messages of a call.
        unpacked: What takes them.
        limit: Bytes that a body may have.
        room: Bytes that all of them may have.
    """
    for message in messages:
        if not message.sys_flag & COMPRESSED:
            unpacked.messages.append(message)
            continue
        left = min(limit, room - unpacked.room)
        try:
            body = decompress(message.body, message.sys_flag, left)
        except RemoteProtocolError as error:
            if left == limit or not isinstance(error, BodyTooLargeError):
                unpacked.error = UnreadableBodyError(message, error)
            return
        unpacked.room += len(body)
        unpacked.growth += len(body) - len(message.body)
        unpacked.messages.append(_with_body(message, body))


def _with_body(message: MessageExt, body: bytes) -> MessageExt:
    """Return a message of the same contents whose body is decompressed."""
    found = copy.copy(message)
    found.body = body
    found.sys_flag &= ~COMPRESSED
    return found
