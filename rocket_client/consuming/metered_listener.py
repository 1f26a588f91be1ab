"""Counts the messages that arrive, how long they wait for the listener, and how long its calls take."""

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from rocket_client.consuming.listener import ConsumeContext
from rocket_client.consuming.traced_listener import codes_of
from rocket_client.core.process_queue import ProcessQueue
from rocket_client.metrics import ConsumerMeter
from rocket_client.namespace import Namespace
from rocket_remoting.clock import Clock
from rocket_remoting.wire.message import MessageExt, MessageQueue
from rocket_remoting.wire.message_trace import ConsumeCode

__all__ = ["Arrivals"]

O = TypeVar("O")  # noqa: E741 - an outcome

Submit = Callable[[ProcessQueue, list[MessageExt]], None]

_MOST_PULLS: Final = 1_024
"""Pulls of a queue that are remembered. A queue with over 1,000 unsettled messages is not pulled, unless its settings
say so."""


class Arrivals:
    """When the messages of a consumer arrived, so that the time until their call is known."""

    def __init__(self, meter: ConsumerMeter, namespace: Namespace, clock: Clock) -> None:
        """Create it without arrivals.

        Args:
            meter: The consumer's counters.
            namespace: The consumer's namespace.
            clock: The clock of timestamps.
        """
        self._meter = meter
        self._namespace = namespace
        self._clock = clock
        self._now = asyncio.get_running_loop().time
        self._pulls: dict[MessageQueue, _Pulls] = {}

    def noted(self, submit: Submit) -> Submit:
        """Return a function that notes when messages arrive, and passes them on."""

        def note(process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
            if messages:
                # Those of the group's retry topic have the topics that they failed in.
                for topic, count in Counter(message.topic for message in messages).items():
                    self._meter.received(topic, count)
                first = messages[0]
                self._meter.arrived(first.topic, self._clock.now_ms() - first.store_timestamp)
                queue = self._namespace.unwrap_queue(process_queue.message_queue)
                self._pulls.setdefault(queue, _Pulls()).add(messages[-1].queue_offset, self._now())
            submit(process_queue, messages)

        return note

    def metered(
        self, listener: Callable[[list[MessageExt], ConsumeContext], Awaitable[O]]
    ) -> Callable[[list[MessageExt], ConsumeContext], Awaitable[O]]:
        """Return a listener that calls another one, and counts the call."""

        async def call(messages: list[MessageExt], context: ConsumeContext) -> O:
            topic, count, begun = messages[0].topic, len(messages), self._now()
            pulls = self._pulls.get(context.message_queue)
            arrived = None if pulls is None else pulls.arrival_of(messages[0].queue_offset)
            if arrived is not None:
                self._meter.awaited(topic, begun - arrived)
            try:
                outcome = await listener(messages, context)
            except BaseException:
                self._meter.processed(topic, self._now() - begun, succeeded=0, failed=count)
                raise
            done = count if outcome is None else codes_of(outcome, count).count(ConsumeCode.SUCCESS)
            self._meter.processed(topic, self._now() - begun, succeeded=done, failed=count - done)
            return outcome

        return call


class _Pulls:
    """The pulls of one queue: the last offset of each, and when it arrived."""

    __slots__ = ("_lasts", "_times")

    def __init__(self) -> None:
        self._lasts: list[int] = []
        self._times: list[float] = []

    def add(self, last: int, time: float) -> None:
        """Remember a pull."""
        if self._lasts and last <= self._lasts[-1]:  # the offset was set back
            self._lasts.clear()
            self._times.clear()
        elif len(self._lasts) >= _MOST_PULLS:
            del self._lasts[: _MOST_PULLS // 2], self._times[: _MOST_PULLS // 2]
        self._lasts.append(last)
        self._times.append(time)

    def arrival_of(self, offset: int) -> float | None:
        """Return when the message with an offset arrived; None if that is not known."""
        at = bisect_left(self._lasts, offset)
        return self._times[at] if at < len(self._times) else None
