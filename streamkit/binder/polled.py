"""Polled consumers: messages handed over when the application asks for them.

::

    source.poll(handler) ─▶ PolledReceiver ─▶ PolledSource.poll ─▶ no message: False
                                │  handler returns          accepted, unless it settles by hand
                                │  it raises Requeue        delivered again
                                │  it raises                the binding's attempts, its error channel, then rejected
                                ▼
                            settlement
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress

from streamkit.binder.acknowledgment import ACKNOWLEDGMENT, Acknowledgment
from streamkit.binder.binder import (
    Binder,
    BindingState,
    ConsumerBinding,
    ConsumerDestination,
    PolledMessage,
    PolledSource,
)
from streamkit.binder.header_modes import reading_in
from streamkit.binder.receiving import MessageReceiver, Target
from streamkit.binder.settlement import ACCEPT, RETRY, Settlement
from streamkit.config.settings import HeaderMode
from streamkit.errors import SettlementRequest
from streamkit.events import message_failed, message_received, notify
from streamkit.messaging.headers import DELIVERY_ATTEMPT
from streamkit.messaging.message import Message

__all__ = ["PolledReceiver"]

logger = logging.getLogger(__name__)


class PolledReceiver(MessageReceiver):
    """Polls one destination of a binding, and says what becomes of each message."""

    _member: "_Member | None" = None
    _header_mode: HeaderMode | None = None

    async def bind(self, binder: Binder, destination: ConsumerDestination) -> ConsumerBinding:
        """Have ``binder`` keep messages for this receiver's polls."""
        self._header_mode = destination.properties.header_mode
        self._member = _Member(await binder.bind_polled(destination))
        return self._member

    async def poll(self, handler: Target) -> bool:
        """Have ``handler`` take one message; False when there is none now, or the binding is not bound."""
        member = self._member
        if member is None or member.state is not BindingState.RUNNING:
            return False
        polled = await member.source.poll()
        if polled is None or member.is_stopped:
            return False
        with member.at_work():
            await self._take(polled, handler, member)
        return True

    async def _take(self, polled: PolledMessage, handler: Target, member: "_Member") -> None:
        """Have ``handler`` take a message, and carry out what becomes of it, now or later."""
        if message_received.receivers:
            notify(message_received, self._owner, binding=self._binding, message=polled.message)
        acknowledgment = Acknowledgment()
        target = reading_in(self._header_mode, handler)
        try:
            settlement = await self._handled(polled, target, acknowledgment)
        except asyncio.CancelledError:
            acknowledgment.close()
            if acknowledgment.settlement is None:
                await member.settle(polled, RETRY)
            else:
                await self._carry_out(polled, acknowledgment, acknowledgment.settlement, member)
            raise
        if settlement is None:
            member.wait_for(self._settle_later(polled, acknowledgment, member))
        else:
            await self._carry_out(polled, acknowledgment, settlement, member)

    async def _handled(
        self, polled: PolledMessage, handler: Target, acknowledgment: Acknowledgment
    ) -> Settlement | None:
        """Make the calls; returns the settlement, None when the handler settles later."""
        calls = self._policy.calls(polled.redeliveries)
        headers = polled.message.headers.annotated(ACKNOWLEDGMENT, acknowledgment)
        for number in calls:
            attempt = Message(polled.message.payload, headers.annotated(DELIVERY_ATTEMPT, number))
            try:
                await handler(attempt)
            except SettlementRequest as request:
                return self._requested(request, polled.redeliveries)
            except Exception as error:
                if message_failed.receivers:
                    notify(message_failed, self._owner, binding=self._binding, message=attempt, error=error)
                if acknowledgment.settlement is not None:
                    logger.exception("A handler of %r failed after it had settled its message", self._binding)
                    return acknowledgment.settlement
                if number == calls[-1] or not self._policy.is_retryable(error):
                    # Not given back: whoever polls decides by Requeue what comes again.
                    return await self._given_up(attempt, error, number, polled.redeliveries, retryable=False)
                pause = self._pause_after(number, error)
            else:
                if acknowledgment.is_engaged and acknowledgment.settlement is None:
                    return None
                return acknowledgment.settlement or ACCEPT
            await asyncio.sleep(pause)
        raise AssertionError("a delivery makes at least one call")

    async def _settle_later(
        self, polled: PolledMessage, acknowledgment: Acknowledgment, member: "_Member"
    ) -> None:
        timeout = self._delivery.consume_timeout
        try:
            async with asyncio.timeout(None if timeout is None else timeout.total_seconds()):
                settlement = await acknowledgment.settled()
        except TimeoutError:
            settlement = self._timed_out(polled.message)
        finally:
            acknowledgment.close()
        await self._carry_out(polled, acknowledgment, settlement, member)

    async def _carry_out(
        self,
        polled: PolledMessage,
        acknowledgment: Acknowledgment,
        settlement: Settlement,
        member: "_Member",
    ) -> None:
        acknowledgment.close()
        settlement = self._bounded(settlement, polled.redeliveries)
        self._tell(polled.message, settlement)
        await member.settle(polled, settlement)

    def runs_in(self, task: "asyncio.Task[object] | None") -> bool:
        """Return whether a message that was polled in ``task`` is under way."""
        return self._member is not None and self._member.has(task)

    def close(self) -> None:
        """Leave the messages unsettled that their handlers have not settled by now."""
        super().close()
        if self._member is not None:
            self._member.close()
            self._member = None


class _Member(ConsumerBinding):
    """A source that is stopped when the messages it gave are settled, or their time is up."""

    def __init__(self, source: PolledSource) -> None:
        self.source = source
        self.is_stopped = False
        # Tasks whose handlers are under way, one entry for each message.
        self._pollers: list[asyncio.Task[object] | None] = []
        # Messages that their handlers settle after they returned.
        self._open: set[asyncio.Task[None]] = set()
        # Settlements that are carried out, whether or not their polls go on.
        self._settling: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()

    @property
    def state(self) -> BindingState:
        return BindingState.STOPPED if self.is_stopped else self.source.state

    async def pause(self) -> None:
        await self.source.pause()

    async def resume(self) -> None:
        await self.source.resume()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Count the running task's message as under way while the block runs."""
        task = asyncio.current_task()
        self._pollers.append(task)
        try:
            yield
        finally:
            self._pollers.remove(task)
            self._look()

    def wait_for(self, settling: Coroutine[object, None, None]) -> None:
        """Wait for a settlement in a task, and tell of its failure."""
        self._begin(settling, "settle by hand", self._open).add_done_callback(self._tell_failure)

    def _begin(
        self, settling: Coroutine[object, None, None], name: str, among: set[asyncio.Task[None]]
    ) -> asyncio.Task[None]:
        task = asyncio.create_task(settling, name=name)
        among.add(task)
        task.add_done_callback(among.discard)
        task.add_done_callback(self._look)
        return task

    async def settle(self, polled: PolledMessage, settlement: Settlement) -> None:
        """Carry a settlement out, to its end also when whoever polls is cancelled meanwhile."""
        if settlement is ACCEPT:  # a source takes note of it at once; a task would double the cost of a poll
            await polled.settle(settlement)
        else:
            settling = self._begin(_settle(polled, settlement), "settle", self._settling)
            try:
                await asyncio.shield(settling)
            except asyncio.CancelledError:  # nobody else is there to hear of its failure
                settling.add_done_callback(self._tell_failure)
                raise

    def has(self, task: "asyncio.Task[object] | None") -> bool:
        """Whether a message that was polled in that task is under way."""
        return task in self._pollers

    async def stop(self, timeout: float) -> None:
        self.is_stopped = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        self._look()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._idle.wait()
        await self.source.stop(max(0.0, deadline - loop.time()))

    def close(self) -> None:
        """Wait for no handler to settle any more; what is carried out ends, since the source has stopped."""
        for task in self._open:
            task.cancel()

    def _tell_failure(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("A message of %r could not be settled", self.source, exc_info=error)

    def _look(self, _: object = None) -> None:
        if self.is_stopped and not (self._pollers or self._open or self._settling):
            self._idle.set()

    def __repr__(self) -> str:
        under_way = len(self._pollers) + len(self._open) + len(self._settling)
        return f"<polled {self.source!r}, {under_way} messages under way>"


async def _settle(polled: PolledMessage, settlement: Settlement) -> None:
    await polled.settle(settlement)
