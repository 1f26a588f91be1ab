"""Wake-up by PostgreSQL: a commit notifies the relays of all processes."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.orm import Session

from streamkit.patterns.outbox.database import Database
from streamkit.patterns.outbox.settings import OutboxProperties

__all__ = ["CHANNEL", "Listening", "notify_at_commit"]

logger = logging.getLogger(__name__)

CHANNEL: Final = "streamkit_outbox"
"""The channel of LISTEN and NOTIFY; the text of a notification is the topic."""

_AGAIN: Final = 5.0
"""Seconds until a lost connection is made again."""


def notify_at_commit(transaction: Connection | Session, topics: Iterable[str]) -> None:
    """Add to a transaction on PostgreSQL that its commit notifies the relays of these topics."""
    for topic in sorted(topics):
        transaction.execute(text("SELECT pg_notify(:channel, :topic)"), {"channel": CHANNEL, "topic": topic})


class Listening:
    """A connection that listens.

    Attributes:
        is_active: Whether notifications arrive now; otherwise the relay must look by itself.
    """

    def __init__(self, engine: AsyncEngine, topic: str, wake: Callable[[], None]) -> None:
        self.is_active = False
        self._engine = engine
        self._topic = topic
        self._wake = wake

    @classmethod
    @contextlib.asynccontextmanager
    async def on(
        cls, database: Database, topic: str, wake: Callable[[], None], properties: OutboxProperties
    ) -> "AsyncIterator[Listening | None]":
        """Listen while the block runs; None where the database or its driver has no notifications."""
        engine = database.engine
        if not isinstance(engine, AsyncEngine) or engine.dialect.driver != "asyncpg" or not properties.notify:
            yield None
            return
        listening = cls(engine, topic, wake)
        task = asyncio.get_running_loop().create_task(listening._run(), name=f"listen for the outbox of {topic}")
        try:
            yield listening
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        while True:
            try:
                async with self._engine.connect() as connection:
                    await self._listen(connection)
            except Exception as error:  # the driver raises errors of its own here
                logger.warning("Cannot listen for commits to the outbox of %r: %s", self._topic, error)
            finally:
                self.is_active = False
            await asyncio.sleep(_AGAIN)

    async def _listen(self, connection: AsyncConnection) -> None:
        """Pass notifications on until the connection is lost."""
        raw: Any = (await connection.get_raw_connection()).driver_connection
        # The pool may be small, and this connection is kept as long as the relay runs.
        await connection.run_sync(lambda pooled: pooled.detach())
        lost = asyncio.Event()

        def notified(_: object, __: int, ___: str, text: str) -> None:
            if text == self._topic:
                self._wake()

        def ended(_: object) -> None:
            lost.set()

        await raw.add_listener(CHANNEL, notified)
        raw.add_termination_listener(ended)
        self.is_active = True
        self._wake()  # for commits between the last look and now
        try:
            await lost.wait()
        finally:
            raw.remove_termination_listener(ended)
            if not raw.is_closed():
                await raw.remove_listener(CHANNEL, notified)
