"""The receiver and its answers to a binder."""

import asyncio
import logging
import re
from collections.abc import Callable
from datetime import timedelta

import pytest

from streamkit.binder.acknowledgment import ACKNOWLEDGMENT, Acknowledgment
from streamkit.binder.attempts import BackOff, RetryPolicy
from streamkit.binder.delivery import Delivery
from streamkit.binder.permits import Permits
from streamkit.binder.receiving import MessageReceiver
from streamkit.errors import MessageConversionError, MessagingError
from streamkit.events import message_failed, message_handled, message_received, message_settled
from streamkit.messaging.message import ErrorMessage, Message
from streamkit.settlement import ACCEPT, Reject, Requeue, Settlement
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.binder.places import failure_log

Listener = Callable[[Message[object]], object]


def receive(
    listener: Listener,
    *,
    redeliveries: int = 0,
    delivery: Delivery | None = None,
    policy: RetryPolicy | None = None,
    handled: bool = False,
    manual: bool = False,
    group: str | None = "kitchen",
) -> tuple[Settlement, list[ErrorMessage], float]:
    """Return the settlement of one message, the reported errors, and the duration in seconds."""
    errors: list[ErrorMessage] = []

    async def target(message: Message[object]) -> None:
        result = listener(message)
        if asyncio.iscoroutine(result):
            await result

    async def on_error(error: ErrorMessage) -> bool:
        errors.append(error)
        return handled

    async def main() -> Settlement:
        receiver = MessageReceiver(
            "app",
            "input",
            target,
            delivery or Delivery(),
            policy or RetryPolicy(),
            permits=Permits(1),
            on_error=on_error,
            log=failure_log(group),
            manual=manual,
        )
        return await receiver(Message(b"x", {"colour": "red"}), redeliveries)

    with VirtualTime() as time:
        settlement = time.run(main())
        return settlement, errors, time.loop.time()


def failing(error: Exception) -> Listener:
    """Return a listener that always raises."""

    def listener(message: Message[object]) -> None:
        raise error

    return listener


def test_success_accepts() -> None:
    """A listener that returns has handled its message."""
    assert receive(lambda message: None) == (ACCEPT, [], 0)


def test_failure_is_reported_once_and_retried() -> None:
    """After three calls in three seconds the error handler is called; unhandled, the settlement is Requeue."""
    cause = ValueError("why")
    settlement, (error,), seconds = receive(failing(cause))
    assert settlement == Requeue("ValueError: why", cause=cause)
    assert seconds == 3
    assert error.payload.__cause__ is cause
    assert error.headers["colour"] == "red"


def test_handled_error_accepts() -> None:
    """The message is done."""
    assert receive(failing(ValueError()), handled=True)[0] is ACCEPT


def test_broadcast_failures_are_reported_and_accepted() -> None:
    """A broadcast message cannot be redelivered."""
    settlement, errors, _ = receive(failing(ValueError()), delivery=Delivery(broadcast=True))
    assert settlement is ACCEPT
    assert len(errors) == 1


class WithoutTextError(MessagingError):
    """An error whose `str` raises."""

    def __str__(self) -> str:
        raise RuntimeError("broken")


@pytest.mark.parametrize("failed_message", [None, Message(b"x")])
def test_exception_without_text_is_handled_like_any_other(failed_message: Message[bytes] | None) -> None:
    """It is reported, and the redelivery limit applies."""
    cause = WithoutTextError("", failed_message)
    limited = Delivery(max_reconsume_times=2)
    again, (error,), _ = receive(failing(cause), redeliveries=1, delivery=limited)
    text = "WithoutTextError: <its text cannot be made: RuntimeError>"
    assert again == Requeue(text, cause=cause)
    assert cause in (error.payload, error.payload.__cause__)
    assert receive(failing(cause), redeliveries=2, delivery=limited)[0] == Reject(
        "given up after 2 redeliveries; WithoutTextError: <its text cannot be made: RuntimeError>",
        cause=cause,
    )


def test_requeue_and_reject_are_no_errors() -> None:
    """Neither attempts nor error handling follow."""
    after = timedelta(seconds=5)
    assert receive(failing(Requeue(after=after))) == (Requeue(after=after), [], 0)
    assert receive(failing(Reject("no"))) == (Reject("no"), [], 0)


def test_redelivery_makes_one_numbered_call() -> None:
    """The second redelivery's call is the fifth."""
    numbers: list[object] = []

    def listener(message: Message[object]) -> None:
        numbers.append(message.headers["deliveryAttempt"])
        raise ValueError

    receive(listener, redeliveries=2)
    assert numbers == [5]


def test_manual_settlement_overrides_a_later_failure() -> None:
    """A listener that accepts and then raises has accepted."""

    def listener(message: Message[object]) -> None:
        acknowledgment = message.headers[ACKNOWLEDGMENT]
        assert isinstance(acknowledgment, Acknowledgment)
        acknowledgment.engage()
        acknowledgment.accept()
        raise ValueError

    assert receive(listener, manual=True)[0] is ACCEPT


def test_call_beyond_its_timeout_is_redelivered() -> None:
    """The listener is cancelled; error handling is not called."""

    async def hang(message: Message[object]) -> None:
        await asyncio.Event().wait()

    settlement, errors, seconds = receive(hang, delivery=Delivery(consume_timeout=timedelta(seconds=60)))
    assert isinstance(settlement, Requeue)
    assert isinstance(settlement.cause, TimeoutError)
    assert (errors, seconds) == ([], 60)


def test_broadcast_call_beyond_its_timeout_is_accepted() -> None:
    """A broadcast message cannot be redelivered."""

    async def hang(message: Message[object]) -> None:
        await asyncio.Event().wait()

    assert receive(hang, delivery=Delivery(broadcast=True))[0] is ACCEPT


def test_timeout_in_a_listener_is_an_ordinary_failure() -> None:
    """`asyncio.timeout` in a listener is distinguished from consume-timeout."""

    async def too_slow(message: Message[object]) -> None:
        async with asyncio.timeout(1):
            await asyncio.Event().wait()

    settlement, errors, _ = receive(too_slow, policy=RetryPolicy(max_attempts=1))
    assert isinstance(settlement, Requeue)
    assert len(errors) == 1


def test_cancelled_error_from_a_listener_is_a_failure() -> None:
    """The call itself was not cancelled."""

    async def wait_for_a_dead_task(message: Message[object]) -> None:
        task = asyncio.create_task(asyncio.sleep(1))
        task.cancel()
        await task

    settlement, (error,), seconds = receive(wait_for_a_dead_task)
    assert isinstance(settlement, Requeue)
    assert isinstance(settlement.cause, MessagingError)
    assert "awaited something that was cancelled" in str(error.payload)
    assert seconds == 3


def test_base_exception_from_a_listener_is_a_failure() -> None:
    """As from `pytest.fail`; only exceptions that end the process are not."""

    def fail(message: Message[object]) -> None:
        pytest.fail("not this one")

    settlement, (error,), seconds = receive(fail)
    assert isinstance(settlement, Requeue)
    assert settlement.cause is not None
    assert isinstance(settlement.cause.__cause__, pytest.fail.Exception)
    assert "the listener raised Failed, which is not a subclass of Exception" in str(error.payload)
    assert seconds == 3


def test_cancelled_error_from_error_handling_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    """The message is settled as without the handler."""
    cause = ValueError("why")

    async def on_error(error: ErrorMessage) -> bool:
        dead = asyncio.get_running_loop().create_future()
        dead.cancel()
        return bool(await dead)

    async def target(message: Message[object]) -> None:
        raise cause

    async def main() -> Settlement:
        receiver = MessageReceiver(
            *("app", "input", target, Delivery(), RetryPolicy(1)),
            permits=Permits(1),
            on_error=on_error,
            log=failure_log(),
        )
        return await receiver(Message(b"x"), 0)

    assert asyncio.run(main()) == Requeue("ValueError: why", cause=cause)
    assert "An error handler of binding 'input' failed" in caplog.text


@pytest.mark.parametrize("error", [None, ValueError("why")])
def test_manual_settlement_after_the_receivers_answer_has_no_effect(error: Exception | None) -> None:
    """After the timeout or the last call, the acknowledgment returns False."""
    kept: list[Acknowledgment] = []

    def listener(message: Message[object]) -> None:
        acknowledgment = message.headers[ACKNOWLEDGMENT]
        assert isinstance(acknowledgment, Acknowledgment)
        acknowledgment.engage()
        kept.append(acknowledgment)
        if error is not None:
            raise error

    delivery = Delivery(consume_timeout=timedelta(seconds=60))
    assert isinstance(receive(listener, manual=True, delivery=delivery)[0], Requeue)
    assert not kept[0].accept()


def test_cancelling_the_receiver_is_no_settlement() -> None:
    """The cancellation propagates, and the permit is released."""

    async def main() -> int:
        permits = Permits(1)
        begun = asyncio.Event()

        async def hang(message: Message[object]) -> None:
            begun.set()
            await asyncio.Event().wait()

        async def on_error(error: ErrorMessage) -> bool:
            return False

        receiver = MessageReceiver(
            "app", "input", hang, Delivery(), RetryPolicy(), permits=permits, on_error=on_error, log=failure_log()
        )
        task = asyncio.create_task(_settled(receiver))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        receiver.close()
        return permits.free

    assert asyncio.run(main()) == 1


async def _settled(receiver: MessageReceiver) -> Settlement:
    return await receiver(Message(b"x"), 0)


def test_each_step_sends_an_event() -> None:
    """received, failed, handled, settled; each with the binding's name."""
    seen: list[str] = []
    connected = []
    for signal in (message_received, message_failed, message_handled, message_settled):

        def note(sender: object, *, _name: str = signal.name, **values: object) -> None:
            assert values["binding"] == "input"
            seen.append(_name)

        connected.append((signal, note))
        signal.connect(note)
    calls: list[int] = []

    def fail_once(message: Message[object]) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError

    try:
        receive(fail_once, policy=RetryPolicy(back_off=BackOff(0.1)))
    finally:
        for signal, note in connected:
            signal.disconnect(note)
    assert seen == ["message_received", "message_failed", "message_handled", "message_settled"]


def named(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, bool]]:
    """Return what was logged: level, text with `ID` for the message's id, and whether there is a traceback."""
    ids = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
    return [(each.levelname, ids.sub("ID", each.getMessage()), bool(each.exc_info)) for each in caplog.records]


PLACE = "message ID of topic 'orders', group 'kitchen'"
GIVEN_UP = f"Binding 'input' gives up {PLACE}"
FATE = "It goes to 'dead orders'"


def test_message_that_the_listener_rejects_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """It says which message, why, and where it goes."""
    receive(failing(Reject("no such customer")))
    text = f"Binding 'input' rejects {PLACE}, after 1 attempt: no such customer. {FATE}"
    assert named(caplog) == [("WARNING", text, False)]


def test_each_failed_attempt_is_one_line_and_the_first_has_the_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Attempts in process, redeliveries, and the message that is given up."""
    listener, delivery = failing(ValueError("negative")), Delivery(max_reconsume_times=1)
    policy = RetryPolicy(max_attempts=2)
    for redeliveries in (0, 1):
        receive(listener, delivery=delivery, policy=policy, redeliveries=redeliveries)
    failed, why = "Binding 'input': message ID failed in attempt", "ValueError: negative"
    assert named(caplog) == [
        ("WARNING", f"{failed} 1 of 2, next in 1 s: {why}", True),
        ("WARNING", f"{failed} 2 and is delivered again, redelivery 1 of 1: {why}", False),
        ("ERROR", f"{GIVEN_UP}, after 3 attempts: given up after 1 redelivery; {why}. {FATE}", False),
    ]
    shown = ("binding", "destination", "group", "attempt", "redeliveries", "next_step", "error", "dead_letter")
    place = ("input", "orders", "kitchen")
    assert [tuple(vars(each).get(name) for name in shown) for each in caplog.records] == [
        (*place, 1, 0, "retry", why, None),
        (*place, 2, 0, "redelivery", why, None),
        (*place, 3, 1, "dead-letter", why, "dead orders"),
    ]


def test_tracebacks_of_attempts_are_for_debugging(caplog: pytest.LogCaptureFixture) -> None:
    """The level DEBUG adds them."""
    with caplog.at_level(logging.DEBUG, "streamkit.binder.failure_log"):
        receive(failing(ValueError("negative")), policy=RetryPolicy(max_attempts=2))
    assert [traceback for _, _, traceback in named(caplog)] == [True, True]


def test_a_message_that_is_given_up_at_its_first_attempt_has_the_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """One line says everything."""
    once = RetryPolicy(max_attempts=1)
    receive(failing(ValueError("why")), delivery=Delivery(max_reconsume_times=0), policy=once)
    assert [(level, traceback) for level, _, traceback in named(caplog)] == [("ERROR", True)]


def test_unreadable_payload_is_one_line_without_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """Its text says where the payload is wrong."""
    receive(failing(MessageConversionError("expected int at $.amount")))
    why = "MessageConversionError: expected int at $.amount"
    assert named(caplog) == [("ERROR", f"{GIVEN_UP}, after 1 attempt: {why}. {FATE}", False)]


def test_lost_message_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """Without dead letters, and under broadcast."""
    once = RetryPolicy(max_attempts=1)
    receive(failing(ValueError("why")), delivery=Delivery(max_reconsume_times=0), policy=once, group=None)
    receive(failing(ValueError("why")), delivery=Delivery(broadcast=True), policy=once)
    assert [(level, text.partition("why. ")[2]) for level, text, _ in named(caplog)] == [
        ("ERROR", "It is lost: the binding has no dead letters"),
        ("ERROR", "It is lost: broadcast messages are not kept"),
    ]


def test_message_that_the_error_handler_accepts_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """It is consumed."""
    receive(failing(ValueError("why")), policy=RetryPolicy(max_attempts=1), handled=True)
    text = "Binding 'input': message ID failed after 1 attempt; the error handler has accepted it: ValueError: why"
    assert named(caplog) == [("WARNING", text, False)]
