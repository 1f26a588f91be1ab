"""Marks in Redis: a lease while the listener runs, then a mark that expires.

::

    SET mark token NX PX lease     claimed; renewed while the listener runs; a process that ends loses it in time
    SET mark "done" PX expiry      after the listener has returned
    DEL mark                       after it has failed, if it still has the token

The effect of the listener and its mark are not atomic here: if the process is killed between the two, the message is
handled again. A store in the listener's own database (:class:`~streamkit.patterns.inbox.SqlMarks`) has no such gap.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from datetime import timedelta
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

from streamkit.messaging.cause import kind_and_text
from streamkit.patterns.inbox.marks import Claim, Mark, MarkStore

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = ["RedisMarks"]

logger = logging.getLogger(__name__)

_DONE: Final = "done"
_ANSWERS: Final = (_DONE, _DONE.encode())
"""The mark as clients return it, with and without ``decode_responses``."""
_RENEW: Final = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end"
_RELEASE: Final = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end"


class RedisMarks(MarkStore):
    """Marks in Redis, or in a server with its commands, such as Valkey."""

    def __init__(
        self, redis: "Redis", *, lease: timedelta = timedelta(seconds=30), prefix: str = "streamkit:inbox:"
    ) -> None:
        """Make a store; the application opens and closes the client.

        Args:
            redis: The client, of ``redis.asyncio``.
            lease: How long a message of a process that was killed stays claimed; a run renews its lease three times
                in this time.
            prefix: The beginning of the names of all keys.

        Raises:
            ValueError: The lease is not longer than 0.
        """
        if lease <= timedelta():
            raise ValueError(f"RedisMarks(lease={lease!r}): expected a duration longer than 0")
        self._redis: Any = redis
        self._lease_ms = max(1, round(lease / timedelta(milliseconds=1)))
        self._prefix = prefix

    async def claim(
        self, marks: Sequence[Mark], *, now_ms: int, expired_ms: int, threads: Callable[[], Executor]
    ) -> Claim:
        """Claim marks; see :meth:`MarkStore.claim`.

        Raises:
            redis.RedisError: The server cannot be reached, or refuses.
        """
        claim = _RedisClaim(self._redis, {mark: self._prefix + mark.digest for mark in marks}, now_ms - expired_ms)
        try:
            await claim.take(self._lease_ms)
        except BaseException:
            await claim.abandon()
            raise
        return claim

    def __repr__(self) -> str:
        return f"<RedisMarks {self._prefix!r}>"


class _RedisClaim(Claim):
    def __init__(self, redis: Any, names: dict[Mark, str], expiry_ms: int) -> None:
        super().__init__((), (), ())
        self._redis = redis
        self._names = names
        self._expiry_ms = max(1, expiry_ms)
        self._token = token_hex(16)
        self._renewal: asyncio.Task[None] | None = None

    async def take(self, lease_ms: int) -> None:
        """Set the lease of each mark that is free."""
        claimed, done, busy = set(), set(), set()
        for mark, name in self._names.items():
            if await self._redis.set(name, self._token, nx=True, px=lease_ms):
                claimed.add(mark)
                self.claimed = frozenset(claimed)
            elif await self._redis.get(name) in _ANSWERS:
                done.add(mark)
            else:  # also a mark that has ended between the two commands: it is asked for again
                busy.add(mark)
        self.done, self.busy = frozenset(done), frozenset(busy)
        if claimed:
            self._renewal = asyncio.create_task(self._renew(lease_ms), name="renew leases of the inbox")

    async def _renew(self, lease_ms: int) -> None:
        while True:
            await asyncio.sleep(lease_ms / 3000)
            try:
                for mark in self.claimed:
                    await self._redis.eval(_RENEW, 1, self._names[mark], self._token, lease_ms)
            except Exception as error:  # of the client; the next renewal may succeed
                logger.warning("A lease of the inbox could not be renewed: %s", kind_and_text(error))

    async def _stop_renewing(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.wait([self._renewal])

    async def commit(self, done: Collection[Mark]) -> None:
        """Set the marks, also if the lease was lost: the listener has done its work.

        Raises:
            redis.RedisError: The server cannot be reached: the message is handled again.
        """
        try:
            for mark in self.claimed.intersection(done):
                await self._redis.set(self._names[mark], _DONE, px=self._expiry_ms)
        finally:
            await self._stop_renewing()
            await self._release(self.claimed.difference(done))

    async def abandon(self) -> None:
        """Delete the leases that this claim still has."""
        await self._stop_renewing()
        await self._release(self.claimed)

    async def _release(self, marks: Collection[Mark]) -> None:
        try:
            for mark in marks:
                await self._redis.eval(_RELEASE, 1, self._names[mark], self._token)
        except Exception as error:  # of the client; the lease ends by itself
            logger.warning("A lease of the inbox could not be given up: %s", kind_and_text(error))
