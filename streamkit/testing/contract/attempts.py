"""Cases: the attempts, redeliveries and dead letters of a message whose listener fails."""

import asyncio

from streamkit.binder.capabilities import Capability
from streamkit.binder.dead_letter import FAILURE_MESSAGE, FAILURE_TYPE
from streamkit.messaging.headers import DELIVERY_ATTEMPT
from streamkit.messaging.message import Message
from streamkit.testing.contract.scenario import Scenario, case, needs


class AttemptCases:
    """Attempts and redeliveries."""

    @case
    async def test_the_first_delivery_makes_max_attempts_calls_with_growing_back_off(self, s: Scenario) -> None:
        """By default a listener that fails is called three times; the pause doubles after each call."""
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        await s.consume(topic, group, calls.fail, redelivery_level=-1)
        await s.send(topic, "x")
        await calls.settled(3)
        first, second = calls.pauses
        assert s.environment.back_off * 0.95 <= first <= s.environment.back_off + s.environment.slack
        assert s.environment.back_off * 1.9 <= second <= s.environment.back_off * 2 + s.environment.slack

    @case
    async def test_a_message_is_settled_when_a_later_attempt_succeeds(self, s: Scenario) -> None:
        """If a later attempt succeeds, the message is accepted and not redelivered."""
        topic, group = await s.topic(), s.name("group")
        attempts = s.recorder("attempts")

        async def fail_once(message: Message[str]) -> None:
            attempts.add(message.headers[DELIVERY_ATTEMPT])
            if len(attempts.items) == 1:
                raise ValueError("once")

        await s.consume(topic, group, fail_once)
        await s.send(topic, "x")
        assert await attempts.settled(2) == [1, 2]

    @case
    async def test_each_redelivery_makes_one_call_and_the_last_is_followed_by_a_dead_letter(self, s: Scenario) -> None:
        """With max-attempts 2 and two redeliveries there are four calls; the dead letter names the exception."""
        if s.lacks(Capability.REDELIVERY):
            return
        topic, group = await s.topic(), s.name("group")
        attempts = s.recorder("attempts")

        async def fail(message: Message[str]) -> None:
            attempts.add(message.headers[DELIVERY_ATTEMPT])
            raise ValueError("never this")

        app = await s.consume(topic, group, fail, max_reconsume_times=2, settings={"consumer.max-attempts": 2})
        await s.send(topic, "x", {"colour": "red"})
        delays = s.environment.redelivery_delays
        await attempts.wait(4, within=s.environment.patience + delays[0] + delays[1])
        await s.nothing_more()
        assert attempts.items == [1, 2, 3, 4]
        _, first, second = attempts.pauses
        assert delays[0] * 0.95 <= first <= delays[0] + s.environment.slack
        assert delays[1] * 0.95 <= second <= delays[1] + s.environment.slack
        if s.lacks(Capability.DEAD_LETTER):
            return
        (letter,) = await (await s.dead_letters(app, group)).wait(1)
        assert letter.payload == b"x"
        assert letter.headers["colour"] == "red"
        assert letter.headers[FAILURE_TYPE] == "builtins.ValueError"
        assert letter.headers[FAILURE_MESSAGE] == "never this"

    @case
    async def test_a_message_is_redelivered_sixteen_times_by_default(self, s: Scenario) -> None:
        """In concurrent mode there are 3 calls and 16 redeliveries over 4 h 46 min, then the dead letter."""
        s.only_on_virtual_time("it takes five hours")
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        app = await s.consume(topic, group, calls.fail)
        await s.send(topic, "x")
        await calls.wait(3 + 16, within=6 * 3600)
        await s.nothing_more()
        assert len(calls.items) == 19
        assert [round(pause) for pause in calls.pauses[2:]] == [
            *(10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
        ]
        assert await (await s.dead_letters(app, group)).wait(1)

    @case
    async def test_without_redeliveries_a_failed_message_is_a_dead_letter_after_its_attempts(self, s: Scenario) -> None:
        """With max-reconsume-times 0 the message is a dead letter after the attempts of its first delivery."""
        if s.lacks(Capability.DEAD_LETTER):
            return
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        app = await s.consume(topic, group, calls.fail, max_reconsume_times=0)
        await s.send(topic, "x")
        await calls.settled(3)
        assert await (await s.dead_letters(app, group)).wait(1)
        assert len(calls.items) == 3

    @case
    async def test_redelivery_level_minus_one_makes_a_dead_letter_after_the_attempts(self, s: Scenario) -> None:
        """In concurrent mode, redelivery level -1 makes a dead letter instead of a redelivery."""
        if s.lacks(Capability.DEAD_LETTER):
            return
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        app = await s.consume(topic, group, calls.fail, redelivery_level=-1, settings={"consumer.max-attempts": 1})
        await s.send(topic, "x")
        await calls.settled(1)
        assert await (await s.dead_letters(app, group)).wait(1)
        assert len(calls.items) == 1

    @case
    @needs(Capability.REDELIVERY)
    async def test_a_redelivery_level_is_the_delay_of_every_redelivery(self, s: Scenario) -> None:
        """In concurrent mode, every redelivery has the delay of a positive redelivery level."""
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        await s.consume(
            topic,
            group,
            calls.fail,
            redelivery_level=1,
            max_reconsume_times=2,
            settings={"consumer.max-attempts": 1},
        )
        await s.send(topic, "x")
        await calls.settled(3)
        delay = s.environment.delay_levels[0]
        for pause in calls.pauses:
            assert delay * 0.95 <= pause <= delay + s.environment.slack

    @case
    async def test_an_exception_that_is_not_retryable_makes_a_dead_letter_at_once(self, s: Scenario) -> None:
        """An exception that is listed as not retryable ends the attempts after one call."""
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        async def fail(payload: str) -> None:
            calls.add(payload)
            raise UnicodeError(payload)

        app = await s.consume(topic, group, fail, settings={"consumer.retryable-exceptions.ValueError": "false"})
        await s.send(topic, "x")
        await calls.settled(1)
        if not s.lacks(Capability.DEAD_LETTER):
            assert await (await s.dead_letters(app, group)).wait(1)

    @case
    async def test_default_retryable_false_retries_only_listed_exceptions(self, s: Scenario) -> None:
        """With default-retryable=false a listed exception is retried as usual; any other ends the attempts."""
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        async def fail(payload: str) -> None:
            calls.add(payload)
            raise KeyError(payload) if payload == "listed" else ValueError(payload)

        await s.consume(
            topic,
            group,
            fail,
            redelivery_level=-1,
            settings={
                "consumer.default-retryable": "false",
                "consumer.retryable-exceptions.LookupError": "true",
            },
        )
        await s.send(topic, "other")
        await calls.settled(1)
        await s.send(topic, "listed")
        assert await calls.settled(4) == ["other", "listed", "listed", "listed"]

    @case
    async def test_a_message_in_back_off_occupies_no_handler(self, s: Scenario) -> None:
        """In concurrent mode, a handler receives other messages while a message waits for its next attempt."""
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        async def fail_bad(payload: str) -> None:
            calls.add(payload)
            if payload == "bad":
                raise ValueError(payload)

        await s.consume(
            topic,
            group,
            fail_bad,
            redelivery_level=-1,
            settings={"consumer.back-off-initial-interval": "60s"},
        )
        await s.send(topic, "bad")
        await calls.wait(1)
        for number in range(3):
            await s.send(topic, str(number))
        await calls.wait(4, within=min(30.0, s.environment.patience))
        assert sorted(calls.items) == ["0", "1", "2", "bad"]

    @case
    async def test_the_back_offs_of_several_messages_pass_at_the_same_time(self, s: Scenario) -> None:
        """In concurrent mode, ten messages in back-off need no longer than one."""
        topic, group = await s.topic(), s.name("group")
        done = s.recorder("done")
        failed: set[str] = set()

        async def fail_once(payload: str) -> None:
            if payload not in failed:
                failed.add(payload)
                raise ValueError(payload)
            done.add(payload)

        await s.consume(topic, group, fail_once)
        began = asyncio.get_running_loop().time()
        for number in range(10):
            await s.send(topic, str(number))
        await done.settled(10)
        assert done.times[-1] - began <= s.environment.back_off + s.environment.slack
