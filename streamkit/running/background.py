"""An application's loop in a thread of its own, for programs without a loop."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

from streamkit.loop.loops import run_on_new_loop

__all__ = ["BackgroundLoop"]


class BackgroundLoop:
    """Runs ``start`` on a new loop in a thread, keeps the loop running, and runs ``stop`` at the end."""

    def __init__(self, start: Callable[[], Awaitable[None]], stop: Callable[[], Awaitable[None]]) -> None:
        self._start = start
        self._stop = stop
        self._started: Future[None] = Future()
        self._finished: Future[None] = Future()
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        # A daemon thread: a program that ends without leaving the `with` block must not hang.
        self._thread = threading.Thread(target=self._run, name="streamkit loop", daemon=True)

    def start(self) -> None:
        """Start the thread, and return when ``start`` has returned; raise the exception that ``start`` raises."""
        self._thread.start()
        try:
            self._started.result()
        except BaseException:
            if self._started.done():
                self._thread.join()
            raise

    def stop(self) -> None:
        """Run ``stop`` on the loop, and return when the thread has ended; raise the exception that ``stop`` raises.

        In a forked child process the thread does not exist: the call does nothing there.
        """
        if os.getpid() != self._process:
            return
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._finished.result()
        self._thread.join()

    def _run(self) -> None:
        run_on_new_loop(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        try:
            await self._start()
        except BaseException as error:  # raised in the thread that called start()
            self._started.set_exception(error)
            return
        self._started.set_result(None)
        await self._stopping.wait()
        try:
            await self._stop()
        except BaseException as error:  # raised in the thread that called stop()
            self._finished.set_exception(error)
        else:
            self._finished.set_result(None)
