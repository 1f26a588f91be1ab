"""Requests that are handled in steps, so that the loop serves other clients in between.

A handler whose work may take more than a millisecond or two is a generator: it yields whenever it may be interrupted,
and returns the answer. The first slice runs at once, so a request with little to do is answered as by a function::

    read ─► handler ─► slice (2 ms) ─► done: the answer leaves with the others of this read
                          │
                          └─ not done: the connection is not read any further; the request joins a `StepLine`

What a handler reads may change between two steps. A connection has at most one request under way like this, so its
requests are handled in their order.
"""

from collections import deque
from collections.abc import Callable, Generator

from rocket_broker.loop.step_line import StepLine, run_slice
from rocket_broker.loop.watchdog import Watchdog
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.command import RemotingCommand

__all__ = ["RequestSteps", "Steps"]

Steps = Generator[None, None, RemotingCommand | None]
"""What a handler returns that works in steps: yields between them, and returns the answer, or None for no answer."""

Failure = Callable[[Connection, RemotingCommand, Exception], RemotingCommand | None]
"""Turns what a step raised into the answer; called where the exception was caught."""


class _Request:
    """One request under way."""

    __slots__ = ("command", "connection", "steps")

    def __init__(self, connection: Connection, command: RemotingCommand, steps: Steps) -> None:
        self.connection = connection
        self.command = command
        self.steps = steps


class RequestSteps:
    """The requests that are handled in steps, in line.

    Args:
        failure: Answers a request whose step raised something.
        most_begun: How many requests are worked on by turns. Further ones begin when one of them is done, so that
            what unfinished answers take of the memory is bounded.
        outlives_connection: Whether a request is carried out to its end although its connection is closed.
    """

    def __init__(self, failure: Failure, *, most_begun: int, outlives_connection: bool = False) -> None:
        self._failure = failure
        self._most_begun = most_begun
        self._outlives_connection = outlives_connection
        self._begun = StepLine(self._advance, self._next_waiting)
        self._waiting: deque[_Request] = deque()

    def begin(self, connection: Connection, command: RemotingCommand, steps: Steps) -> RemotingCommand | None:
        """Run the first slice; return the answer, or None if there is none or it comes later.

        Raises:
            Exception: What the first slice raised.
        """
        request = _Request(connection, command, steps)
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
        """Drop the requests that are under way; run those to their end that outlive their connections."""
        while (request := self._begun.take() or self._next_waiting()) is not None:
            if self._outlives_connection:
                while not self._advance(request):
                    pass
            else:
                request.steps.close()

    def _next_waiting(self) -> _Request | None:
        return self._waiting.popleft() if self._waiting else None

    def _advance(self, request: _Request) -> bool:
        """Run a slice of the request; return whether it has ended, and been answered."""
        connection, command = request.connection, request.command
        if connection.is_closed and not self._outlives_connection:
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
