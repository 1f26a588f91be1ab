"""Processes that are forked from one that has imported everything, so they start in milliseconds.

Each is a process with connections and memory of its own, and is killed as any other. Only the imports are shared.
"""

import multiprocessing
import os
import threading
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [
        "tests.outbox_campaign.services",
        # what applications and brokers import when they start
        "aiomysql",
        "aiosqlite",
        "asyncpg",
        "sqlalchemy.dialects.mysql.aiomysql",
        "sqlalchemy.dialects.postgresql.asyncpg",
        "sqlalchemy.dialects.sqlite.aiosqlite",
        "binders.inmemory.plugin",
        "binders.kafka.plugin",
        "binders.rocket.plugin",
        "binders.rocket.binder",
        "binders.rocket.transactions",
        "rocket_client.admin.admin",
        "rocket_client.producing.transaction_producer",
        "streamkit.config.explain",
        "streamkit.config.misspelt_names",
        "streamkit.functions.supplier",
        "streamkit.listeners.batch_listener",
        "streamkit.management.bindings_controller",
        "streamkit.management.health",
        "streamkit.management.lags",
        "streamkit.patterns.inbox.plugin",
        "streamkit.patterns.local_store.plugin",
        "streamkit.running.loop_watch",
        "streamkit.running.runtime",
        "streamkit.running.start_messages",
        "rocket_broker.broker",
        "rocket_broker.process.broker_options",
        "rocket_broker.process.launch",
        "rocket_broker.process.service",
        "uvloop",
    ]
)


def start(work: Callable[..., object], *arguments: object, log: Path) -> BaseProcess:
    """Start a process that calls a function of a module, and return it.

    Args:
        work: The function.
        arguments: Its arguments.
        log: Where the process appends what it prints and logs.
    """
    process = _context.Process(target=_run, args=(work, arguments, log))
    process.start()
    return process


def _run(work: Callable[..., Any], arguments: tuple[object, ...], log: Path) -> None:
    """Call the function; the process ends with the one that started it, however that one ends."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    work(*arguments)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
