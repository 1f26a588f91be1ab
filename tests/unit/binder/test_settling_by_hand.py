"""Manual settlement: what a listener may do, and which limits apply."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from streamkit.binder.acknowledgment import ACKNOWLEDGMENT, Acknowledgment
from streamkit.binder.attempts import RetryPolicy
from streamkit.binder.delivery import Delivery
from streamkit.binder.permits import Permits
from streamkit.binder.receiving import MessageReceiver
from streamkit.messaging.message import ErrorMessage, Message
from streamkit.settlement import ACCEPT, Reject, Requeue, Settlement
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.binder.places import failure_log

Target = Callable[[Message[object]], Awaitable[object]]


def receiver(target: Target, delivery: Delivery, permits: Permits) -> MessageReceiver:
    """Return a receiver whose listeners settle manually."""

    async def on_error(error: ErrorMessage) -> bool:
        return False

    return MessageReceiver(
        "app",
        "input",
        target,
        delivery,
        RetryPolicy(),
        permits=permits,
        on_error=on_error,
        log=failure_log(),
        manual=True,
    )


def receive(target: Target, delivery: Delivery) -> Settlement:
    """Return the settlement of one message."""

    async def main() -> Settlement:
        return await receiver(target, delivery, Permits(1))(Message(b"x"), 0)

    with VirtualTime() as time:
        return time.run(main())


def acknowledgment_of(message: Message[object]) -> Acknowledgment:
    """Return the acknowledgment of a message."""
    found = message.headers[ACKNOWLEDGMENT]
    assert isinstance(found, Acknowledgment)
    return found


def test_message_that_waits_for_its_settlement_holds_no_permit() -> None:
    """Permits limit calls, not unsettled messages."""

    async def engage(message: Message[object]) -> None:
        acknowledgment_of(message).engage()
        waiting.append(acknowledgment_of(message))

    async def main() -> None:
        permits = Permits(1)
        settling = [asyncio.create_task(_settled(receiver(engage, Delivery(), permits))) for _ in range(3)]
        await asyncio.sleep(1)
        assert (len(waiting), permits.free) == (3, 1)
        for acknowledgment in waiting:
            acknowledgment.accept()
        assert await asyncio.gather(*settling) == [ACCEPT] * 3
        assert permits.free == 1

    waiting: list[Acknowledgment] = []
    with VirtualTime() as time:
        time.run(main())


async def _settled(receiver: MessageReceiver) -> Settlement:
    return await receiver(Message(b"x"), 0)


def test_manual_settlement_overrides_a_call_timeout() -> None:
    """A listener that rejects its message and then hangs has rejected it."""

    async def reject_and_hang(message: Message[object]) -> None:
        acknowledgment = acknowledgment_of(message)
        acknowledgment.engage()
        acknowledgment.reject("no such customer")
        await asyncio.Event().wait()

    settlement = receive(reject_and_hang, Delivery(consume_timeout=timedelta(seconds=60)))
    assert settlement == Reject("no such customer")


async def reject_by_hand(message: Message[object]) -> None:
    acknowledgment_of(message).engage()
    acknowledgment_of(message).reject()


async def requeue_by_hand(message: Message[object]) -> None:
    acknowledgment_of(message).engage()
    acknowledgment_of(message).requeue()


async def raise_reject(message: Message[object]) -> None:
    raise Reject("no such customer")


async def raise_requeue(message: Message[object]) -> None:
    raise Requeue


@pytest.mark.parametrize("target", [reject_by_hand, requeue_by_hand, raise_reject, raise_requeue])
def test_broadcast_message_is_always_accepted(target: Target) -> None:
    """It can neither be redelivered nor become a dead letter."""
    assert receive(target, Delivery(broadcast=True)) is ACCEPT
