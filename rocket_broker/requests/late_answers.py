"""Requests that wait for the disk: a task handles each, and the connection's next requests wait for its end."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from rocket_broker.requests.serving import failure_answer
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.command import RemotingCommand

__all__ = ["LateAnswers"]

MOST_AT_ONCE = 16
"""Requests that are handled at once, since each may hold an answer of `MAX_ANSWER` bytes."""


Ended = Callable[[RemotingCommand, RemotingCommand | Exception], None]
"""Called with a request that has been handled, and with its answer or the error of its handling."""


class LateAnswers:
    """The requests that tasks handle.

    Args:
        ended: Called with each request at its end.
    """

    def __init__(self, ended: Ended) -> None:
        self._ended = ended
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(
        self, connection: Connection, command: RemotingCommand, handling: Coroutine[Any, Any, RemotingCommand]
    ) -> None:
        """Handle a request in a task, and answer with the coroutine's result or the error that it raises."""
        # One request of a connection at a time: without the pause one client could fill memory with waiting
        # tasks.
        connection.pause_requests(len(command.body))
        task = asyncio.ensure_future(self._answer(connection, command, handling))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Wait until all these requests are handled."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer(
        self, connection: Connection, command: RemotingCommand, handling: Coroutine[Any, Any, RemotingCommand]
    ) -> None:
        answer: RemotingCommand | None
        result: RemotingCommand | Exception
        try:
            async with self._turns:
                answer = result = await handling
        except Exception as error:
            answer, result = failure_answer(connection, command, error), error
        self._ended(command, result)
        if answer is not None and not command.is_oneway:
            connection.respond(answer)
        # After the answer, so that answers leave in the order of the requests.
        connection.resume_requests()
