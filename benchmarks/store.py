"""`python -m benchmarks.store`: seconds to start a large store after a stop and a kill, and memory to fill it."""

import asyncio
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.process import anonymous_mib
from rocket_broker.store import GetStatus, MessageStore, PutStatus, StoreMessage, StoreSettings
from rocket_remoting.clock import SystemClock

TOPIC = "bench"
QUEUES = 4
BODY = b"x" * 100
PARTS = 10
BURST = 1_000
READ_MESSAGES = 1_024
READ_BYTES = 4 * 1024 * 1024

Figures = list[float]
Step = Callable[[Path, int, Connection], None]


@click.command()
@click.option("--messages", default=10_000_000, show_default=True, help="Messages of 100 bytes in the store.")
@click.option("--unflushed", default=100_000, show_default=True, help="Messages stored right before kill -9.")
@click.option("--store", type=click.Path(path_type=Path), help="Directory of the store; by default a temporary one.")
def main(*, messages: int, unflushed: int, store: Path | None) -> None:
    """Fill, read, stop, start, kill and start a store, each step in its own process."""
    console = Console()
    directory = Path(tempfile.mkdtemp(prefix="streamkit-bench-", dir=store))
    try:
        with console.status(f"storing and reading {messages:,} messages ..."):
            *memory, stored_seconds, read_seconds = _in_process(_fill_and_read, directory, messages)
        with console.status("starting ..."):
            (clean,) = _in_process(_start, directory, messages)
        _in_process(_store_and_die, directory, unflushed)
        with console.status("starting after kill -9 ..."):
            (killed,) = _in_process(_start, directory, messages + unflushed)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    table = Table("", "", title=f"A store of {messages:,} messages", title_justify="left", show_header=False)
    table.add_row("put", f"{messages / stored_seconds:,.0f}/s")
    table.add_row("get", f"{messages / read_seconds:,.0f}/s")
    table.add_row("anonymous memory, MiB, after each tenth put", " ".join(f"{mib:.0f}" for mib in memory[:PARTS]))
    table.add_row("the same, after each queue read", " ".join(f"{mib:.0f}" for mib in memory[PARTS:]))
    table.add_row("start after an orderly stop", f"{clean:.3f} s")
    table.add_row(f"start after kill -9, {unflushed:,} not flushed", f"{killed:.3f} s")
    console.print(table)


def _in_process(step: Step, directory: Path, messages: int) -> Figures:
    """Run the step in a new process; return its measurements, or none if it was killed."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=step, args=(directory, messages, theirs))
    process.start()
    theirs.close()
    try:
        figures: Figures = ours.recv()
    except EOFError:
        figures = []
    process.join()
    if process.exitcode not in (0, -signal.SIGKILL):
        raise click.ClickException(f"{step.__name__} ended with code {process.exitcode}")
    return figures


def _opened(directory: Path) -> MessageStore:
    # A full disk of the machine's is not what is measured.
    settings = StoreSettings(directory, disk_space_warning_level_ratio=100, clean_file_forcibly_enable=False)
    store = MessageStore(settings, SystemClock())
    store.load()
    return store


def _fill_and_read(directory: Path, messages: int, results: Connection) -> None:
    async def run() -> None:
        store = _opened(directory)
        await store.start()
        memory, begun = [], time.perf_counter()
        for part in range(PARTS):
            await _put(store, range(messages * part // PARTS, messages * (part + 1) // PARTS))
            memory.append(anonymous_mib(os.getpid()))
        stored = time.perf_counter()
        found = 0
        for queue_id in range(QUEUES):
            found += _read(store, queue_id)
            memory.append(anonymous_mib(os.getpid()))
        read = time.perf_counter()
        if found != messages:
            raise click.ClickException(f"stored {messages} messages and found {found}")
        await store.stop()
        results.send([*memory, stored - begun, read - stored])

    asyncio.run(run())


async def _put(store: MessageStore, numbers: range) -> None:
    for number in numbers:
        key = f"7F00000100002A9F18B4AAC2{number:08X}"
        properties = f"UNIQ_KEY\x01{key}\x02WAIT\x01true\x02CLUSTER\x01DefaultCluster\x02".encode()
        message = StoreMessage(TOPIC, number % QUEUES, BODY, properties, unique_key=key)
        stored = store.put(message)
        if stored.status is not PutStatus.OK:
            raise click.ClickException(f"message {number} was {stored.status.value}")
        if number % BURST == 0:
            await asyncio.sleep(0)  # the flusher's turn


def _read(store: MessageStore, queue_id: int) -> int:
    found = offset = 0
    while True:
        result = store.get(TOPIC, queue_id, offset, READ_MESSAGES, READ_BYTES)
        if result.status is not GetStatus.FOUND:
            return found
        found += len(result.records)
        offset = result.next_begin_offset


def _start(directory: Path, messages: int, results: Connection) -> None:
    begun = time.perf_counter()
    store = _opened(directory)
    elapsed = time.perf_counter() - begun
    found = sum(store.max_offset(TOPIC, queue_id) for queue_id in range(QUEUES))
    if found != messages:
        raise click.ClickException(f"the store has {found} messages instead of {messages}")
    asyncio.run(store.stop())
    results.send([elapsed])


def _store_and_die(directory: Path, messages: int, results: Connection) -> None:
    """Store messages without a flusher, so that the checkpoint covers none of them, and kill this process."""
    asyncio.run(_put(_opened(directory), range(messages)))
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
