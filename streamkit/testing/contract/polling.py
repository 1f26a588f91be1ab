"""Cases: messages that the application asks for."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from streamkit.application import StreamApplication
from streamkit.binder.acknowledgment import Acknowledgment
from streamkit.binder.capabilities import Capability
from streamkit.errors import Reject, Requeue
from streamkit.listeners.pollable_source import PollableMessageSource, no_auto_ack
from streamkit.messaging.headers import DELIVERY_ATTEMPT
from streamkit.messaging.message import ErrorMessage, Message
from streamkit.testing.contract.scenario import PREFIX, Scenario, case, refused


@dataclass
class Parcel:
    """What is polled for."""

    number: int


class PollingCases:
    """Polled consumers."""

    @staticmethod
    def _polling(s: Scenario, topic: str, group: str) -> tuple[StreamApplication, PollableMessageSource]:
        """An application with a polled consumer, not started."""
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
        """Poll until there was a message."""
        longest = s.environment.patience + s.environment.redelivery_delays[0]
        async with asyncio.timeout(longest):
            while True:
                if await source.poll(handler, Parcel):
                    return
                await asyncio.sleep(0.05)

    @case
    async def test_a_message_comes_when_it_is_asked_for(self, s: Scenario) -> None:
        """Once, converted; a poll without a message says so."""
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
    async def test_the_place_of_a_polling_group_is_kept(self, s: Scenario) -> None:
        """What was handled does not come again; what was sent meanwhile does."""
        if s.lacks(Capability.POLLED) or s.lacks(Capability.DURABLE_GROUP):
            return
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
    async def test_stopping_waits_for_messages_that_were_polled(self, s: Scenario) -> None:
        """A handler under way ends before the application is stopped, or settles later; both messages are done."""
        if s.lacks(Capability.POLLED) or s.lacks(Capability.DURABLE_GROUP):
            return
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
    async def test_a_failing_handler_is_tried_again_and_then_the_message_is_a_dead_letter(
        self, s: Scenario
    ) -> None:
        """Within the one poll, which returns True; nothing is redelivered."""
        if s.lacks(Capability.POLLED) or s.lacks(Capability.DEAD_LETTER):
            return
        topic, group = await s.topic(), s.name("group")
        app, source = self._polling(s, topic, group)
        attempts = s.recorder("attempts")

        async def fail(message: Message[Parcel]) -> None:
            attempts.add(message.headers[DELIVERY_ATTEMPT])
            raise ValueError("not this one")

        await s.start(app)
        letters = await s.record(self._letters(app, group), s.name("undertaker"), start="earliest")
        await s.send(topic, Parcel(1))
        await self._until_polled(s, source, fail)
        assert attempts.items == [1, 2, 3]
        (letter,) = await letters.wait(1)
        assert letter.headers["FAILURE_MESSAGE"] == "not this one"

    @case
    async def test_what_a_handler_rejected_stays_so_when_its_poll_is_given_up(self, s: Scenario) -> None:
        """A rejection under way is carried out, a stop waits for it, and the group goes on behind the message."""
        if s.lacks(Capability.POLLED) or s.lacks(Capability.DEAD_LETTER) or s.lacks(Capability.DURABLE_GROUP):
            return
        topic, group = await s.topic(partitions=1), s.name("group")
        app, source = self._polling(s, topic, group)

        async def reject_and_give_up(message: Message[Parcel]) -> None:
            polling.cancel()
            raise Reject("not this one")

        await s.start(app)
        letters = await s.record(self._letters(app, group), s.name("undertaker"), start="earliest")
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
    async def test_a_polled_message_may_be_given_back(self, s: Scenario) -> None:
        """Requeue makes no attempt in process; a later poll has the message again."""
        if s.lacks(Capability.POLLED) or s.lacks(Capability.REDELIVERY):
            return
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
    async def test_a_polled_message_may_be_settled_later(self, s: Scenario) -> None:
        """With no_auto_ack the poll returns, and the acknowledgment decides."""
        if s.lacks(Capability.POLLED) or s.lacks(Capability.DEAD_LETTER):
            return
        topic, group = await s.topic(), s.name("group")
        app, source = self._polling(s, topic, group)
        held = s.recorder("acknowledgments")

        async def hold(message: Message[Parcel]) -> None:
            held.add(no_auto_ack(message))

        await s.start(app)
        letters = await s.record(self._letters(app, group), s.name("undertaker"), start="earliest")
        await s.send(topic, Parcel(1))
        await self._until_polled(s, source, hold)
        await s.nothing_more()
        assert not letters.items
        assert held.items[0].reject("never mind")
        (letter,) = await letters.wait(1)
        assert letter.headers["FAILURE_MESSAGE"] == "never mind"

    @case
    async def test_an_error_channel_settles_a_polled_message(self, s: Scenario) -> None:
        """A subscriber there handles it: it is no dead letter."""
        if s.lacks(Capability.POLLED) or s.lacks(Capability.DEAD_LETTER):
            return
        topic, group = await s.topic(), s.name("group")
        app, source = self._polling(s, topic, group)
        errors = s.recorder("errors")

        @app.error_listener(f"{topic}.{group}.errors")
        async def handle(error: ErrorMessage) -> None:
            errors.add(str(error.payload.__cause__))

        async def fail(message: Message[Parcel]) -> None:
            raise ValueError("x")

        await s.start(app)
        letters = await s.record(self._letters(app, group), s.name("undertaker"), start="earliest")
        await s.send(topic, Parcel(1))
        await self._until_polled(s, source, fail)
        await s.nothing_more()
        assert errors.items == ["x"]
        assert not letters.items

    @staticmethod
    def _letters(app: StreamApplication, group: str) -> str:
        binding = app.binding("input-in-0")
        found = binding.binder.binder.dead_letter_destination(binding.destinations[0], group)
        assert found is not None, "a binder with dead letters says where they are"
        return found
