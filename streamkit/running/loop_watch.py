"""Detection of a blocked loop, and refusal of calls in processes forked from the application's."""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from time import monotonic
from traceback import walk_stack
from typing import Final, NoReturn, TypeVar
from weakref import WeakSet

from streamkit.errors import UseAfterFork
from streamkit.events import loop_blocked, notify
from streamkit.loop.code_location import line_of
from streamkit.messaging.interceptor import ChannelInterceptor
from streamkit.messaging.message import Message
from streamkit.messaging.message_channel import MessageChannel

__all__ = ["BLOCKED_AFTER", "ForkGuard", "ForkedPortal", "LoopWatch", "after_fork", "refuse_after_fork"]

logger = logging.getLogger(__name__)

R = TypeVar("R")

BLOCKED_AFTER: Final = 1.0
"""The seconds without a turn of the loop after which a warning is logged."""

_BEAT: Final = 0.5

_ADVICE: Final = (
    "An `async def` listener that works without awaiting holds up all others: make it a `def`, which runs on a "
    "thread, or call the slow part with asyncio.to_thread"
)


class LoopWatch:
    """Watches a loop: a timer on the loop beats, and a thread logs the code that blocks the loop when beats stop."""

    def __init__(self, owner: object) -> None:
        self._owner = owner
        self._timer: asyncio.TimerHandle | None = None
        self._ended = threading.Event()
        self._beaten = 0.0
        self._culprit: str | None = None

    def start(self) -> None:
        """Start to watch the running loop, which must be that of the calling thread."""
        self._arm(asyncio.get_running_loop())
        threading.Thread(
            target=self._look, args=(threading.get_ident(),), name="streamkit loop watch", daemon=True
        ).start()

    def stop(self) -> None:
        """Stop watching."""
        self._ended.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        self._beaten = monotonic()
        self._timer = loop.call_later(_BEAT, self._beat, loop, loop.time() + _BEAT)

    def _beat(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        late = loop.time() - due
        if late > BLOCKED_AFTER:
            if self._culprit is None:
                logger.warning("The application's loop was blocked for %.1f s. %s", late, _ADVICE)
            else:
                logger.warning("The application's loop was blocked for %.1f s by %s", late, self._culprit)
            if loop_blocked.receivers:
                notify(loop_blocked, self._owner, seconds=late)
        self._culprit = None
        self._arm(loop)

    def _look(self, loop_thread: int) -> None:
        """Until the end: if no beat comes, log the line at which the loop's thread is."""
        reported: float | None = None
        looked = monotonic()
        while not self._ended.wait(_BEAT):
            before, looked = looked, monotonic()
            beaten = self._beaten
            # This thread was late as well: the whole process was suspended, so no listener blocks the loop.
            stood_still = looked - before > BLOCKED_AFTER
            if stood_still or beaten == reported or looked - beaten < _BEAT + BLOCKED_AFTER:
                continue
            reported = beaten
            frame = sys._current_frames().get(loop_thread)
            # Read again: if the loop has beaten meanwhile, the frame is not that of the code that blocked the loop.
            if frame is not None and self._beaten == beaten:
                self._culprit = line_of([each for each, _ in walk_stack(frame)][::-1])
                logger.warning("The application's loop is blocked by %s. %s", self._culprit, _ADVICE)


class ForkedPortal:
    """The portal of an application that runs in the parent process."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def run(self, coroutine: Coroutine[object, None, R], timeout: float | None = None) -> R:
        """Refuse the call.

        Raises:
            UseAfterFork: Always.
        """
        # Otherwise Python warns of a coroutine that was never awaited.
        coroutine.close()
        refuse_after_fork()

    async def carry(self, coroutine: Coroutine[object, None, R], what: str) -> R:
        """Refuse the call.

        Raises:
            UseAfterFork: Always.
        """
        coroutine.close()
        refuse_after_fork()


class ForkGuard(ChannelInterceptor):
    """An interceptor that refuses messages sent in a forked child process."""

    def pre_send(self, message: Message[object], channel: MessageChannel) -> NoReturn:
        """Refuse the message.

        Raises:
            UseAfterFork: Always.
        """
        refuse_after_fork()


def refuse_after_fork() -> NoReturn:
    """Refuse a call in a child process that was forked from the application's.

    Raises:
        UseAfterFork: Always.
    """
    raise UseAfterFork(
        "this process was forked from the one the application runs in; start an application of its own here"
    )


class _Hook:
    """An object whose function is called in forked child processes as long as the object lives."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call


_hooks: "WeakSet[_Hook]" = WeakSet()


def after_fork(call: Callable[[], None]) -> object:
    """Call ``call`` in the child of every fork, as long as the returned object lives."""
    hook = _Hook(call)
    _hooks.add(hook)
    return hook


def _forked() -> None:
    for hook in list(_hooks):
        hook.call()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
