"""Calls on threads that use a transaction and therefore run to their end."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

__all__ = ["call_to_its_end"]

R = TypeVar("R")


async def call_to_its_end(threads: Executor, function: Callable[..., R], *arguments: Any) -> R:
    """Call a function on a thread.

    If the caller is cancelled, wait until the function has returned, because it uses the transaction.
    """
    call = asyncio.get_running_loop().run_in_executor(threads, function, *arguments)
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await asyncio.wait([call])
        raise
