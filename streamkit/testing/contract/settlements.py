"""Cases: what a listener may decide about its message, and what error channels may."""

import asyncio
import threading
from dataclasses import dataclass
from datetime import timedelta

from streamkit.binder.acknowledgment import Acknowledgment
from streamkit.binder.capabilities import Capability
from streamkit.binder.dead_letter import FAILURE_MESSAGE, FAILURE_TYPE
from streamkit.errors import MessageConversionError, Reject, Requeue, RetriesExhausted
from streamkit.messaging.message import ErrorMessage, Message
from streamkit.testing.contract.scenario import Scenario, case


@dataclass
class Order:
    """What a listener expects."""

    number: int


class SettlementCases:
    """Settlements and error channels."""

    @case
    async def test_requeue_gives_a_message_back_without_further_attempts(self, s: Scenario) -> None:
        """Raising Requeue makes no attempt in process; the message is redelivered."""
        if s.lacks(Capability.REDELIVERY):
            return
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
    async def test_requeue_may_say_when(self, s: Scenario) -> None:
        """Requeue(after) waits at least that long."""
        if s.lacks(Capability.REDELIVERY):
            return
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
    async def test_reject_is_a_dead_letter_with_its_reason(self, s: Scenario) -> None:
        """Raising Reject makes one call; the dead letter tells the reason."""
        if s.lacks(Capability.DEAD_LETTER):
            return
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        async def reject(payload: str) -> None:
            calls.add(payload)
            raise Reject("not for us")

        app = await s.consume(topic, group, reject)
        await s.send(topic, "x")
        await calls.settled(1)
        (letter,) = await (await s.dead_letters(app, group)).wait(1)
        assert letter.headers[FAILURE_MESSAGE] == "not for us"

    @case
    async def test_a_message_accepted_by_hand_is_done(self, s: Scenario) -> None:
        """Accepting settles; deciding again changes nothing."""
        topic, group = await s.topic(), s.name("group")
        decided = s.recorder("decisions")

        async def accept(payload: str, acknowledgment: Acknowledgment) -> None:
            decided.add((acknowledgment.accept(), acknowledgment.reject(), acknowledgment.accept()))

        await s.consume(topic, group, accept)
        await s.send(topic, "x")
        assert await decided.settled(1) == [(True, False, False)]

    @case
    async def test_a_listener_may_settle_later_from_another_thread(self, s: Scenario) -> None:
        """A `def` listener keeps the acknowledgment; another thread rejects the message."""
        if s.lacks(Capability.DEAD_LETTER):
            return
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
    async def test_an_unsettled_message_holds_no_handler(self, s: Scenario) -> None:
        """While one message waits for its settlement, the only handler takes the next one."""
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
    async def test_retrying_by_hand_redelivers(self, s: Scenario) -> None:
        """acknowledgment.retry(after) redelivers after that pause."""
        if s.lacks(Capability.REDELIVERY):
            return
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")
        after = s.environment.delay_levels[0]

        async def retry_once(payload: str, acknowledgment: Acknowledgment) -> None:
            calls.add(payload)
            if len(calls.items) == 1:
                acknowledgment.retry(timedelta(seconds=after))
            else:
                acknowledgment.accept()

        await s.consume(topic, group, retry_once)
        await s.send(topic, "x")
        await calls.settled(2)
        assert after * 0.95 <= calls.pauses[0] <= after + s.environment.slack

    @case
    async def test_a_message_not_settled_in_time_is_delivered_again(self, s: Scenario) -> None:
        """Over consume-timeout an unsettled message is retried; so is one whose listener hangs."""
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
    async def test_a_payload_that_cannot_be_read_is_a_dead_letter_at_once(self, s: Scenario) -> None:
        """Conversion fails the same way each time: the listener is not called, nothing is retried."""
        if s.lacks(Capability.DEAD_LETTER):
            return
        topic, group = await s.topic(), s.name("group")
        handled = s.recorder("orders")
        told = s.recorder("errors")

        async def handle(order: Order) -> None:
            handled.add(order.number)

        app = s.consumer(topic, group, handle)
        app.error_listener()(told.listen)
        await s.start(app)
        await s.send(topic, '{"number": "many"}')
        await s.send(topic, '{"number": 1}')
        assert await handled.settled(1) == [1]
        (error,) = told.items
        assert isinstance(error.payload, MessageConversionError)
        assert error.payload.path == "$.number"
        (letter,) = await (await s.dead_letters(app, group)).wait(1)
        assert letter.payload == b'{"number": "many"}'
        assert str(letter.headers[FAILURE_TYPE]).endswith("MessageConversionError")

    @case
    async def test_a_subscriber_of_the_error_channel_settles_the_message(self, s: Scenario) -> None:
        """Whoever subscribes to `<destination>.<group>.errors` handles what failed: nothing is redelivered."""
        topic, group = await s.topic(), s.name("group")
        calls, errors = s.recorder("calls"), s.recorder("errors")

        async def fail(payload: str) -> None:
            calls.add(payload)
            raise ValueError("why")

        async def handle(error: ErrorMessage) -> None:
            errors.add(error)

        app = s.consumer(topic, group, fail, redelivery_level=1)
        app.error_listener(f"{topic}.{group}.errors")(handle)
        await s.start(app)
        await s.send(topic, "x", {"colour": "red"})
        (error,) = await errors.settled(1)
        await asyncio.sleep(s.environment.delay_levels[0])
        assert await calls.settled(3) == ["x", "x", "x"]
        assert isinstance(error.payload, RetriesExhausted)
        assert error.payload.attempts == 3
        assert str(error.payload.__cause__) == "why"
        original: Message[object] | None = error.original_message
        assert original is not None
        assert original.headers["colour"] == "red"

    @case
    async def test_a_failing_subscriber_of_the_error_channel_settles_nothing(self, s: Scenario) -> None:
        """When the error channel's subscriber raises too, redelivery begins; Reject chooses the dead letter."""
        if s.lacks(Capability.REDELIVERY, Capability.DEAD_LETTER):
            return
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        async def fail(payload: str) -> None:
            calls.add(payload)
            raise ValueError(payload)

        async def fail_then_reject(error: ErrorMessage) -> None:
            if len(calls.items) == 1:
                raise ValueError("me too")
            raise Reject("enough")

        app = s.consumer(topic, group, fail, redelivery_level=1, settings={"consumer.max-attempts": 1})
        app.error_listener(f"{topic}.{group}.errors")(fail_then_reject)
        await s.start(app)
        await s.send(topic, "x")
        await calls.settled(2)
        (letter,) = await (await s.dead_letters(app, group)).wait(1)
        assert letter.headers[FAILURE_MESSAGE] == "enough"

    @case
    async def test_the_global_error_channel_hears_and_settles_nothing(self, s: Scenario) -> None:
        """A subscriber of `errorChannel` is told; the message is redelivered all the same."""
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
