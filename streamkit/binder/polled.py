"""Polled consumers: the application polls for messages and handles them in its own task.

::

    source.poll(handler) ─▶ PolledReceiver ─▶ PolledSource.poll ─▶ no message: return False
                                │  handler returns              Accept, unless the handler settles by hand
                                │  handler raises Requeue       Requeue
                                │  handler raises another       the binding's attempts, then its error handling,
                                │  exception                    then Reject
                                ▼
                            settlement
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from streamkit.binder.acknowledgment import Acknowledgment
from streamkit.binder.binder import (
    Binder,
    BindingState,
    ConsumerBinding,
    ConsumerDestination,
    PolledMessage,
    PolledSource,
)
from streamkit.binder.delivered import DeliveredMessage
from streamkit.binder.header_modes import reading_in
from streamkit.binder.listener_calls import Target, timed_out
from streamkit.binder.receiving import MessageReceiver
from streamkit.binder.tracing import MessageTracer, traced_target
from streamkit.config.settings import HeaderMode
from streamkit.events import message_received, notify
from streamkit.messaging.message import Message
from streamkit.settlement import ACCEPT, Reject, Requeue, Settlement

__all__ = ["PolledReceiver"]

logger = logging.getLogger(__name__)

_PAUSE_OF_IDLE_POLLS: Final = 0.1
"""The most seconds that a poll takes while the binding does not run."""


class PolledReceiver(MessageReceiver):
    """Polls one destination of a binding, and settles each message.

    Attributes:
        tracer: Traces the handlers; None for no tracing.
    """

    tracer: MessageTracer | None = None
    _member: "_Member | None" = None
    _header_mode: HeaderMode | None = None

    async def bind(self, binder: Binder, destination: ConsumerDestination) -> ConsumerBinding:
        """Bind this receiver to a destination, for polls.

        Raises:
            BinderUnavailable: The binder's system cannot be reached.
            BinderError: The binder's system refused.
        """
        self._header_mode = destination.properties.header_mode
        self._member = _Member(await binder.bind_polled(destination))
        return self._member

    async def poll(self, handler: Target) -> bool:
        """Poll for a message and call ``handler`` with it.

        Returns:
            Whether ``handler`` was called; False if there is no message now, or the binding does not run.

        Raises:
            CancelledError: The poll is cancelled. Its message is delivered again, unless it was settled by hand.
            BinderError: The message could not be fetched or settled.
        """
        member = self._member
        if member is None or member.state is not BindingState.RUNNING:
            # A loop of polls must let other tasks run, also while the binding is paused.
            await asyncio.sleep(min(self._delivery.poll_timeout.total_seconds(), _PAUSE_OF_IDLE_POLLS))
            return False
        polled = await member.source.poll()
        # If the binding was stopped while the poll waited, the message stays unsettled and is delivered again.
        if polled is None or member.is_stopped:
            return False
        with member.at_work():
            await self._take(polled, handler, member)
        return True

    async def _take(self, polled: PolledMessage, handler: Target, member: "_Member") -> None:
        """Call ``handler`` with a message; carry out the settlement now, or later if it is settled by hand."""
        if message_received.receivers:
            notify(message_received, self._owner, binding=self._binding, message=polled.message)
        acknowledgment = Acknowledgment()
        delivered = DeliveredMessage(polled.message, polled.redeliveries, acknowledgment)
        call = partial(_call, reading_in(self._header_mode, traced_target(handler, self.tracer)))
        try:
            # Spring's rule for polled consumers: a failed message is rejected; only Requeue delivers it again.
            settlement = await self._attempts.run(delivered, call, asyncio.sleep, _settlement_of, requeues=False)
        except asyncio.CancelledError:
            acknowledgment.close()
            delivered.settlement = acknowledgment.settlement
            if delivered.settlement is None:
                await member.settle(polled, Requeue("the poll was cancelled"))
            else:
                await self._carry_out(polled, delivered, acknowledgment, member)
            raise
        if settlement is None:
            member.wait_for(self._settle_later(polled, delivered, acknowledgment, member))
        else:
            await self._carry_out(polled, delivered, acknowledgment, member)

    async def _settle_later(
        self,
        polled: PolledMessage,
        delivered: DeliveredMessage,
        acknowledgment: Acknowledgment,
        member: "_Member",
    ) -> None:
        timeout = self._delivery.consume_timeout
        try:
            async with asyncio.timeout(None if timeout is None else timeout.total_seconds()):
                delivered.settlement = await acknowledgment.settled()
        except TimeoutError:
            delivered.settlement = timed_out(self._binding, self._delivery, polled.message)
        finally:
            acknowledgment.close()
        await self._carry_out(polled, delivered, acknowledgment, member)

    async def _carry_out(
        self,
        polled: PolledMessage,
        delivered: DeliveredMessage,
        acknowledgment: Acknowledgment,
        member: "_Member",
    ) -> None:
        acknowledgment.close()
        await member.settle(polled, self._attempts.conclude(delivered))

    def runs_in(self, task: "asyncio.Task[object] | None") -> bool:
        """Return whether ``task`` handles a polled message."""
        return self._member is not None and self._member.has(task)

    def close(self) -> None:
        """Stop waiting for settlements by hand; messages without a settlement stay unsettled."""
        super().close()
        if self._member is not None:
            self._member.close()
            self._member = None


class _Member(ConsumerBinding):
    """Stops its source when all polled messages are settled, or when the time for that is over.

    A polled message is in one of three states, each with its own collection::

        _pollers     its handler runs
        _open        its handler has returned, and the message is to be settled by hand
        _settling    its settlement is carried out
    """

    def __init__(self, source: PolledSource) -> None:
        self.source = source
        self.is_stopped = False
        # The task of each running handler; a task that polls within its handler occurs more than once.
        self._pollers: list[asyncio.Task[object] | None] = []
        # The tasks that wait for settlements by hand.
        self._open: set[asyncio.Task[None]] = set()
        # The tasks that carry out settlements; they go on when their polls are cancelled.
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
        """Count the running task among those that handle a message while the block runs."""
        task = asyncio.current_task()
        self._pollers.append(task)
        try:
            yield
        finally:
            self._pollers.remove(task)
            self._check_idle()

    def wait_for(self, settling: Coroutine[object, None, None]) -> None:
        """Run ``settling`` as a task that waits for a settlement by hand, and log its failure."""
        self._begin(settling, "settle by hand", self._open).add_done_callback(self._log_failure)

    def _begin(
        self, settling: Coroutine[object, None, None], name: str, among: set[asyncio.Task[None]]
    ) -> asyncio.Task[None]:
        task = asyncio.create_task(settling, name=name)
        among.add(task)
        task.add_done_callback(among.discard)
        task.add_done_callback(self._check_idle)
        return task

    async def settle(self, polled: PolledMessage, settlement: Settlement) -> None:
        """Carry out a settlement; a `Requeue` or `Reject` is carried out even if the poll is cancelled meanwhile."""
        if settlement is ACCEPT:  # sources accept without waiting; a task would double the cost of a poll
            await polled.settle(settlement)
        else:
            settling = self._begin(_settle(polled, settlement), "settle", self._settling)
            try:
                await asyncio.shield(settling)
            except asyncio.CancelledError:  # the cancelled poll cannot raise the failure, so it is logged
                settling.add_done_callback(self._log_failure)
                raise

    def has(self, task: "asyncio.Task[object] | None") -> bool:
        """Return whether ``task`` handles a polled message."""
        return task in self._pollers

    async def stop(self, timeout: float) -> None:
        self.is_stopped = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        self._check_idle()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._idle.wait()
        await self.source.stop(max(0.0, deadline - loop.time()))

    def close(self) -> None:
        """Stop waiting for settlements by hand. Settlements under way end by themselves: the source has stopped."""
        for task in self._open:
            task.cancel()

    def _log_failure(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("A message of %r could not be settled", self.source, exc_info=error)

    def _check_idle(self, _: object = None) -> None:
        if self.is_stopped and not (self._pollers or self._open or self._settling):
            self._idle.set()

    def __repr__(self) -> str:
        under_way = len(self._pollers) + len(self._open) + len(self._settling)
        return f"<polled {self.source!r}, {under_way} messages under way>"


async def _call(handler: Target, message: Message[object], acknowledgment: Acknowledgment | None) -> Settlement | None:
    """Call ``handler`` with a message; return the settlement, or None if the handler settles it later."""
    assert acknowledgment is not None, "a polled message can always be settled by hand"
    try:
        await handler(message)
    except (Requeue, Reject) as decision:
        return decision.with_traceback(None)
    return acknowledgment.settlement or (None if acknowledgment.is_engaged else ACCEPT)


def _settlement_of(delivered: DeliveredMessage) -> Settlement | None:
    return delivered.settlement


async def _settle(polled: PolledMessage, settlement: Settlement) -> None:
    await polled.settle(settlement)
