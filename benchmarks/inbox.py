"""`python -m benchmarks.inbox [URL ...]`: what deduplication costs for each message, on each store of marks.

Measured are the inbox and its store, with a listener that does nothing: new messages, then their duplicates, one after
the other. Without URLs the stores are memory and SQLite in a temporary file. A URL is that of Redis
(``redis://…``), or of a database with an asynchronous driver (``postgresql+asyncpg://…``), whose table is created and
dropped.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from sqlalchemy import MetaData, create_engine
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from streamkit import Message
from streamkit.config.application_properties import InboxProperties
from streamkit.listeners.advice import AdvisedListener, ListenerCall
from streamkit.listeners.listener import Listener
from streamkit.patterns.inbox import MarkStore, MemoryMarks, RedisMarks, SqlMarks, inbox_table
from streamkit.patterns.inbox.inbox import Inbox
from streamkit.patterns.inbox.message_key import message_key

MESSAGES = 2_000


class _Nothing:
    thread = None

    async def __call__(self, message: Message[object]) -> None:
        """Handle a message."""


async def measure(name: str, store: MarkStore, threads: ThreadPoolExecutor) -> None:
    """Print the figures of one store."""
    declared = Listener("orders", idempotent_by="headers['key']")
    listener = AdvisedListener(print, "listener", declared, "orders", "g", False, store.is_async, lambda: threads)
    inbox = Inbox(None, listener, message_key("headers['key']", name), store, InboxProperties())
    call = cast("ListenerCall", _Nothing())
    messages: list[Message[object]] = [Message(b"", {"key": str(number)}) for number in range(MESSAGES)]
    for what in ("new", "duplicate"):
        began, cpu = time.perf_counter(), time.process_time()
        for message in messages:
            await inbox.around(message, call)
        seconds, used = time.perf_counter() - began, time.process_time() - cpu
        per_message = f"{seconds / MESSAGES * 1e6:8,.0f} µs, of them {used / MESSAGES * 1e6:7,.1f} µs CPU here"
        print(f"{name:24} {what:9} {per_message}")


@asynccontextmanager
async def store_at(url: str) -> AsyncIterator[MarkStore]:
    """Open the store of a URL."""
    if url.startswith("redis"):
        from redis.asyncio import Redis

        async with Redis.from_url(url) as client:
            yield RedisMarks(client, prefix="benchmark:")
        return
    engine = create_async_engine(url)
    metadata = MetaData()
    table = inbox_table(metadata, "benchmark_inbox")
    async with engine.begin() as connection:
        await connection.run_sync(metadata.drop_all)
        await connection.run_sync(metadata.create_all)
    yield SqlMarks(async_sessionmaker(engine), table)
    async with engine.begin() as connection:
        await connection.run_sync(metadata.drop_all)
    await engine.dispose()


async def main(urls: list[str]) -> None:
    """Measure each store."""
    with ThreadPoolExecutor(1) as threads, tempfile.TemporaryDirectory() as directory:
        await measure("memory", MemoryMarks(), threads)
        engine = create_engine(f"sqlite:///{Path(directory) / 'marks.db'}")
        metadata = MetaData()
        table = inbox_table(metadata)
        metadata.create_all(engine)
        await measure("SQLite, def listener", SqlMarks(sessionmaker(engine), table), threads)
        engine.dispose()
        for url in urls:
            async with store_at(url) as store:
                await measure(url.partition(":")[0], store, threads)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
