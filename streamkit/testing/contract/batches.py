"""Cases: several messages at once, each with a settlement of its own."""

from dataclasses import dataclass
from datetime import timedelta

from streamkit.binder.acknowledgment import Acknowledgment
from streamkit.binder.capabilities import Capability
from streamkit.binder.settlement import ACCEPT, RejectMessage, Retry, Settlement
from streamkit.messaging.headers import DELIVERY_ATTEMPT
from streamkit.messaging.message import Message
from streamkit.testing.contract.scenario import Scenario, case, refused

BATCHES = {"consumer.batch-mode": "true"}
MANY = 20


@dataclass
class Numbered:
    """What listeners expect."""

    number: int


class BatchCases:
    """Batch mode."""

    @case
    async def test_a_listener_gets_several_messages_at_once(self, s: Scenario) -> None:
        """What waits is handed over in lists, up to the size that is set; each message comes once."""
        if s.lacks(Capability.DURABLE_GROUP):
            return
        topic, group = await s.topic(partitions=1), s.name("group")
        sizes = s.recorder("sizes")
        numbers = s.recorder("numbers")

        async def note(batch: list[Numbered]) -> None:
            sizes.add(len(batch))
            for each in batch:
                numbers.add(each.number)

        app = s.consumer(topic, group, note, settings=BATCHES, batch_size=8)
        if s.lacks(Capability.BATCH):
            assert "batch" in str(await refused(s.start(app)))
            return
        await s.start(app)
        await app.binding("input").stop(5)
        for number in range(MANY):
            await s.send(topic, Numbered(number), {"scst_partition": 0})
        await app.binding("input").start()
        await numbers.settled(MANY)
        assert sorted(numbers.items) == list(range(MANY))
        assert max(sizes.items) == 8

    @case
    async def test_each_message_is_settled_on_its_own(self, s: Scenario) -> None:
        """A listener may return a settlement for each: accepted, rejected, given back."""
        if s.lacks(Capability.BATCH) or s.lacks(Capability.REDELIVERY, Capability.DEAD_LETTER):
            return
        topic, group = await s.topic(partitions=1), s.name("group")
        seen = s.recorder("numbers and attempts")
        after = timedelta(seconds=s.environment.delay_levels[0])

        def decide(message: Message[Numbered]) -> Settlement:
            attempt = message.headers[DELIVERY_ATTEMPT]
            seen.add((message.payload.number, attempt))
            if message.payload.number == 1:
                return RejectMessage("not this one")
            return Retry(after) if message.payload.number == 2 and attempt == 1 else ACCEPT

        async def settle(batch: list[Message[Numbered]]) -> list[Settlement]:
            return [decide(message) for message in batch]

        app = await s.consume(topic, group, settle, settings=BATCHES)
        letters = await s.dead_letters(app, group)
        for number in range(4):
            await s.send(topic, Numbered(number))
        await seen.settled(5)
        assert sorted(seen.items) == [(0, 1), (1, 1), (2, 1), (2, 4), (3, 1)]
        assert [letter.payload for letter in await letters.wait(1)] == [b'{"number":1}']

    @case
    async def test_a_batch_that_fails_is_tried_again_and_then_message_by_message(self, s: Scenario) -> None:
        """The attempts in process are the batch's; redeliveries and dead letters are each message's."""
        if s.lacks(Capability.BATCH) or s.lacks(Capability.REDELIVERY, Capability.DEAD_LETTER):
            return
        topic, group = await s.topic(partitions=1), s.name("group")
        calls = s.recorder("batches")

        async def fail(batch: list[Numbered]) -> None:
            calls.add(sorted(each.number for each in batch))
            if any(each.number == 1 for each in batch):
                raise ValueError("1 is among them")

        app = await s.consume(topic, group, fail, settings=BATCHES, max_reconsume_times=1)
        letters = await s.dead_letters(app, group)
        await s.send(topic, Numbered(1))
        (letter,) = await letters.wait(1, within=s.environment.patience + s.environment.redelivery_delays[0])
        assert letter.payload == b'{"number":1}'
        assert letter.headers["FAILURE_MESSAGE"] == "1 is among them"
        assert calls.items == [[1]] * (3 + 1)

    @case
    async def test_what_cannot_be_converted_fails_alone(self, s: Scenario) -> None:
        """It is a dead letter at once; the others are handed over without it."""
        if s.lacks(Capability.BATCH) or s.lacks(Capability.DEAD_LETTER):
            return
        topic, group = await s.topic(partitions=1), s.name("group")
        numbers = s.recorder("numbers")

        async def note(batch: list[Numbered]) -> None:
            for each in batch:
                numbers.add(each.number)

        app = await s.consume(topic, group, note, settings=BATCHES)
        letters = await s.dead_letters(app, group)
        for payload in ('{"number":0}', '{"number":"none"}', '{"number":2}'):
            await s.send(topic, payload)
        await numbers.settled(2)
        assert sorted(numbers.items) == [0, 2]
        assert [letter.payload for letter in await letters.wait(1)] == [b'{"number":"none"}']

    @case
    async def test_a_batch_may_be_settled_by_hand(self, s: Scenario) -> None:
        """One acknowledgment decides about all of its messages, also after the call."""
        if s.lacks(Capability.BATCH) or s.lacks(Capability.REDELIVERY):
            return
        topic, group = await s.topic(partitions=1), s.name("group")
        calls = s.recorder("attempts")
        after = timedelta(seconds=s.environment.delay_levels[0])

        async def hold(batch: list[Message[Numbered]], acknowledgment: Acknowledgment) -> None:
            attempt = batch[0].headers[DELIVERY_ATTEMPT]
            calls.add(attempt)
            if attempt == 1:
                acknowledgment.retry(after)
            else:
                acknowledgment.accept()

        await s.consume(topic, group, hold, settings=BATCHES)
        await s.send(topic, Numbered(0))
        assert await calls.settled(2) == [1, 4]

    @case
    async def test_an_ordered_batch_keeps_its_order(self, s: Scenario) -> None:
        """What is retried comes again, before what stands behind it in the partition."""
        if s.lacks(Capability.BATCH) or s.lacks(Capability.ORDER):
            return
        topic, group = await s.topic(partitions=1), s.name("group")
        batches = s.recorder("batches")

        async def settle(batch: list[Message[Numbered]]) -> list[Settlement]:
            batches.add([message.payload.number for message in batch])
            return [
                Retry() if message.payload.number == 2 and message.headers[DELIVERY_ATTEMPT] == 1 else ACCEPT
                for message in batch
            ]

        app = s.consumer(
            topic,
            group,
            settle,
            settings=BATCHES,
            ordered=True,
            suspend=s.environment.suspend,
            batch_size=3,
            start="earliest",
        )
        for number in range(7):
            await s.send(topic, Numbered(number), {"scst_partition": 0})
        await s.start(app)
        while sum(map(len, batches.items)) < 8:
            await batches.wait(len(batches.items) + 1)
        failed = next(at for at, batch in enumerate(batches.items) if 2 in batch)
        assert batches.items[failed + 1] == [2]
        others = batches.items[: failed + 1] + batches.items[failed + 2 :]
        assert [number for batch in others for number in batch] == list(range(7))
