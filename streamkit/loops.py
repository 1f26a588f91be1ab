"""The event loop an application runs on when it makes its own: uvloop's where that is installed."""

import asyncio

__all__ = ["new_loop"]


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
