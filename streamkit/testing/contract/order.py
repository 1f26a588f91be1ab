"""Cases: in which order messages are handled."""

import asyncio
from dataclasses import dataclass

from streamkit.binder.capabilities import Capability
from streamkit.testing.contract.scenario import PREFIX, Scenario, case, refused


@dataclass
class Step:
    """One of several steps of one thing."""

    key: str
    number: int


class OrderCases:
    """Ordered consumption."""

    @case
    async def test_messages_of_one_key_are_handled_in_the_order_they_were_sent(self, s: Scenario) -> None:
        """On a partitioned binding with an ordered consumer each key's messages stay in order."""
        topic, group = await s.topic(), s.name("group")
        handled = s.recorder("steps")

        async def note(step: Step) -> None:
            await asyncio.sleep(0)
            handled.add((step.key, step.number))

        if s.lacks(Capability.ORDER):
            await refused(s.consume(topic, group, note, ordered=True))
            return
        await s.consume(topic, group, note, ordered=True, concurrency=4)
        sender = await s.start(
            s.app(
                {
                    f"{PREFIX}.bindings.output.destination": topic,
                    f"{PREFIX}.bindings.output.producer.partition-key-expression": "payload.key",
                    f"{PREFIX}.output-bindings": "output",
                }
            )
        )
        for number in range(10):
            for key in "abcde":
                await sender.bridge.asend("output", Step(key, number))
        steps = await handled.settled(50)
        for key in "abcde":
            assert [number for found, number in steps if found == key] == list(range(10))

    @case
    async def test_a_failing_message_holds_back_those_behind_it(self, s: Scenario) -> None:
        """Ordered: the queue waits until its head succeeds, then goes on."""
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
    async def test_a_suspended_queue_waits_the_time_that_is_set(self, s: Scenario) -> None:
        """Ordered: `suspend` lies between one delivery and the next."""
        if s.lacks(Capability.ORDER):
            return
        topic, group = await s.topic(partitions=1), s.name("group")
        calls = s.recorder("calls")

        async def fail_twice(payload: str) -> None:
            calls.add(payload)
            if len(calls.items) < 3:
                raise ValueError(payload)

        suspend = s.environment.suspend
        await s.consume(
            topic,
            group,
            fail_twice,
            ordered=True,
            suspend=suspend,
            settings={"consumer.max-attempts": 1},
        )
        await s.send(topic, "0")
        await calls.settled(3)
        for pause in calls.pauses:
            assert suspend * 0.95 <= pause <= suspend + s.environment.slack

    @case
    async def test_an_ordered_message_over_its_limit_is_a_dead_letter_and_the_queue_goes_on(
        self, s: Scenario
    ) -> None:
        """Ordered: `max_reconsume_times` bounds the suspensions."""
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
    async def test_one_queue_does_not_wait_for_another(self, s: Scenario) -> None:
        """Ordered: while one partition is suspended, the others are handled."""
        if s.lacks(Capability.ORDER, Capability.PARTITION):
            return
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
