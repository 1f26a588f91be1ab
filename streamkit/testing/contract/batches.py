"""Cases: listeners that receive messages in batches."""

from dataclasses import dataclass
from datetime import timedelta

from streamkit.binder.acknowledgment import Acknowledgment
from streamkit.binder.capabilities import Capability
from streamkit.messaging.headers import DELIVERY_ATTEMPT
from streamkit.messaging.message import Message
from streamkit.settlement import ACCEPT, Reject, Requeue, Settlement
from streamkit.testing.contract.scenario import Scenario, case, needs, refused

BATCHES = {"consumer.batch-mode": "true"}
MANY = 20


@dataclass
class Numbered:
    """A payload."""

    number: int


class BatchCases:
    """Batch mode."""

    @case
    @needs(Capability.DURABLE_GROUP)
    async def test_a_batch_listener_receives_waiting_messages_in_lists(self, s: Scenario) -> None:
        """Lists have up to `batch_size` messages; each message is in one list."""
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
    @needs(Capability.BATCH, Capability.REDELIVERY, Capability.DEAD_LETTER)
    async def test_a_listener_may_settle_each_message_of_a_batch(self, s: Scenario) -> None:
        """A listener may return a list with one settlement for each message."""
        topic, group = await s.topic(partitions=1), s.name("group")
        seen = s.recorder("numbers and attempts")
        after = timedelta(seconds=s.environment.delay_levels[0])

        def decide(message: Message[Numbered]) -> Settlement:
            attempt = message.headers[DELIVERY_ATTEMPT]
            seen.add((message.payload.number, attempt))
            if message.payload.number == 1:
                return Reject("not this one")
            return Requeue(after=after) if message.payload.number == 2 and attempt == 1 else ACCEPT

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
    async def test_a_failed_batch_is_retried_whole_and_redelivered_message_by_message(self, s: Scenario) -> None:
        """Attempts call the listener with the whole batch; each message is redelivered or rejected by itself."""
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
    @needs(Capability.BATCH, Capability.DEAD_LETTER)
    async def test_a_message_that_cannot_be_converted_is_left_out_of_its_batch(self, s: Scenario) -> None:
        """That message is a dead letter at once; the listener receives the others."""
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
    @needs(Capability.BATCH, Capability.REDELIVERY)
    async def test_an_acknowledgment_settles_a_whole_batch(self, s: Scenario) -> None:
        """The acknowledgment of a batch settles all of its messages, also after the call."""
        topic, group = await s.topic(partitions=1), s.name("group")
        calls = s.recorder("attempts")
        after = timedelta(seconds=s.environment.delay_levels[0])

        async def hold(batch: list[Message[Numbered]], acknowledgment: Acknowledgment) -> None:
            attempt = batch[0].headers[DELIVERY_ATTEMPT]
            calls.add(attempt)
            if attempt == 1:
                acknowledgment.requeue(after)
            else:
                acknowledgment.accept()

        await s.consume(topic, group, hold, settings=BATCHES)
        await s.send(topic, Numbered(0))
        assert await calls.settled(2) == [1, 4]

    @case
    @needs(Capability.BATCH, Capability.ORDER)
    async def test_an_ordered_batch_is_redelivered_in_order(self, s: Scenario) -> None:
        """A message that is requeued comes again before the messages behind it in its partition."""
        topic, group = await s.topic(partitions=1), s.name("group")
        batches = s.recorder("batches")

        async def settle(batch: list[Message[Numbered]]) -> list[Settlement]:
            batches.add([message.payload.number for message in batch])
            return [
                Requeue() if message.payload.number == 2 and message.headers[DELIVERY_ATTEMPT] == 1 else ACCEPT
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
