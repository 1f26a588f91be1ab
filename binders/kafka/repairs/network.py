"""An event loop of kafka-python's that keeps a connection registered while it waits for the next data.

No defect, but dear: `NetworkSelector` registers a socket for each wait and removes it after the wait, which costs two
system calls, a generator and, where the socket was not registered, the text of a `KeyError` with its two addresses
(3.0.10 to 3.0.12). A connection always waits for data, so it can stay registered.
"""

import selectors
from typing import Any

from kafka.net.selector import KernelEvent, NetworkSelector, TaskState

__all__ = ["Network"]


class Network(NetworkSelector):  # type: ignore[misc]  # kafka-python has no annotations
    """The event loop of one client's connections."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._skips_timers = False

    def begin_reading(self, fileobj: Any) -> KernelEvent:
        """Return an event to be awaited: the calling task goes on at each data, until `end_reading`."""
        return KernelEvent("_begin_reading", fileobj)

    def next_data(self) -> KernelEvent:
        """Return an event to be awaited by a task that has begun reading."""
        return KernelEvent("_await_data")

    def end_reading(self, fileobj: Any) -> None:
        """End what `begin_reading` began; the socket may be closed already."""
        self.unregister_event(fileobj, selectors.EVENT_READ)

    def poll_without_timers(self) -> None:
        """Do what is ready now, but nothing that only the time has made due."""
        self._skips_timers = True
        try:
            self.poll(timeout_ms=0)
        finally:
            self._skips_timers = False

    def _schedule_tasks(self) -> None:
        if not self._skips_timers:
            super()._schedule_tasks()

    def _begin_reading(self, fileobj: Any) -> None:
        self.register_event(fileobj, selectors.EVENT_READ, self._current)
        self._await_data()

    def _await_data(self) -> None:
        self._current.state = TaskState.WAIT_IO
