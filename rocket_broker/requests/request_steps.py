"""Requests that are handled in steps, so that the loop serves other clients between the steps.

A handler whose work may take more than one or two milliseconds is a generator. It yields wherever it may be
interrupted, and returns the answer. The first slice runs at once, so a request with little work is answered as by a
plain function::

    read ─► handler ─► slice (2 ms) ─┬─► finished: the answer is written with the other answers of this read
                                     └─► unfinished: reading from the connection pauses; the request joins a `StepLine`

Between two steps the tables that a handler reads may change. A connection has at most one such request under way, so
the requests of a connection are handled in their order.
"""

from collections import deque
from collections.abc import Callable, Generator

from rocket_broker.loop.step_line import StepLine, run_slice
from rocket_broker.loop.watchdog import Watchdog
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.command import RemotingCommand

__all__ = ["RequestSteps", "Steps"]

Steps = Generator[None, None, RemotingCommand | None]
"""A handler that works in steps: it yields between them, and returns the answer, or None for no answer."""

Failure = Callable[[Connection, RemotingCommand, Exception], RemotingCommand | None]
"""Turns an exception of a step into the answer; called in the ``except`` clause."""


class _Request:
    """A request that is handled in steps."""

    __slots__ = ("command", "connection", "steps")

    def __init__(self, connection: Connection, command: RemotingCommand, steps: Steps) -> None:
        self.connection = connection
        self.command = command
        self.steps = steps


class RequestSteps:
    """The requests that are handled in steps: a slice of each in turn.

    Args:
        failure: Returns the answer to a request whose step raised an exception.
        most_begun: Number of requests that are handled in turn. Further requests begin when one of them has ended,
            which bounds the memory of unfinished answers.
        outlives_connection: Whether a request is handled to its end even if its connection has closed.
    """

    def __init__(self, failure: Failure, *, most_begun: int, outlives_connection: bool = False) -> None:
        self._failure = failure
        self._most_begun = most_begun
        self._outlives_connection = outlives_connection
        self._begun = StepLine(self._advance, self._next_waiting)
        self._waiting: deque[_Request] = deque()

    def begin(self, connection: Connection, command: RemotingCommand, steps: Steps) -> RemotingCommand | None:
        """Run the first slice; return the answer, or None if there is none or it is sent later.

        Raises:
            Exception: Any exception of the first slice.
        """
        request = _Request(connection, command, steps)
        # A request that begins holds what its steps have built so far; one that waits holds only itself.
        if len(self._begun) < self._most_begun:
            try:
                run_slice(steps)
            except StopIteration as end:
                answer: RemotingCommand | None = end.value
                return answer
            self._begun.add(request)
        else:
            self._waiting.append(request)
        connection.pause_requests(len(command.body))
        return None

    def stop(self) -> None:
        """Drop the unfinished requests; run them to their end if they outlive their connections."""
        while (request := self._begun.take() or self._next_waiting()) is not None:
            if self._outlives_connection:
                # Without turns of the loop: the server is stopping, and what the steps store must be
                # complete before the store closes.
                while not self._advance(request):
                    pass
            else:
                request.steps.close()

    def _next_waiting(self) -> _Request | None:
        return self._waiting.popleft() if self._waiting else None

    def _advance(self, request: _Request) -> bool:
        """Run a slice of the request; return True once the request has ended and is answered."""
        connection, command = request.connection, request.command
        if connection.is_closed and not self._outlives_connection:
            # The client is gone, and the request stores nothing: nobody needs the rest of the work.
            request.steps.close()
            return True
        began = Watchdog.clock()
        answer: RemotingCommand | None = None
        try:
            run_slice(request.steps)
            return False
        except StopIteration as end:
            answer = end.value
        except Exception as error:
            answer = self._failure(connection, command, error)
        finally:
            Watchdog.check_request(began, connection, command)
        if answer is not None and not command.is_oneway:
            connection.respond(answer)
        connection.resume_requests()
        return True

    def __len__(self) -> int:
        return len(self._begun) + len(self._waiting)
