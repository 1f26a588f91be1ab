"""The watchdog of the loop: logs each step that keeps all clients waiting for too long."""

import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import ClassVar

from rocket_remoting.session.address import log_peer
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.command import RemotingCommand

__all__ = ["LIMIT_SECONDS", "Watchdog"]

logger = logging.getLogger(__name__)

LIMIT_SECONDS = 0.05
"""Seconds from which on a step is logged. Slices take a few milliseconds, so 50 ms mean a defect of the broker, or a
machine whose disk or processor is busy with other work."""


class Watchdog:
    """Measures a step that is not the direct handling of a request, such as writing a table::

        with Watchdog("encoding the table of topics"):
            ...

    Attributes:
        clock: Returns seconds. A test that shares its processors with others sets `time.thread_time`, so that only the
            work of the step itself counts.
    """

    clock: ClassVar[Callable[[], float]] = time.perf_counter

    __slots__ = ("_began", "_step")

    def __init__(self, step: str) -> None:
        self._step = step
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = Watchdog.clock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        Watchdog.check(self._began, self._step)

    @staticmethod
    def check(began: float, step: str) -> None:
        """Log a step that took too long; for steps that are too short for a ``with`` statement.

        Args:
            began: The time of `clock` when the step began.
            step: What the step does.
        """
        seconds = Watchdog.clock() - began
        if seconds > LIMIT_SECONDS:
            logger.warning("all clients waited for %d ms while %s", seconds * 1000, step)

    @staticmethod
    def check_request(began: float, connection: Connection, command: RemotingCommand) -> None:
        """Log a request, or a step of a request, that took too long.

        Args:
            began: The time of `clock` when the request or step began.
            connection: The client's connection.
            command: The request.
        """
        seconds = Watchdog.clock() - began
        if seconds > LIMIT_SECONDS:
            logger.warning(
                "all clients waited for %d ms while handling %s from %s, a request with a body of %d bytes",
                seconds * 1000, command.name, connection.remote_address, len(command.body),
                extra=log_peer(connection.remote_address),
            )  # fmt: skip
