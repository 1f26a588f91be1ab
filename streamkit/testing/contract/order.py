"""Cases: ordered consumption."""

import asyncio
from dataclasses import dataclass

from streamkit.binder.capabilities import Capability
from streamkit.testing.contract.scenario import Scenario, case, needs, refused


@dataclass
class Step:
    """A payload: a numbered step of the thing that `key` names."""

    key: str
    number: int


class OrderCases:
    """Ordered consumption."""

    @case
    async def test_messages_of_one_key_are_handled_in_the_order_of_sending(self, s: Scenario) -> None:
        """A partitioned output and an ordered input keep the messages of each key in order."""
        topic, group = await s.topic(), s.name("group")
        handled = s.recorder("steps")

        async def note(step: Step) -> None:
            await asyncio.sleep(0)
            handled.add((step.key, step.number))

        if s.lacks(Capability.ORDER):
            await refused(s.consume(topic, group, note, ordered=True))
            return
        await s.consume(topic, group, note, ordered=True, concurrency=4)
        sender = await s.start(s.producer(topic, {"producer.partition-key-expression": "payload.key"}))
        for number in range(10):
            for key in "abcde":
                await sender.bridge.asend("output", Step(key, number))
        steps = await handled.settled(50)
        for key in "abcde":
            assert [number for found, number in steps if found == key] == list(range(10))

    @case
    async def test_in_ordered_mode_a_failing_message_holds_back_the_messages_behind_it(self, s: Scenario) -> None:
        """The messages behind it are handled after it has succeeded."""
        if s.lacks(Capability.ORDER):
            return
        topic, group = await s.topic(partitions=1), s.name("group")
        calls = s.recorder("calls")

        async def fail_four_times(payload: str) -> None:
            calls.add(payload)
            if payload == "0" and calls.items.count("0") < 5:
                raise ValueError(payload)

        await s.consume(topic, group, fail_four_times, ordered=True, suspend=s.environment.suspend)
        for number in range(3):
            await s.send(topic, str(number), {"scst_partition": 0})
        assert await calls.settled(7) == ["0"] * 5 + ["1", "2"]

    @case
    @needs(Capability.ORDER)
    async def test_in_ordered_mode_the_suspend_time_passes_between_deliveries(self, s: Scenario) -> None:
        """The pause between two deliveries of a failing message is the setting `suspend`."""
        topic, group = await s.topic(partitions=1), s.name("group")
        calls = s.recorder("calls")

        async def fail_twice(payload: str) -> None:
            calls.add(payload)
            if len(calls.items) < 3:
                raise ValueError(payload)

        suspend = s.environment.suspend
        await s.consume(topic, group, fail_twice, ordered=True, suspend=suspend, settings={"consumer.max-attempts": 1})
        await s.send(topic, "0")
        await calls.settled(3)
        for pause in calls.pauses:
            assert suspend * 0.95 <= pause <= suspend + s.environment.slack

    @case
    async def test_in_ordered_mode_the_last_redelivery_is_followed_by_a_dead_letter(self, s: Scenario) -> None:
        """After `max_reconsume_times` redeliveries the message is a dead letter, and the next message is handled."""
        if s.lacks(Capability.ORDER, Capability.DEAD_LETTER):
            return
        topic, group = await s.topic(partitions=1), s.name("group")
        calls = s.recorder("calls")

        async def fail_first(payload: str) -> None:
            calls.add(payload)
            if payload == "0":
                raise ValueError("never")

        app = await s.consume(
            topic,
            group,
            fail_first,
            ordered=True,
            max_reconsume_times=2,
            suspend=s.environment.suspend,
            settings={"consumer.max-attempts": 2},
        )
        await s.send(topic, "0", {"scst_partition": 0})
        await s.send(topic, "1", {"scst_partition": 0})
        assert await calls.settled(5) == ["0"] * 4 + ["1"]
        letters = await s.dead_letters(app, group)
        (letter,) = await letters.wait(1)
        assert letter.payload == b"0"

    @case
    @needs(Capability.ORDER, Capability.PARTITION)
    async def test_in_ordered_mode_one_partition_does_not_wait_for_another(self, s: Scenario) -> None:
        """While one partition is suspended, the messages of the others are handled."""
        topic, group = await s.topic(partitions=4), s.name("group")
        done = s.recorder("done")

        async def fail_zero(payload: str) -> None:
            if payload == "0":
                raise ValueError(payload)
            done.add(payload)

        await s.consume(
            topic,
            group,
            fail_zero,
            ordered=True,
            suspend=s.environment.suspend,
            settings={"consumer.max-attempts": 1},
        )
        for number in range(4):
            await s.send(topic, str(number), {"scst_partition": number})
        assert sorted(await done.settled(3)) == ["1", "2", "3"]
