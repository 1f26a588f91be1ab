"""The receiver of batches: which calls it makes, and what it answers a binder."""

from collections.abc import Awaitable, Callable, Sequence

from streamkit.binder.attempts import RetryPolicy
from streamkit.binder.batch import Batch
from streamkit.binder.batch_receiving import BatchMessageReceiver
from streamkit.binder.delivery import Delivery
from streamkit.binder.permits import Permits
from streamkit.errors import MessageConversionError
from streamkit.messaging.message import ErrorMessage, Message
from streamkit.settlement import ACCEPT, Reject, Settlement
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.binder.places import failure_log


def receive(target: Callable[[Message[object]], Awaitable[None]], redeliveries: Sequence[int]) -> list[Settlement]:
    """Return the settlements of a batch, which has a message for each number of redeliveries."""

    async def on_error(error: ErrorMessage) -> bool:
        return False

    receiver = BatchMessageReceiver(
        "app", "input", target, Delivery(), RetryPolicy(), permits=Permits(1), on_error=on_error, log=failure_log()
    )
    with VirtualTime() as time:
        return time.run(receiver.receive_batch([Message(b"x")] * len(redeliveries), redeliveries))


def test_each_message_of_a_batch_has_its_own_number_of_attempts() -> None:
    """Three for the first delivery, one for each of its own redeliveries."""
    attempts: list[object] = []

    async def note(message: Message[object]) -> None:
        assert isinstance(message.payload, Batch)
        attempts.extend(each.headers["deliveryAttempt"] for each in message.payload)

    assert receive(note, [1, 3]) == [ACCEPT, ACCEPT]
    assert attempts == [4, 6]


def test_a_batch_without_a_readable_message_is_not_tried_again() -> None:
    """Each of its messages is rejected with its own error, whatever the call raises."""
    calls = 0

    async def fail(message: Message[object]) -> None:
        nonlocal calls
        calls += 1
        assert isinstance(message.payload, Batch)
        message.payload.errors |= {place: MessageConversionError(f"not JSON: {place}") for place in range(2)}
        raise RuntimeError("nothing to handle")

    settlements = receive(fail, [0, 0])
    assert calls == 1
    for place, settlement in enumerate(settlements):
        assert isinstance(settlement, Reject)
        assert f"not JSON: {place}" in settlement.reason
