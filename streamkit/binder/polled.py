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

from streamkit.binder.acknowledgment import ACKNOWLEDGMENT, Acknowledgment
from streamkit.binder.attempts import unwrapped
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

log = logging.getLogger(__name__)


class PolledReceiver(MessageReceiver):
    """Polls one destination of a binding, and says what becomes of each message."""

    _source: PolledSource | None = None
    _header_mode: HeaderMode | None = None
    # Messages that their handlers settle after they returned.
    _open: "set[asyncio.Task[None]]"

    async def bind(self, binder: Binder, destination: ConsumerDestination) -> ConsumerBinding:
        """Have ``binder`` keep messages for this receiver's polls."""
        self._open = set()
        self._header_mode = destination.properties.header_mode
        self._source = await binder.bind_polled(destination)
        return self._source

    async def poll(self, handler: Target) -> bool:
        """Have ``handler`` take one message; False when there is none now, or the binding is not bound."""
        source = self._source
        if source is None or source.state is not BindingState.RUNNING:
            return False
        polled = await source.poll()
        if polled is None:
            return False
        if message_received.receivers:
            notify(message_received, self._owner, binding=self._binding, message=polled.message)
        acknowledgment = Acknowledgment()
        target = reading_in(self._header_mode, handler)
        try:
            settlement = await self._handled(polled, target, acknowledgment)
        except asyncio.CancelledError:
            await asyncio.shield(polled.settle(RETRY))
            raise
        if settlement is None:
            task = asyncio.create_task(self._settle_later(polled, acknowledgment), name="settle by hand")
            self._open.add(task)
            task.add_done_callback(self._open.discard)
        else:
            await self._carry_out(polled, acknowledgment, settlement)
        return True

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
                return self._requested(attempt, request, polled.redeliveries)
            except Exception as error:
                if message_failed.receivers:
                    notify(message_failed, self._owner, binding=self._binding, message=attempt, error=error)
                if acknowledgment.settlement is not None:
                    log.exception("A handler of %r failed after it had settled its message", self._binding)
                    return acknowledgment.settlement
                if number == calls[-1] or not self._policy.is_retryable(error):
                    # Not given back: whoever polls decides by Requeue what comes again.
                    return await self._given_up(attempt, error, number, polled.redeliveries, retryable=False)
                pause = self._policy.back_off.pause(number)
                log.warning(
                    "Binding %r: attempt %d failed, next in %g s: %r",
                    self._binding,
                    number,
                    pause,
                    unwrapped(error),
                )
            else:
                if acknowledgment.is_engaged and acknowledgment.settlement is None:
                    return None
                return acknowledgment.settlement or ACCEPT
            await asyncio.sleep(pause)
        raise AssertionError("a delivery makes at least one call")

    async def _settle_later(self, polled: PolledMessage, acknowledgment: Acknowledgment) -> None:
        timeout = self._delivery.consume_timeout
        try:
            async with asyncio.timeout(None if timeout is None else timeout.total_seconds()):
                settlement = await acknowledgment.settled()
        except TimeoutError:
            settlement = self._timed_out(polled.message)
        await self._carry_out(polled, acknowledgment, settlement)

    async def _carry_out(
        self, polled: PolledMessage, acknowledgment: Acknowledgment, settlement: Settlement
    ) -> None:
        acknowledgment.close()
        settlement = self._bounded(settlement, polled.redeliveries)
        self._tell(polled.message, settlement)
        await polled.settle(settlement)

    def close(self) -> None:
        """Leave the messages unsettled that their handlers have not settled by now."""
        super().close()
        if self._source is not None:
            self._source = None
            for task in self._open:
                task.cancel()
