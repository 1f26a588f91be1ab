"""Settlements of polled messages that take longer than their poll."""

import asyncio
import gc

import pytest

from binders.inmemory.binder import InMemoryBinder
from streamkit.binder.attempts import RetryPolicy
from streamkit.binder.binder import (
    Binder,
    BindingState,
    ConsumerBinding,
    ConsumerDestination,
    PolledMessage,
    PolledSource,
)
from streamkit.binder.delivery import Delivery, ExtendedConsumerProperties
from streamkit.binder.permits import Permits
from streamkit.binder.polled import PolledReceiver
from streamkit.config.settings import ConsumerProperties
from streamkit.errors import BinderError
from streamkit.messaging.message import ErrorMessage, Message
from streamkit.settlement import Reject, Settlement
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.binder.places import failure_log


class SlowSource(PolledSource):
    """A source of one message after the other, whose settlement takes an hour or ends a second after the stop."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.settled: list[Settlement] = []
        self._failure = failure
        self._stopped = asyncio.Event()

    @property
    def state(self) -> BindingState:
        return BindingState.STOPPED if self._stopped.is_set() else BindingState.RUNNING

    async def pause(self) -> None:
        raise NotImplementedError

    async def resume(self) -> None:
        raise NotImplementedError

    async def stop(self, timeout: float) -> None:
        self._stopped.set()

    async def poll(self) -> PolledMessage | None:
        return PolledMessage(Message(b"soup"), 0, self._settle)

    async def _settle(self, settlement: Settlement) -> None:
        try:
            async with asyncio.timeout(3600):
                await self._stopped.wait()
            await asyncio.sleep(1)
        except TimeoutError:
            pass
        if self._failure is not None:
            raise self._failure
        self.settled.append(settlement)


class OneSource(InMemoryBinder):
    """A binder with this source."""

    def __init__(self, source: PolledSource) -> None:
        Binder.__init__(self, "scripted")
        self._source = source

    async def bind_polled(self, destination: ConsumerDestination) -> PolledSource:
        return self._source


async def reject(message: Message[object]) -> None:
    raise Reject("no")


async def unhandled(error: ErrorMessage) -> bool:
    return False


async def bound(source: PolledSource) -> tuple[PolledReceiver, ConsumerBinding]:
    """Return a receiver that polls the source, and the function that stops it."""
    receiver = PolledReceiver(
        "app", "in", reject, Delivery(), RetryPolicy(), permits=Permits(1), on_error=unhandled, log=failure_log()
    )
    destination = ConsumerDestination(
        "orders", "kitchen", "in", ConsumerProperties(), ExtendedConsumerProperties(), Delivery(), Permits(1)
    )
    return receiver, await receiver.bind(OneSource(source), destination)


def test_stop_after_its_timeout_does_not_cancel_polls() -> None:
    """A pending settlement ends by itself, and so does its poll."""

    async def main() -> None:
        source = SlowSource()
        receiver, member = await bound(source)
        polling = asyncio.create_task(receiver.poll(reject))
        await asyncio.sleep(1)
        await member.stop(1)
        receiver.close()
        assert await polling
        assert source.settled == [Reject("no")]

    with VirtualTime() as time:
        time.run(main())


class LateSource(SlowSource):
    """Has a message an hour after it is asked for one."""

    async def poll(self) -> PolledMessage | None:
        await asyncio.sleep(3600)
        return await super().poll()


def test_a_message_that_comes_after_the_stop_is_not_handled() -> None:
    """It stays unsettled, so the group's next member gets it."""
    handled: list[Message[object]] = []

    async def note(message: Message[object]) -> None:
        handled.append(message)

    async def main() -> None:
        source = LateSource()
        receiver, member = await bound(source)
        polling = asyncio.create_task(receiver.poll(note))
        await asyncio.sleep(1)
        await member.stop(1)
        assert not await polling
        assert source.settled == []

    with VirtualTime() as time:
        time.run(main())
    assert handled == []


def test_settlement_error_after_a_cancelled_poll_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once, with the source's name."""

    async def main() -> None:
        source = SlowSource(BinderError("away"))
        receiver, member = await bound(source)
        polling = asyncio.create_task(receiver.poll(reject))
        await asyncio.sleep(1)
        polling.cancel()
        await asyncio.wait([polling])
        await member.stop(60)
        await asyncio.sleep(2)
        assert source.settled == []

    with VirtualTime() as time:
        time.run(main())
    gc.collect()
    (reported,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "SlowSource" in reported.getMessage()
    assert reported.exc_info is not None
    assert isinstance(reported.exc_info[1], BinderError)
