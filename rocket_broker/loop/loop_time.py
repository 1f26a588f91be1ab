"""The clock of the running loop. Durations are measured with it, so that tests can drive them by virtual time."""

import asyncio

__all__ = ["loop_time"]


def loop_time() -> float:
    """Return the running loop's time in seconds; only differences have a meaning."""
    return asyncio.get_running_loop().time()
