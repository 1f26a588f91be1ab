"""What deduplication costs for each message, on each store of marks.

Measured are the inbox and its store, with a listener that does nothing: new messages, then their duplicates, one after
the other.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

from sqlalchemy import MetaData, create_engine
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from streamkit import Message
from streamkit.config.pattern_properties import InboxProperties
from streamkit.listeners.advice import AdvisedListener, ListenerCall
from streamkit.listeners.listener import Listener
from streamkit.patterns.inbox import MarkStore, MemoryMarks, RedisMarks, SqlMarks, inbox_table
from streamkit.patterns.inbox.inbox import Inbox
from streamkit.patterns.inbox.message_key import message_key

__all__ = ["InboxFigures", "measure"]


@dataclass(frozen=True, slots=True)
class InboxFigures:
    """Seconds for a message, and those of them in which this process uses a processor.

    Attributes:
        new: For a message that was not handled before.
        new_cpu: The processor's part of it.
        duplicate: For one that was.
        duplicate_cpu: The processor's part of it.
    """

    new: float
    new_cpu: float
    duplicate: float
    duplicate_cpu: float


class _Nothing:
    thread = None

    async def __call__(self, message: Message[object]) -> None:
        """Handle a message."""


def measure(url: str, *, messages: int) -> InboxFigures:
    """Measure a store of marks.

    Args:
        url: `memory`, the URL of a Redis, or of a database, whose table is made and dropped. With an asynchronous
            driver the listener is an `async def`, else a `def`.
        messages: How many messages there are.
    """
    return asyncio.run(_measure(url, messages))


async def _measure(url: str, count: int) -> InboxFigures:
    with ThreadPoolExecutor(1) as threads:
        async with _store_at(url) as store:
            declared = Listener("orders", idempotent_by="headers['key']")
            listener = AdvisedListener(
                print, "listener", declared, "orders", "g", False, store.is_async, lambda: threads
            )
            inbox = Inbox(None, listener, message_key("headers['key']", url), store, InboxProperties())
            call = cast("ListenerCall", _Nothing())
            messages: list[Message[object]] = [Message(b"", {"key": str(number)}) for number in range(count)]
            figures: list[float] = []
            for _ in ("new", "duplicates"):
                began, cpu = time.perf_counter(), time.process_time()
                for message in messages:
                    await inbox.around(message, call)
                figures += [(time.perf_counter() - began) / count, (time.process_time() - cpu) / count]
    return InboxFigures(*figures)


@asynccontextmanager
async def _store_at(url: str) -> AsyncIterator[MarkStore]:
    """Open the store of a URL."""
    if url == "memory":
        yield MemoryMarks()
        return
    if url.startswith("redis"):
        from redis.asyncio import Redis

        async with Redis.from_url(url) as client:
            await client.flushdb()
            yield RedisMarks(client, prefix="benchmark:")
        return
    metadata = MetaData()
    table = inbox_table(metadata, "benchmark_inbox")
    if url.partition(":")[0] in ("sqlite", "postgresql+psycopg", "mariadb+pymysql"):
        engine = create_engine(url)
        metadata.create_all(engine)
        yield SqlMarks(sessionmaker(engine), table)
        metadata.drop_all(engine)
        engine.dispose()
        return
    asynchronous = create_async_engine(url)
    async with asynchronous.begin() as connection:
        await connection.run_sync(metadata.create_all)
    yield SqlMarks(async_sessionmaker(asynchronous), table)
    async with asynchronous.begin() as connection:
        await connection.run_sync(metadata.drop_all)
    await asynchronous.dispose()
