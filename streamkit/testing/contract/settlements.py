"""Cases: the settlements of listeners, acknowledgments and error channels."""

import asyncio
import threading
from dataclasses import dataclass
from datetime import timedelta

from streamkit.binder.acknowledgment import Acknowledgment
from streamkit.binder.capabilities import Capability
from streamkit.binder.dead_letter import (
    FAILURE_MESSAGE,
    FAILURE_TYPE,
    ORIGIN_DESTINATION,
    ORIGIN_GROUP,
    ORIGIN_MESSAGE_ID,
    ORIGIN_OFFSET,
    ORIGIN_PARTITION,
)
from streamkit.errors import MessageConversionError, RetriesExhausted
from streamkit.messaging.message import ErrorMessage, Message
from streamkit.settlement import Reject, Requeue
from streamkit.testing.contract.scenario import Scenario, case, needs


@dataclass
class Order:
    """A payload."""

    number: int


class SettlementCases:
    """Settlements and error channels."""

    @case
    @needs(Capability.REDELIVERY)
    async def test_requeue_ends_the_attempts_and_redelivers(self, s: Scenario) -> None:
        """After `Requeue` there is no attempt in process; the message is redelivered after the usual delay."""
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        async def requeue_once(payload: str) -> None:
            calls.add(payload)
            if len(calls.items) == 1:
                raise Requeue

        await s.consume(topic, group, requeue_once)
        await s.send(topic, "x")
        delay = s.environment.redelivery_delays[0]
        await calls.wait(2, within=s.environment.patience + delay)
        assert delay * 0.95 <= calls.pauses[0] <= delay + s.environment.slack

    @case
    @needs(Capability.REDELIVERY)
    async def test_requeue_may_set_the_delay(self, s: Scenario) -> None:
        """`Requeue(after=...)` redelivers the message after that time."""
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")
        after = s.environment.delay_levels[0]

        async def requeue_once(payload: str) -> None:
            calls.add(payload)
            if len(calls.items) == 1:
                raise Requeue(after=timedelta(seconds=after))

        await s.consume(topic, group, requeue_once)
        await s.send(topic, "x")
        await calls.settled(2)
        assert after * 0.95 <= calls.pauses[0] <= after + s.environment.slack

    @case
    @needs(Capability.DEAD_LETTER)
    async def test_reject_makes_a_dead_letter_with_a_reason(self, s: Scenario) -> None:
        """`Reject` ends the attempts after one call; the dead letter's headers have its reason and its origin."""
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        async def reject(payload: str) -> None:
            calls.add(payload)
            raise Reject("not for us")

        app = await s.consume(topic, group, reject)
        await s.send(topic, "x")
        await calls.settled(1)
        (letter,) = await (await s.dead_letters(app, group)).wait(1)
        assert letter.headers[FAILURE_TYPE] == "streamkit.settlement.Reject"
        assert letter.headers[FAILURE_MESSAGE] == "not for us"
        assert letter.headers[ORIGIN_DESTINATION] == topic
        assert letter.headers[ORIGIN_GROUP] == group
        assert letter.headers[ORIGIN_OFFSET] == 0
        assert isinstance(letter.headers[ORIGIN_PARTITION], int)
        assert letter.headers[ORIGIN_MESSAGE_ID]

    @case
    async def test_the_first_call_of_an_acknowledgment_decides(self, s: Scenario) -> None:
        """`accept()` settles the message and returns True; later calls return False and change nothing."""
        topic, group = await s.topic(), s.name("group")
        decided = s.recorder("decisions")

        async def accept(payload: str, acknowledgment: Acknowledgment) -> None:
            decided.add((acknowledgment.accept(), acknowledgment.reject(), acknowledgment.accept()))

        await s.consume(topic, group, accept)
        await s.send(topic, "x")
        assert await decided.settled(1) == [(True, False, False)]

    @case
    @needs(Capability.DEAD_LETTER)
    async def test_a_message_may_be_settled_later_on_another_thread(self, s: Scenario) -> None:
        """A `def` listener keeps the acknowledgment, and another thread rejects the message with it."""
        topic, group = await s.topic(), s.name("group")
        kept = s.recorder("acknowledgments")

        def keep(payload: str, acknowledgment: Acknowledgment) -> None:
            kept.add(acknowledgment)

        app = await s.consume(topic, group, keep)
        await s.send(topic, "x")
        (acknowledgment,) = await kept.wait(1)
        rejecting = threading.Thread(target=acknowledgment.reject, args=("too late",))
        rejecting.start()
        rejecting.join()
        (letter,) = await (await s.dead_letters(app, group)).wait(1)
        assert letter.headers[FAILURE_MESSAGE] == "too late"

    @case
    async def test_an_unsettled_message_occupies_no_handler(self, s: Scenario) -> None:
        """While a message waits for its settlement, the only handler receives the next messages."""
        topic, group = await s.topic(), s.name("group")
        kept = s.recorder("acknowledgments")

        async def keep(payload: str, acknowledgment: Acknowledgment) -> None:
            kept.add(acknowledgment)

        await s.consume(topic, group, keep)
        for number in range(3):
            await s.send(topic, str(number))
        for acknowledgment in await kept.settled(3):
            acknowledgment.accept()
        await s.nothing_more()

    @case
    @needs(Capability.REDELIVERY)
    async def test_an_acknowledgment_may_requeue_the_message(self, s: Scenario) -> None:
        """`acknowledgment.requeue(after)` redelivers the message after that time."""
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")
        after = s.environment.delay_levels[0]

        async def retry_once(payload: str, acknowledgment: Acknowledgment) -> None:
            calls.add(payload)
            if len(calls.items) == 1:
                acknowledgment.requeue(timedelta(seconds=after))
            else:
                acknowledgment.accept()

        await s.consume(topic, group, retry_once)
        await s.send(topic, "x")
        await calls.settled(2)
        assert after * 0.95 <= calls.pauses[0] <= after + s.environment.slack

    @case
    async def test_a_message_not_settled_within_consume_timeout_is_redelivered(self, s: Scenario) -> None:
        """After `consume_timeout` an unsettled message is redelivered; so is one whose listener has not returned."""
        s.only_on_virtual_time("the shortest consume-timeout is a minute")
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        async def hang_or_forget(payload: str, acknowledgment: Acknowledgment) -> None:
            calls.add(payload)
            if calls.items.count(payload) > 1:
                acknowledgment.accept()
            elif payload == "hang":
                await asyncio.Event().wait()

        timeout = s.environment.consume_timeout
        await s.consume(topic, group, hang_or_forget, concurrency=2, consume_timeout=timeout)
        await s.send(topic, "hang")
        await s.send(topic, "forget")
        await calls.wait(2)
        await calls.wait(4, within=timeout + s.environment.redelivery_delays[0] + s.environment.slack)
        assert sorted(calls.items) == ["forget", "forget", "hang", "hang"]

    @case
    @needs(Capability.DEAD_LETTER)
    async def test_a_payload_that_cannot_be_converted_makes_a_dead_letter_at_once(self, s: Scenario) -> None:
        """The listener is not called and nothing is retried, because the conversion would fail again."""
        topic, group = await s.topic(), s.name("group")
        handled = s.recorder("orders")
        error_channel = s.recorder("errors")

        async def handle(order: Order) -> None:
            handled.add(order.number)

        app = s.consumer(topic, group, handle)
        app.error_listener()(error_channel.listen)
        await s.start(app)
        await s.send(topic, '{"number": "many"}')
        await s.send(topic, '{"number": 1}')
        assert await handled.settled(1) == [1]
        (error,) = error_channel.items
        assert isinstance(error.payload, MessageConversionError)
        assert error.payload.path == "$.number"
        (letter,) = await (await s.dead_letters(app, group)).wait(1)
        assert letter.payload == b'{"number": "many"}'
        assert str(letter.headers[FAILURE_TYPE]).endswith("MessageConversionError")

    @case
    async def test_a_subscriber_of_the_error_channel_accepts_the_message(self, s: Scenario) -> None:
        """If a subscriber of `<destination>.<group>.errors` returns, the message is accepted and not redelivered."""
        topic, group = await s.topic(), s.name("group")
        calls, errors = s.recorder("calls"), s.recorder("errors")

        async def handle(error: ErrorMessage) -> None:
            errors.add(error)

        app = s.consumer(topic, group, calls.fail, redelivery_level=1)
        app.error_listener(f"{topic}.{group}.errors")(handle)
        await s.start(app)
        await s.send(topic, "x", {"colour": "red"})
        (error,) = await errors.settled(1)
        await asyncio.sleep(s.environment.delay_levels[0])
        assert await calls.settled(3) == ["x", "x", "x"]
        assert isinstance(error.payload, RetriesExhausted)
        assert error.payload.attempts == 3
        assert str(error.payload.__cause__) == "cannot handle x"
        original: Message[object] | None = error.original_message
        assert original is not None
        assert original.headers["colour"] == "red"

    @case
    async def test_a_subscriber_of_the_error_channel_that_fails_does_not_settle_the_message(self, s: Scenario) -> None:
        """If the subscriber raises, the message is redelivered; if it raises `Reject`, the message is a dead letter."""
        if s.lacks(Capability.REDELIVERY, Capability.DEAD_LETTER):
            return
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        async def fail_then_reject(error: ErrorMessage) -> None:
            if len(calls.items) == 1:
                raise ValueError("me too")
            raise Reject("enough")

        app = s.consumer(topic, group, calls.fail, redelivery_level=1, settings={"consumer.max-attempts": 1})
        app.error_listener(f"{topic}.{group}.errors")(fail_then_reject)
        await s.start(app)
        await s.send(topic, "x")
        await calls.settled(2)
        (letter,) = await (await s.dead_letters(app, group)).wait(1)
        assert letter.headers[FAILURE_MESSAGE] == "enough"

    @case
    async def test_a_subscriber_of_the_global_error_channel_does_not_settle_the_message(self, s: Scenario) -> None:
        """A subscriber of `errorChannel` receives the error; the message is redelivered as without it."""
        if s.lacks(Capability.REDELIVERY):
            return
        topic, group = await s.topic(), s.name("group")
        calls, errors = s.recorder("calls"), s.recorder("errors")

        async def fail_once(payload: str) -> None:
            calls.add(payload)
            if len(calls.items) == 1:
                raise ValueError(payload)

        app = s.consumer(topic, group, fail_once, redelivery_level=1, settings={"consumer.max-attempts": 1})
        app.error_listener()(errors.listen)
        await s.start(app)
        await s.send(topic, "x")
        await calls.settled(2)
        assert len(errors.items) == 1
