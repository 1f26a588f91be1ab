"""Cases: error handlers and retry policies that settings name, and each destination's error channel."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from streamkit.binder.attempts import BackOff, RetryPolicy
from streamkit.binder.capabilities import Capability
from streamkit.binder.dead_letter import FAILURE_MESSAGE, FAILURE_TYPE
from streamkit.config.origin import Scalar
from streamkit.errors import MessageHandlingError, Reject, Requeue, RetriesExhausted
from streamkit.messaging.headers import SOURCE_DATA
from streamkit.messaging.message import ErrorMessage, Message
from streamkit.testing.contract.scenario import Recorder, Scenario, case

ONE_CALL: Final[dict[str, Scalar]] = {"consumer.max-attempts": 1}
HANDLED: Final[dict[str, Scalar]] = {"error-handler-definition": "handler"}


class ErrorCases:
    """What handles a failure."""

    @case
    async def test_the_error_handler_of_a_binding_settles_its_message(self, s: Scenario) -> None:
        """The function `error-handler-definition` names is told; returning, it has handled the message."""
        topic, group = await s.topic(), s.name("group")
        calls, errors = s.recorder("calls"), s.recorder("errors")
        app = s.consumer(topic, group, failing(calls), redelivery_level=1, settings=HANDLED)
        app.register("handler", errors.listen)
        await s.start(app)
        await s.send(topic, "x", {"colour": "red"})
        (error,) = await errors.wait(1)
        await asyncio.sleep(s.environment.delay_levels[0])
        assert await calls.settled(3) == ["x", "x", "x"]
        assert isinstance(error.payload, RetriesExhausted)
        assert isinstance(error.payload.__cause__, ValueError)
        source = error.headers[SOURCE_DATA]
        assert isinstance(source, Message)
        assert (source.payload, source.headers["colour"]) == (b"x", "red")

    @case
    async def test_with_one_attempt_the_error_handler_is_told_at_once(self, s: Scenario) -> None:
        """max-attempts=1: no retry, and the error is the listener's, not that attempts are used up."""
        topic, group = await s.topic(), s.name("group")
        calls, errors = s.recorder("calls"), s.recorder("errors")
        app = s.consumer(topic, group, failing(calls), settings=HANDLED | ONE_CALL)
        app.register("handler", errors.listen)
        await s.start(app)
        await s.send(topic, "x")
        (error,) = await errors.settled(1)
        assert len(calls.items) == 1
        assert type(error.payload) is MessageHandlingError

    @case
    async def test_an_error_handler_may_reject(self, s: Scenario) -> None:
        """Raising Reject, it sends the message to the dead letters with its own reason."""
        if s.lacks(Capability.DEAD_LETTER):
            return
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        def reject(error: ErrorMessage) -> None:
            raise Reject("seen by the handler")

        app = s.consumer(topic, group, failing(calls), settings=HANDLED | ONE_CALL)
        app.register("handler", reject)
        await s.start(app)
        await s.send(topic, "x")
        (letter,) = await (await s.dead_letters(app, group)).wait(1)
        assert letter.headers[FAILURE_MESSAGE] == "seen by the handler"
        assert len(calls.items) == 1

    @case
    async def test_an_error_handler_may_ask_for_another_delivery(self, s: Scenario) -> None:
        """Raising Requeue(after), it has the message delivered again then."""
        if s.lacks(Capability.REDELIVERY):
            return
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")
        after = s.environment.delay_levels[0]

        async def requeue_once(error: ErrorMessage) -> None:
            if len(calls.items) == 1:
                raise Requeue(after=timedelta(seconds=after))

        app = s.consumer(topic, group, failing(calls), settings=HANDLED | ONE_CALL)
        app.register("handler", requeue_once)
        await s.start(app)
        await s.send(topic, "x")
        await calls.settled(2)
        assert after * 0.95 <= calls.pauses[0] <= after + s.environment.slack

    @case
    async def test_an_error_handler_that_fails_settles_nothing(self, s: Scenario) -> None:
        """What follows is what follows without it, and the dead letter tells what the listener raised."""
        if s.lacks(Capability.DEAD_LETTER):
            return
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        async def fail_too(error: ErrorMessage) -> None:
            raise KeyError("the handler's own")

        app = s.consumer(topic, group, failing(calls), max_reconsume_times=0, settings=HANDLED | ONE_CALL)
        app.register("handler", fail_too)
        await s.start(app)
        await s.send(topic, "x")
        (letter,) = await (await s.dead_letters(app, group)).wait(1)
        assert letter.headers[FAILURE_TYPE] == "builtins.ValueError"
        assert letter.headers[FAILURE_MESSAGE] == "cannot handle x"

    @case
    async def test_a_retry_policy_may_be_named(self, s: Scenario) -> None:
        """`retry-template-name` takes the place of the settings of attempts and back-off."""
        topic, group = await s.topic(), s.name("group")
        calls, errors = s.recorder("calls"), s.recorder("errors")
        app = s.consumer(
            topic, group, failing(calls), settings=HANDLED | {"consumer.retry-template-name": "patient"}
        )
        app.register("handler", errors.listen)
        app.register("patient", RetryPolicy(5, BackOff(initial=s.environment.back_off, multiplier=1)))
        await s.start(app)
        await s.send(topic, "x")
        await errors.settled(1)
        assert len(calls.items) == 5
        for pause in calls.pauses:
            assert s.environment.back_off * 0.95 <= pause <= s.environment.back_off + s.environment.slack

    @case
    async def test_each_destination_has_an_error_channel_of_its_own(self, s: Scenario) -> None:
        """Of `destination=a,b` what came from b fails on `b.<group>.errors`, on every binder."""
        first, second, group = await s.topic("first"), await s.topic("second"), s.name("group")
        calls, errors = s.recorder("calls"), s.recorder("errors")
        app = s.consumer(f"{first},{second}", group, failing(calls), settings=ONE_CALL)
        app.error_listener(f"{second}.{group}.errors")(errors.listen)
        await s.start(app)
        await s.nothing_more()
        await s.send(second, "of the second")
        (error,) = await errors.settled(1)
        assert error.original_message.payload == b"of the second"


def failing(calls: "Recorder[str]") -> Callable[[str], Awaitable[None]]:
    """Return a listener that notes its calls and always fails."""

    async def fail(payload: str) -> None:
        calls.add(payload)
        raise ValueError(f"cannot handle {payload}")

    return fail
