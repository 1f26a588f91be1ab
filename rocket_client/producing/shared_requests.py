"""Requests that several sends share: the sends of one topic that are ready in the same turn of the loop leave together.

::

    one turn of the loop     send a ┐
                             send b ├─ at the end of the turn: one request with a, b, c
                             send c ┘

A send without a fixed queue may share a request with any other such send of its topic. The request goes to the queue
that is next in turn.

Sends to one fixed queue keep their order. So a send that may not share (`Outgoing.may_share`) takes its place between
those that do, and nothing is written to the queue while a shared request is under way there, or while its broker is
being connected::

    sends to one queue       a b │ c D e f │ g      D is large or delayed
    requests                 [a b] answered ─► c  D  [e f] answered ─► g

Each send has its own result, error and time limit. If the broker refuses a shared request for a reason that may concern
only one of the messages, or such requests as such, the messages are sent one by one.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from rocket_client.core.outgoing import Outgoing, OutgoingMessages
from rocket_client.core.queue_choice import QueueChoice
from rocket_client.core.send_attempts import SendAttempts
from rocket_client.core.send_result import SendResult
from rocket_client.core.topic_route import TopicRoute
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import RemotingError, RequestTimeout, ResponseError
from rocket_remoting.wire.message import MessageQueue

MOST_MESSAGES: Final = 32
"""The most messages of a request: as many as a consumer pulls at once. Further messages go to the next queue, so that
the members of a group share them."""
MOST_BYTES: Final = 256 * 1024
"""The most bytes of a request's bodies and properties; brokers take 4 MiB."""

_CONCERNS_ALL: Final = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
    }
)
"""Refusals that each of the messages would have got if it had been sent alone."""

ReadyConnection: TypeAlias = Callable[[str], Connection | None]
Connect: TypeAlias = Callable[[str, str, float], Awaitable[Connection]]
_Key: TypeAlias = "str | tuple[str, str, int]"


class Member:
    """A send.

    Attributes:
        outgoing: The encoded message.
        deadline: The time at which the send ends at the latest.
        limit: Seconds for all attempts of the send together, for errors.
        answer: Gets the result or the error.
        queue: The queue that was chosen; None before.
    """

    __slots__ = ("answer", "deadline", "limit", "outgoing", "queue")

    def __init__(self, outgoing: Outgoing, deadline: float, limit: float, answer: asyncio.Future[SendResult]) -> None:
        self.outgoing = outgoing
        self.deadline = deadline
        self.limit = limit
        self.answer = answer
        self.queue: MessageQueue | None = None

    def expire(self) -> None:
        """End the send, because its time is over."""
        broker = "a broker" if self.queue is None else self.queue.broker_name
        self.fail(RequestTimeout(broker, self.outgoing.code, self.limit))

    def succeed(self, result: SendResult) -> None:
        """End the send with a result, unless it has ended."""
        if not self.answer.done():
            self.answer.set_result(result)

    def fail(self, error: RemotingError) -> None:
        """End the send with an error, unless it has ended."""
        if not self.answer.done():
            self.answer.set_exception(error)


class _TimeLimits:
    """Ends sends whose time is over; one timer serves all of them, since nearly all end in time."""

    __slots__ = ("_loop", "_members", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._members: dict[Member, None] = {}
        # Invariant: if there are sends, the timer is due at the earliest of their deadlines, or before.
        self._timer: asyncio.TimerHandle | None = None

    def add(self, member: Member) -> None:
        """Watch a send."""
        self._members[member] = None
        timer = self._timer
        if timer is None:
            self._timer = self._loop.call_at(member.deadline, self._expire)
        elif member.deadline < timer.when():
            timer.cancel()
            self._timer = self._loop.call_at(member.deadline, self._expire)

    def remove(self, member: Member) -> None:
        """Watch a send no more; the timer stays, for the sends that follow."""
        self._members.pop(member, None)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        for member in [member for member in self._members if member.deadline <= now]:
            del self._members[member]
            member.expire()
        if self._members:
            earliest = min(member.deadline for member in self._members)
            self._timer = self._loop.call_at(earliest, self._expire)


class _Lane:
    """Sends that wait for the end of the turn, or for the request before them in their queue.

    Attributes:
        key: The place in `SharedRequests`.
        route: The route of the topic.
        queue: The fixed queue of the sends, or None.
        waiting: The sends, in their order.
    """

    __slots__ = ("key", "queue", "route", "waiting")

    def __init__(self, key: _Key, route: TopicRoute, queue: MessageQueue | None) -> None:
        self.key = key
        self.route = route
        self.queue = queue
        self.waiting: deque[Member] = deque()

    def take(self) -> list[Member]:
        """Take the first sends that one request can hold; return none if no sends wait."""
        waiting = self.waiting
        run: list[Member] = []
        size = 0
        while waiting and len(run) < MOST_MESSAGES:
            member = waiting[0]
            if not member.answer.done():  # otherwise its caller has given up
                outgoing = member.outgoing
                size += len(outgoing.body) + len(outgoing.properties)
                if run and (size > MOST_BYTES or not outgoing.may_share):
                    break
                run.append(member)
                if not outgoing.may_share:
                    waiting.popleft()
                    break
            waiting.popleft()
        return run


class SharedRequests:
    """Collects the sends of one producer until the end of the loop's turn."""

    def __init__(
        self, outgoing: OutgoingMessages, choice: QueueChoice, connection: ReadyConnection, connect: Connect
    ) -> None:
        """Make an instance without sends.

        Args:
            outgoing: Encodes requests and reads their answers.
            choice: Chooses the queues of sends without a fixed one.
            connection: Returns the connection to a broker, or None if nothing can be written to it now.
            connect: Waits until something can be written to a broker; takes its name, the topic and the deadline.
        """
        self._outgoing = outgoing
        self._choice = choice
        self._connection = connection
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        # Invariant: a lane is here while it is going to be flushed, at the end of the turn or after a request.
        self._lanes: dict[_Key, _Lane] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self._limits = _TimeLimits(self._loop)

    def __repr__(self) -> str:
        return f"<SharedRequests: {len(self._lanes)} lanes>"

    def close(self) -> None:
        """Stop the timer of the time limits; called when no send is under way."""
        self._limits.close()

    def takes(self, outgoing: Outgoing, queue: MessageQueue | None, *, is_only: bool) -> bool:
        """Return whether a send is to wait for the end of the turn, or for others to its queue.

        Args:
            outgoing: The encoded message.
            queue: The fixed queue, or None.
            is_only: Whether no other send is under way, so that there is nobody to share with.
        """
        if queue is None or (outgoing.may_share and not is_only):
            return outgoing.may_share and not is_only
        return _key(outgoing, queue) in self._lanes or self._connection(queue.broker_name) is None

    def begin(
        self, outgoing: Outgoing, route: TopicRoute, queue: MessageQueue | None, attempts: SendAttempts, limit: float
    ) -> Member:
        """Take a send, to be sent if possible in one request with others; `end` must follow.

        This is not a coroutine, because each send would wait in one more.

        Args:
            outgoing: The encoded message.
            route: The route of the topic.
            queue: The queue, or None for the next in turn.
            attempts: The send's attempts; they have its deadline.
            limit: Seconds for all attempts together, for errors.

        Returns:
            The send. Its `answer` is awaited by the caller, and gets a RemotingError if the attempt fails.
        """
        member = Member(outgoing, attempts.deadline, limit, self._loop.create_future())
        key = _key(outgoing, queue)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key, route, queue)
            self._loop.call_soon(self._flush, lane)
        lane.waiting.append(member)
        self._limits.add(member)
        return member

    def end(self, member: Member, attempts: SendAttempts) -> None:
        """Forget a send whose answer has come, or whose caller has given up; note the attempt."""
        self._limits.remove(member)
        if member.queue is not None:
            attempts.begin(member.queue.broker_name)

    def _flush(self, lane: _Lane) -> None:
        """Write the requests of a lane; if its queue is fixed, only up to the first that others must wait for."""
        while run := lane.take():
            queue = lane.queue or self._choice.next_queue(lane.route)
            for member in run:
                member.queue = queue
            connection = self._connection(queue.broker_name)
            if connection is None:
                connecting = self._loop.create_task(self._write_later(lane, run, queue), name="send when connected")
                self._connecting.add(connecting)
                connecting.add_done_callback(self._connecting.discard)
                must_wait = True
            else:
                must_wait = self._write(connection, lane, run, queue)
            if must_wait and lane.queue is not None:
                return
        del self._lanes[lane.key]

    async def _write_later(self, lane: _Lane, run: Sequence[Member], queue: MessageQueue) -> None:
        deadline = max(member.deadline for member in run)
        try:
            connection = await self._connect(queue.broker_name, run[0].outgoing.topic, deadline)
        except RemotingError as error:
            for member in run:
                member.fail(error)
            must_wait = False
        else:
            must_wait = self._write(connection, lane, [each for each in run if not each.answer.done()], queue)
        if lane.queue is not None and not must_wait:
            self._flush(lane)

    def _write(self, connection: Connection, lane: _Lane, run: Sequence[Member], queue: MessageQueue) -> bool:
        """Write sends as one request; return whether the lane must wait for the answer before it is flushed again."""
        if len(run) < 2:
            self._write_each(connection, run, queue)
            return False
        batch = self._outgoing.shared([member.outgoing for member in run])
        header = self._outgoing.header(batch, queue.broker_name, queue.queue_id)
        timeout = max(member.deadline for member in run) - self._loop.time()
        try:
            answer = connection.invoke_async(batch.code, header, batch.body, timeout=timeout)
        except RemotingError as error:
            for member in run:
                member.fail(error)
            return False
        answer.add_done_callback(partial(self._answered, connection, lane, run, queue))
        return True

    def _answered(
        self,
        connection: Connection,
        lane: _Lane,
        run: Sequence[Member],
        queue: MessageQueue,
        answer: asyncio.Future[RemotingCommand],
    ) -> None:
        """Give each send of a shared request its part of the answer, or send them one by one."""
        messages = [member.outgoing for member in run]
        try:
            results = self._outgoing.shared_results(messages, queue, answer.result(), connection.remote_address)
        except RemotingError as error:
            if isinstance(error, ResponseError) and error.code not in _CONCERNS_ALL:
                self._write_each(connection, run, queue)
            else:
                for member in run:
                    member.fail(error)
        else:
            for member, result in zip(run, results, strict=True):
                member.succeed(result)
        if lane.queue is not None:
            # Not now: the callers that were just woken may send again, and share the next request.
            self._loop.call_soon(self._flush, lane)

    def _write_each(self, connection: Connection, run: Sequence[Member], queue: MessageQueue) -> None:
        for member in run:
            outgoing = member.outgoing
            if member.answer.done():
                continue
            header = self._outgoing.header(outgoing, queue.broker_name, queue.queue_id)
            timeout = max(member.deadline - self._loop.time(), 0)
            try:
                answer = connection.invoke_async(outgoing.code, header, outgoing.body, timeout=timeout)
            except RemotingError as error:
                member.fail(error)
            else:
                answer.add_done_callback(partial(self._answered_alone, connection, member, queue))

    def _answered_alone(
        self, connection: Connection, member: Member, queue: MessageQueue, answer: asyncio.Future[RemotingCommand]
    ) -> None:
        try:
            result = self._outgoing.result(member.outgoing, queue, answer.result(), connection.remote_address)
        except RemotingError as error:
            member.fail(error)
        else:
            member.succeed(result)


def _key(outgoing: Outgoing, queue: MessageQueue | None) -> _Key:
    return outgoing.topic if queue is None else (outgoing.topic, queue.broker_name, queue.queue_id)
