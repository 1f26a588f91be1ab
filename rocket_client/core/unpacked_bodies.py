"""Decompression of message bodies just before their consumption, within a limit of memory.

::

    pulled          the body stays compressed; a queue's size counts the compressed bytes
    before a call   up to 256 KiB: decompressed at once, on the event loop
                    more: decompressed in a thread, when enough of `max_decompressed_size` is free
    consumed        that memory is free again; if the message is sent back, its body goes as it was stored

The application gets a copy of the message with the body decompressed. For a body that is damaged or too large, the
caller gets an `UnreadableBodyError` and decides about the message.
"""

import asyncio
import copy
from collections import deque
from collections.abc import Sequence

import msgspec

from rocket_client.core.process_queue import ProcessQueue
from rocket_client.errors import UnreadableBodyError
from rocket_client.settings import ClientSettings
from rocket_remoting.wire.compression import BodyTooLargeError, decompress
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.message import MessageExt
from rocket_remoting.wire.sys_flag import COMPRESSED

SMALL_SIZE = 256 * 1024
"""Bytes that are decompressed on the event loop for one call, in less than a millisecond; they do not count."""


class Unpacked(msgspec.Struct):
    """The first messages of a call, with decompressed bodies.

    Attributes:
        messages: The first messages of the call, as the application gets them.
        reserved: Bytes of these messages that count against `max_decompressed_size`, until `UnpackedBodies.release`.
        growth: Bytes that decompression has added.
        error: Why the body of the next message cannot be decompressed; None if that was not tried or there is none.
    """

    messages: list[MessageExt]
    reserved: int = 0
    growth: int = 0
    error: UnreadableBodyError | None = None

    def is_whole(self, messages: Sequence[MessageExt]) -> bool:
        """Return whether no message of the call is left to be decompressed, or an error has stopped it."""
        return self.error is not None or len(self.messages) == len(messages)


def is_compressed(messages: Sequence[MessageExt]) -> bool:
    """Return whether the body of any of the messages is compressed."""
    for message in messages:  # noqa: SIM110  # runs for every call: a generator would take five times as long
        if message.sys_flag & COMPRESSED:
            return True
    return False


class UnpackedBodies:
    """The memory of one member's decompressed bodies; tasks wait in line while too little is free."""

    def __init__(self, settings: ClientSettings) -> None:
        """Make an object without bodies.

        Args:
            settings: The limits of one body and of all bodies.
        """
        self._limit = settings.max_decompressed_body_size
        self._capacity = settings.max_decompressed_size
        self._reserved = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __repr__(self) -> str:
        return f"<UnpackedBodies: {self._reserved} bytes of {self._capacity}, {len(self._waiting)} wait>"

    def unpack_small(self, messages: Sequence[MessageExt]) -> Unpacked:
        """Decompress the first messages, as many as fit into `SMALL_SIZE` bytes together."""
        unpacked = Unpacked([])
        _unpack(messages, unpacked, self._limit, SMALL_SIZE)
        unpacked.reserved = 0
        return unpacked

    async def unpack(self, messages: Sequence[MessageExt], process_queue: ProcessQueue | None = None) -> Unpacked:
        """Decompress the first messages, at least one, as many as fit into the free memory.

        If the first body is large, wait for memory. The caller must give the result's `reserved` to `release`.

        Args:
            messages: The messages of a call.
            process_queue: Their queue, which counts the memory; None if they are of no queue.
        """
        unpacked = self.unpack_small(messages)
        return unpacked if unpacked.is_whole(messages) else await self.unpack_large(messages, unpacked, process_queue)

    async def unpack_large(
        self, messages: Sequence[MessageExt], unpacked: Unpacked, process_queue: ProcessQueue | None
    ) -> Unpacked:
        """Decompress the messages that `unpack_small` has left, as `unpack` does."""
        rest = messages[len(unpacked.messages) :]
        if unpacked.messages and not self._has_capacity:
            return unpacked
        await self._reserve()
        # Counted before the size is known: otherwise the queue could be pulled although its limit will be exceeded.
        if process_queue is not None:
            process_queue.unpacking += self._limit
        more = Unpacked([])
        try:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, _unpack, rest, more, self._limit, self._limit)
        except BaseException:
            self.release(self._limit)
            raise
        finally:
            if process_queue is not None:
                process_queue.unpacking -= self._limit
        self.release(self._limit - more.reserved)
        growth = unpacked.growth + more.growth
        return Unpacked(unpacked.messages + more.messages, more.reserved, growth, more.error)

    def release(self, size: int) -> None:
        """Free `size` bytes, and wake the first tasks in line for which enough is free."""
        self._reserved -= size
        while self._waiting and self._has_capacity:
            turn = self._waiting.popleft()
            if not turn.done():
                self._reserved += self._limit
                turn.set_result(None)

    @property
    def _has_capacity(self) -> bool:
        """Whether enough is free for a body of the largest allowed size."""
        return self._reserved + self._limit <= self._capacity

    async def _reserve(self) -> None:
        """Wait until enough is free for a body of the largest allowed size, and take it; first come, first served."""
        if not self._waiting and self._has_capacity:
            self._reserved += self._limit
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(self._limit)
            raise


def _unpack(messages: Sequence[MessageExt], unpacked: Unpacked, limit: int, total_limit: int) -> None:
    """Decompress the first messages, as many as fit into `total_limit` bytes.

    Args:
        messages: The messages of a call.
        unpacked: Gets the messages.
        limit: Maximum number of bytes of one decompressed body.
        total_limit: Maximum number of bytes of all decompressed bodies.
    """
    for message in messages:
        if not message.sys_flag & COMPRESSED:
            unpacked.messages.append(message)
            continue
        left = min(limit, total_limit - unpacked.reserved)
        try:
            body = decompress(message.body, message.sys_flag, left)
        except RemoteProtocolError as error:
            if left == limit or not isinstance(error, BodyTooLargeError):
                unpacked.error = UnreadableBodyError(message, error)
            return
        unpacked.reserved += len(body)
        unpacked.growth += len(body) - len(message.body)
        unpacked.messages.append(_with_body(message, body))


def _with_body(message: MessageExt, body: bytes) -> MessageExt:
    """Return a copy of the message with the decompressed body."""
    found = copy.copy(message)
    found.body = body
    found.sys_flag &= ~COMPRESSED
    return found
