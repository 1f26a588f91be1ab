"""Calls on a thread that work in a transaction: a caller that is cancelled waits for them."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

__all__ = ["call_on_thread"]

R = TypeVar("R")


async def call_on_thread(threads: Executor, function: Callable[..., R], *arguments: Any) -> R:
    """Call a function on a thread; if the caller is cancelled, wait until the function returns.

    Until then the thread works in the transaction, which nothing else may use.
    """
    call = asyncio.get_running_loop().run_in_executor(threads, function, *arguments)
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await asyncio.wait([call])
        raise
