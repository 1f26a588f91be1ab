"""The running loop's clock: what lengths of time are measured with, so that virtual time can drive them."""

import asyncio

__all__ = ["loop_time"]


def loop_time() -> float:
    """Seconds on the running loop's own clock; only differences mean anything."""
    return asyncio.get_running_loop().time()
