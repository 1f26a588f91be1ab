"""Requests that wait for the disk: each is handled by a task, and its connection's further requests wait meanwhile."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from rocket_broker.requests.serving import failure_answer
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.command import RemotingCommand

__all__ = ["LateAnswers"]

MOST_AT_ONCE = 16
"""Requests that are handled at once: each may hold an answer of `MAX_ANSWER` bytes, or wait for the disk."""


class LateAnswers:
    """The requests that are under way."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(
        self, connection: Connection, command: RemotingCommand, handling: Coroutine[Any, Any, RemotingCommand]
    ) -> None:
        """Handle a request, and answer it with what the coroutine returns or raises."""
        connection.pause_requests(len(command.body))
        task = asyncio.ensure_future(self._answer(connection, command, handling))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Return when all of them are handled."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer(
        self,
        connection: Connection,
        command: RemotingCommand,
        handling: Coroutine[Any, Any, RemotingCommand],
    ) -> None:
        try:
            async with self._turns:
                answer: RemotingCommand | None = await handling
        except Exception as error:
            answer = failure_answer(connection, command, error)
        if answer is not None and not command.is_oneway:
            connection.respond(answer)
        connection.resume_requests()
