"""Cases: polled consumers."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from streamkit.application import StreamApplication
from streamkit.binder.acknowledgment import Acknowledgment
from streamkit.binder.capabilities import Capability
from streamkit.listeners.pollable_source import PollableMessageSource, no_auto_ack
from streamkit.messaging.headers import DELIVERY_ATTEMPT
from streamkit.messaging.message import ErrorMessage, Message
from streamkit.settlement import Reject, Requeue
from streamkit.testing.contract.scenario import PREFIX, Scenario, case, needs, refused


@dataclass
class Parcel:
    """A payload."""

    number: int


class PollingCases:
    """Polled consumers."""

    @staticmethod
    def _polling(s: Scenario, topic: str, group: str) -> tuple[StreamApplication, PollableMessageSource]:
        """Return an application with a polled consumer, not started, and its source."""
        binding = f"{PREFIX}.bindings.input-in-0"
        app = s.app(
            {
                f"{PREFIX}.pollable-source": "input",
                f"{binding}.destination": topic,
                f"{binding}.group": group,
                f"{binding}.consumer.back-off-initial-interval": f"{s.environment.back_off * 1000:g}ms",
                **s.environment.consumer_properties("input-in-0", {"start": "earliest"}),
            }
        )
        return app, app.pollable_source("input")

    @staticmethod
    async def _until_polled(
        s: Scenario, source: PollableMessageSource, handler: Callable[[Message[Any]], object]
    ) -> None:
        """Poll until a poll has handled a message."""
        longest = s.environment.patience + s.environment.redelivery_delays[0]
        async with asyncio.timeout(longest):
            while True:
                if await source.poll(handler, Parcel):
                    return
                await asyncio.sleep(0.05)

    @case
    async def test_a_poll_handles_one_message(self, s: Scenario) -> None:
        """Each message is handled once, in a poll, with a converted payload; an empty poll returns False."""
        topic, group = await s.topic(), s.name("group")
        app, source = self._polling(s, topic, group)
        if s.lacks(Capability.POLLED):
            assert "polled" in str(await refused(s.start(app)))
            return
        seen = s.recorder("parcels")

        async def note(message: Message[Parcel]) -> None:
            seen.add(message.payload)

        await s.start(app)
        for number in range(3):
            await s.send(topic, Parcel(number))
        await s.nothing_more()
        assert not seen.items
        for _ in range(3):
            await self._until_polled(s, source, note)
        assert sorted(parcel.number for parcel in seen.items) == [0, 1, 2]
        if s.environment.is_virtual:  # a poll may wait some seconds
            assert not await source.poll(note, Parcel)

    @case
    @needs(Capability.POLLED)
    async def test_the_lag_of_a_polled_binding_has_messages_until_they_are_settled(self, s: Scenario) -> None:
        """A message whose acknowledgment is open counts, as one that nobody has polled."""
        topic, group = await s.topic(), s.name("group")
        app, source = self._polling(s, topic, group)
        await s.start(app)
        if "input-in-0" not in await app.lags():
            return
        open_: list[Acknowledgment] = []

        async def settle_later(message: Message[Parcel]) -> None:
            open_.append(no_auto_ack(message))

        await s.send(topic, Parcel(0))
        await s.send(topic, Parcel(1))
        await s.until_lag(app, "input-in-0", 2)
        await self._until_polled(s, source, settle_later)
        await s.until_lag(app, "input-in-0", 2)
        open_[0].accept()
        await s.until_lag(app, "input-in-0", 1)

    @case
    @needs(Capability.POLLED, Capability.DURABLE_GROUP)
    async def test_the_position_of_a_polling_group_is_kept(self, s: Scenario) -> None:
        """After a restart, polls return messages that were not handled yet, and no others."""
        topic, group = await s.topic(), s.name("group")
        seen = s.recorder("numbers")

        async def note(message: Message[Parcel]) -> None:
            seen.add(message.payload.number)

        for number in range(3):
            app, source = self._polling(s, topic, group)
            await app.start(watch_loop=False)
            await s.send(topic, Parcel(number))
            await self._until_polled(s, source, note)
            await app.stop(5)
        assert seen.items == [0, 1, 2]

    @case
    @needs(Capability.POLLED, Capability.DURABLE_GROUP)
    async def test_a_stop_waits_for_polled_messages(self, s: Scenario) -> None:
        """The stop waits for handlers and for acknowledgments that are still open; no message is delivered again."""
        topic, group = await s.topic(), s.name("group")
        begun, ended = s.recorder("begun"), s.recorder("ended")
        open_: list[Acknowledgment] = []

        async def settle_later(message: Message[Parcel]) -> None:
            open_.append(no_auto_ack(message))

        async def take_time(message: Message[Parcel]) -> None:
            begun.add(message.payload.number)
            await asyncio.sleep(s.environment.quiet)
            open_[0].accept()
            await asyncio.sleep(s.environment.quiet)
            ended.add(message.payload.number)

        app, source = self._polling(s, topic, group)
        await s.start(app)
        for number in range(2):
            await s.send(topic, Parcel(number))
        await self._until_polled(s, source, settle_later)
        polling = asyncio.create_task(self._until_polled(s, source, take_time))
        await begun.wait(1)
        await app.stop()
        assert ended.items == begun.items
        await polling
        again = await s.record(topic, group)
        await again.settled(0)

    @case
    @needs(Capability.POLLED, Capability.DEAD_LETTER)
    async def test_a_polled_message_is_a_dead_letter_after_its_attempts(self, s: Scenario) -> None:
        """All attempts are made within one poll, which returns True; the message is not redelivered."""
        topic, group = await s.topic(), s.name("group")
        app, source = self._polling(s, topic, group)
        attempts = s.recorder("attempts")

        async def fail(message: Message[Parcel]) -> None:
            attempts.add(message.headers[DELIVERY_ATTEMPT])
            raise ValueError("not this one")

        await s.start(app)
        letters = await s.dead_letters(app, group, "input-in-0")
        await s.send(topic, Parcel(1))
        await self._until_polled(s, source, fail)
        assert attempts.items == [1, 2, 3]
        (letter,) = await letters.wait(1)
        assert letter.headers["FAILURE_MESSAGE"] == "not this one"

    @case
    async def test_a_rejected_message_is_a_dead_letter_although_its_poll_was_cancelled(self, s: Scenario) -> None:
        """The rejection is carried out, a stop waits for it, and the group continues behind the message."""
        if s.lacks(Capability.POLLED) or s.lacks(Capability.DEAD_LETTER) or s.lacks(Capability.DURABLE_GROUP):
            return
        topic, group = await s.topic(partitions=1), s.name("group")
        app, source = self._polling(s, topic, group)

        async def reject_and_give_up(message: Message[Parcel]) -> None:
            polling.cancel()
            raise Reject("not this one")

        await s.start(app)
        letters = await s.dead_letters(app, group, "input-in-0")
        for number in range(2):
            await s.send(topic, Parcel(number))
        polling = asyncio.create_task(self._until_polled(s, source, reject_and_give_up))
        await asyncio.wait((polling,))
        assert polling.cancelled()
        await app.stop()
        (letter,) = await letters.wait(1)
        assert letter.headers["FAILURE_MESSAGE"] == "not this one"
        again = await s.record(topic, group)
        (message,) = await again.settled(1)
        assert message.payload == b'{"number":1}'

    @case
    @needs(Capability.POLLED, Capability.REDELIVERY)
    async def test_a_polled_message_may_be_requeued(self, s: Scenario) -> None:
        """`Requeue` ends the attempts; a later poll receives the message again."""
        topic, group = await s.topic(), s.name("group")
        app, source = self._polling(s, topic, group)
        attempts = s.recorder("attempts")
        after = timedelta(seconds=s.environment.delay_levels[0])

        async def requeue_once(message: Message[Parcel]) -> None:
            attempts.add(message.headers[DELIVERY_ATTEMPT])
            if len(attempts.items) == 1:
                raise Requeue(after=after)

        await s.start(app)
        await s.send(topic, Parcel(1))
        await self._until_polled(s, source, requeue_once)
        assert attempts.items == [1]
        await self._until_polled(s, source, requeue_once)
        assert attempts.items == [1, 4]

    @case
    @needs(Capability.POLLED, Capability.DEAD_LETTER)
    async def test_a_polled_message_may_be_settled_later(self, s: Scenario) -> None:
        """After `no_auto_ack` the poll returns, and the acknowledgment settles the message."""
        topic, group = await s.topic(), s.name("group")
        app, source = self._polling(s, topic, group)
        held = s.recorder("acknowledgments")

        async def hold(message: Message[Parcel]) -> None:
            held.add(no_auto_ack(message))

        await s.start(app)
        letters = await s.dead_letters(app, group, "input-in-0")
        await s.send(topic, Parcel(1))
        await self._until_polled(s, source, hold)
        await s.nothing_more()
        assert not letters.items
        assert held.items[0].reject("never mind")
        (letter,) = await letters.wait(1)
        assert letter.headers["FAILURE_MESSAGE"] == "never mind"

    @case
    @needs(Capability.POLLED, Capability.DEAD_LETTER)
    async def test_a_subscriber_of_the_error_channel_accepts_a_polled_message(self, s: Scenario) -> None:
        """If a subscriber of `<destination>.<group>.errors` returns, the message is not a dead letter."""
        topic, group = await s.topic(), s.name("group")
        app, source = self._polling(s, topic, group)
        errors = s.recorder("errors")

        @app.error_listener(f"{topic}.{group}.errors")
        async def handle(error: ErrorMessage) -> None:
            errors.add(str(error.payload.__cause__))

        async def fail(message: Message[Parcel]) -> None:
            raise ValueError("x")

        await s.start(app)
        letters = await s.dead_letters(app, group, "input-in-0")
        await s.send(topic, Parcel(1))
        await self._until_polled(s, source, fail)
        await s.nothing_more()
        assert errors.items == ["x"]
        assert not letters.items
