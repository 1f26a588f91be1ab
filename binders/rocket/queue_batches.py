"""Batches for a list of messages: one request for each queue, where each message would be sent alone otherwise.

::

    messages   a0  b1  c0  D1  e1     letter: message; digit: its queue; D is large or delayed
                    │
    queue 0    [a c]                  one request
    queue 1    [b]  D  [e]            three, one after the other, so the queue keeps the order of the list

A message without partition takes the next queue in turn, as it would alone, so consumers share a list evenly. The
queues are served at the same time. In each, nothing is sent behind a message that failed. A batch that the broker
refuses is sent message by message, because the broker may refuse only one of them, or batches as such.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from rocket_client import IllegalMessageError, Producer, SendError, SendResult
from rocket_remoting import Message, MessageQueue, ResponseError
from rocket_remoting.wire.properties import PROPERTY_DELAY_TIME_LEVEL, TIMER_PROPERTIES

MOST_MESSAGES: Final = 64
MOST_BYTES: Final = 256 * 1024
"""The bounds of a batch's bodies. A message has at most 32 KiB of properties, so a batch stays below the 4 MiB that
brokers take."""

_ALONE: Final = TIMER_PROPERTIES | {PROPERTY_DELAY_TIME_LEVEL}
"""The properties of a message that no batch may hold."""

Selector = Callable[[Sequence[MessageQueue], Message, object], MessageQueue]
Check = Callable[[Message, SendResult], None]


class _Run:
    """Neighbours in one queue that one request can hold.

    Attributes:
        messages: The messages.
        size: The bytes of their bodies.
    """

    __slots__ = ("messages", "size")

    def __init__(self, message: Message) -> None:
        self.messages = [message]
        self.size = len(message.body)

    def extend(self, message: Message) -> bool:
        """Add a message if there is room; return whether there was."""
        size = self.size + len(message.body)
        if size > MOST_BYTES or len(self.messages) >= MOST_MESSAGES:
            return False
        self.messages.append(message)
        self.size = size
        return True


class _Lane:
    """The messages for one queue, in their order.

    Attributes:
        partition: The partition that chooses the queue, or None.
        queue: The queue that was next in turn, or None.
        places: The places of the messages in the list.
        runs: The messages by their requests.
        sent: The number of messages that a broker has stored.
        error: The failure of the message behind them, or None.
    """

    __slots__ = ("error", "is_open", "partition", "places", "queue", "runs", "sent")

    def __init__(self, partition: object, queue: MessageQueue | None) -> None:
        self.partition = partition
        self.queue = queue
        self.places: list[int] = []
        self.runs: list[_Run] = []
        self.is_open = False
        self.sent = 0
        self.error: Exception | None = None

    def add(self, place: int, message: Message, *, may_share: bool) -> None:
        """Append a message, to the last run if both may share a request."""
        self.places.append(place)
        if not (may_share and self.is_open and self.runs[-1].extend(message)):
            self.runs.append(_Run(message))
        self.is_open = may_share


class QueueBatches:
    """Sends lists of messages to one topic."""

    def __init__(self, producer: Producer, topic: str, select: Selector, check: Check) -> None:
        """Make a sender.

        Args:
            producer: The producer.
            topic: The topic of all messages.
            select: Returns the queue of a partition.
            check: Raises if the result of a message's send is a failure.
        """
        self._producer = producer
        self._topic = topic
        self._select = select
        self._check = check
        # Larger bodies are compressed, which those of a batch are not.
        self._most_bytes = min(MOST_BYTES, producer.settings.compress_body_threshold - 1)

    async def send(self, messages: Sequence[tuple[Message, object]]) -> list[Exception | None]:
        """Send messages, each with its partition or None; wait for the broker's answers.

        Returns:
            The error of each message, or None if a broker has stored it. Messages behind a failed one in its queue are
            not sent; they have its error.
        """
        lanes = self._lanes(messages)
        if len(lanes) == 1:
            await self._send_lane(lanes[0])
        else:
            await asyncio.gather(*map(self._send_lane, lanes))
        errors: list[Exception | None] = [None] * len(messages)
        for lane in lanes:
            for place in lane.places[lane.sent :]:
                errors[place] = lane.error
        return errors

    def _lanes(self, messages: Sequence[tuple[Message, object]]) -> list[_Lane]:
        lanes: list[_Lane] = []
        by_key: dict[object, _Lane] = {}
        for place, (message, partition) in enumerate(messages):
            may_share = len(message.body) <= self._most_bytes and _ALONE.isdisjoint(message.properties)
            queue = self._producer.next_queue(self._topic) if partition is None and may_share else None
            # Without partition and queue the message has a lane of its own.
            key = queue if partition is None else partition
            lane = None if key is None else by_key.get(key)
            if lane is None:
                lane = by_key[key] = _Lane(partition, queue)
                lanes.append(lane)
            lane.add(place, message, may_share=may_share)
        return lanes

    async def _send_lane(self, lane: _Lane) -> None:
        try:
            for run in lane.runs:
                if len(run.messages) == 1 or not await self._send_batch(lane, run.messages):
                    for message in run.messages:
                        await self._send_alone(lane, message)
        except Exception as error:
            lane.error = error

    async def _send_batch(self, lane: _Lane, messages: Sequence[Message]) -> bool:
        """Send messages in one request; return False if it was refused, so that nothing is stored."""
        selector = None if lane.partition is None else self._select
        try:
            result = await self._producer.send_batch(
                messages, selector=selector, argument=lane.partition, first=lane.queue
            )
        except (IllegalMessageError, SendError) as error:
            if not _is_refused(error):
                raise
            return False
        self._check(messages[0], result)
        lane.sent += len(messages)
        return True

    async def _send_alone(self, lane: _Lane, message: Message) -> None:
        selector = None if lane.partition is None else self._select
        result = await self._producer.send(message, selector=selector, argument=lane.partition, first=lane.queue)
        self._check(message, result)
        lane.sent += 1

    def __repr__(self) -> str:
        return f"<QueueBatches to {self._topic!r}>"


def _is_refused(error: IllegalMessageError | SendError) -> bool:
    """Return whether this client or the last broker refused the batch."""
    return isinstance(error, IllegalMessageError) or (
        bool(error.causes) and isinstance(error.causes[-1], ResponseError)
    )
