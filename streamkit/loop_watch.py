"""Tells when the application's loop was blocked, and who uses it in a process it was forked into."""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from typing import Final, NoReturn, TypeVar
from weakref import WeakSet

from streamkit.errors import UseAfterFork
from streamkit.events import loop_blocked, notify
from streamkit.messaging.channel import MessageChannel
from streamkit.messaging.interceptor import ChannelInterceptor
from streamkit.messaging.message import Message

__all__ = ["BLOCKED_AFTER", "ForkGuard", "ForkedPortal", "LoopWatch"]

log = logging.getLogger(__name__)

R = TypeVar("R")

BLOCKED_AFTER: Final = 1.0
"""Seconds for which a loop may not turn before that is a warning."""

_BEAT: Final = 0.5


class LoopWatch:
    """A heartbeat on the loop: one that comes late tells that something held the loop."""

    def __init__(self, owner: object) -> None:
        self._owner = owner
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Watch the running loop."""
        self._arm(asyncio.get_running_loop())

    def stop(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(_BEAT, self._beat, loop, loop.time() + _BEAT)

    def _beat(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        late = loop.time() - due
        if late > BLOCKED_AFTER:
            log.warning(
                "The application's loop was blocked for %.1f s: some `async def` works without awaiting. Make "
                "it a `def`, which runs on a thread, or call the slow part with asyncio.to_thread",
                late,
            )
            if loop_blocked.receivers:
                notify(loop_blocked, self._owner, seconds=late)
        self._arm(loop)


class ForkedPortal:
    """A portal in a process the application does not run in."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def run(self, coroutine: Coroutine[object, None, R], timeout: float | None = None) -> R:
        """Refuse.

        Raises:
            UseAfterFork: Always.
        """
        coroutine.close()
        _refuse()


class ForkGuard(ChannelInterceptor):
    """Refuses what is sent in a process the application does not run in."""

    def pre_send(self, message: Message[object], channel: MessageChannel) -> NoReturn:
        """Refuse.

        Raises:
            UseAfterFork: Always.
        """
        _refuse()


def _refuse() -> NoReturn:
    raise UseAfterFork(
        "this process was forked from the one the application runs in; start an application of its own here"
    )


class _Hook:
    """An object whose method is called in the child of a fork for as long as the object lives."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call


_hooks: "WeakSet[_Hook]" = WeakSet()


def after_fork(call: Callable[[], None]) -> object:
    """Have ``call`` run in the child of every fork while the returned object lives."""
    hook = _Hook(call)
    _hooks.add(hook)
    return hook


def _forked() -> None:
    for hook in list(_hooks):
        hook.call()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
