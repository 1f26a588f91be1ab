"""Faults that a broker injects for tests: late, lost and repeated requests, as a network has them.

::

    request ─► delay: the connection waits, so the order of its requests stays
            ─► reorder (sends): the send waits alone, and requests behind it are handled first
            ─► drop-connection: the connection ends before the request is handled …
            ─► the handler, for a duplicate twice: as if the producer had sent again
            ─► drop-connection: … or after it, so that only the answer is lost

Faults hit the requests of producers and consumers. Administration, and the broker's connection to itself at its start,
have none.
"""

import asyncio
import copy
import random
from collections.abc import Callable
from typing import Final, NamedTuple

from rocket_broker.requests.serving import Dispatcher, failure_answer
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.command import ONEWAY_FLAG, RemotingCommand
from rocket_remoting.wire.deduplication import SEND_DEDUPLICATED
from streamkit.chaos import Chaos, Fate

__all__ = ["FaultInjection"]

_SENDS = frozenset((Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, SEND_DEDUPLICATED))
_HIT = _SENDS | {
    Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE, Code.QUERY_CONSUMER_OFFSET, Code.UPDATE_CONSUMER_OFFSET,
    Code.HEART_BEAT, Code.CONSUMER_SEND_MSG_BACK, Code.END_TRANSACTION, Code.GET_CONSUMER_LIST_BY_GROUP,
    Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ, Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET, Code.SEARCH_OFFSET_BY_TIMESTAMP,
}  # fmt: skip
_REASON: Final = "dropped by the chaos of this test"


class FaultInjection:
    """Calls a dispatcher, with faults.

    Args:
        dispatcher: Handles the requests.
        chaos: The faults.
    """

    def __init__(self, dispatcher: Dispatcher, chaos: Chaos) -> None:
        self._dispatcher = dispatcher
        self._chaos = chaos
        # Numbers of its own for each kind of request: heartbeats, whose times depend on the machine, do not change what
        # happens to the sends.
        self._draws: dict[int, random.Random] = {code: chaos.draws(f"request {int(code)}") for code in _HIT}
        self._timers: set[asyncio.TimerHandle] = set()

    def __call__(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Handle a request, now or later; return the answer, or None if it comes later or never."""
        draws = self._draws.get(command.code)
        if draws is None:
            return self._dispatcher(connection, command)
        request = _Request(connection, command, self._chaos.fate(draws), command.code in _SENDS)
        if not request.fate.waits:
            return self._arrived(request)
        # The bytes are counted, as those of a request that is handled in steps.
        connection.pause_requests(len(command.body))
        self._later(request.fate.waits, self._waited, request)
        return None

    def stop(self) -> None:
        """Drop the requests that still wait."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _waited(self, request: "_Request") -> None:
        request.connection.resume_requests()
        self._respond(request, self._arrived)

    def _arrived(self, request: "_Request") -> RemotingCommand | None:
        """Handle a request, or let it wait while others overtake it."""
        if not (request.is_send and request.fate.is_overtaken_for):
            return self._handle(request)
        self._later(request.fate.is_overtaken_for, self._overtaken, request)
        return None

    def _overtaken(self, request: "_Request") -> None:
        self._respond(request, self._handle)

    def _handle(self, request: "_Request") -> RemotingCommand | None:
        connection, command, fate, is_send = request
        if fate.is_lost:
            connection.abort(_REASON)
            return None
        answer = self._dispatcher(connection, command)
        if is_send and fate.is_repeated:
            self._dispatcher(connection, _without_answer(command))
        if fate.is_answer_lost:
            connection.abort(_REASON)
            return None
        return answer

    def _respond(self, request: "_Request", handle: Callable[["_Request"], RemotingCommand | None]) -> None:
        connection, command = request.connection, request.command
        if connection.is_closed:
            return
        try:
            answer = handle(request)
        except Exception as error:
            answer = failure_answer(connection, command, error)
        if answer is not None and not command.is_oneway:
            connection.respond(answer)

    def _later(self, seconds: float, then: Callable[["_Request"], None], request: "_Request") -> None:
        def run() -> None:
            self._timers.discard(timer)
            then(request)

        timer = asyncio.get_running_loop().call_later(seconds, run)
        self._timers.add(timer)


class _Request(NamedTuple):
    connection: Connection
    command: RemotingCommand
    fate: Fate
    is_send: bool


def _without_answer(command: RemotingCommand) -> RemotingCommand:
    """Return the request as one that gets no answer."""
    again = copy.copy(command)
    again.flag |= ONEWAY_FLAG
    return again
