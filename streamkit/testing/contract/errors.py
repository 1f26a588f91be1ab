"""Cases: error handlers and retry policies that settings name, and the error channels of destinations."""

import asyncio
from datetime import timedelta
from typing import Final

from streamkit.binder.attempts import BackOff, RetryPolicy
from streamkit.binder.capabilities import Capability
from streamkit.binder.dead_letter import FAILURE_MESSAGE, FAILURE_TYPE
from streamkit.config.origin import Scalar
from streamkit.errors import MessageHandlingError, RetriesExhausted
from streamkit.messaging.headers import SOURCE_DATA
from streamkit.messaging.message import ErrorMessage, Message
from streamkit.settlement import Reject, Requeue
from streamkit.testing.contract.scenario import Scenario, case, needs

ONE_CALL: Final[dict[str, Scalar]] = {"consumer.max-attempts": 1}
HANDLED: Final[dict[str, Scalar]] = {"error-handler-definition": "handler"}


class ErrorCases:
    """Error handlers, retry policies, error channels."""

    @case
    async def test_an_error_handler_that_returns_accepts_the_message(self, s: Scenario) -> None:
        """The function of `error-handler-definition` receives the error; if it returns, the message is accepted."""
        topic, group = await s.topic(), s.name("group")
        calls, errors = s.recorder("calls"), s.recorder("errors")
        app = s.consumer(topic, group, calls.fail, redelivery_level=1, settings=HANDLED)
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
    async def test_with_one_attempt_the_error_handler_receives_the_error_of_the_call(self, s: Scenario) -> None:
        """With max-attempts=1 there is no retry, and the payload is `MessageHandlingError`, not `RetriesExhausted`."""
        topic, group = await s.topic(), s.name("group")
        calls, errors = s.recorder("calls"), s.recorder("errors")
        app = s.consumer(topic, group, calls.fail, settings=HANDLED | ONE_CALL)
        app.register("handler", errors.listen)
        await s.start(app)
        await s.send(topic, "x")
        (error,) = await errors.settled(1)
        assert len(calls.items) == 1
        assert type(error.payload) is MessageHandlingError

    @case
    @needs(Capability.DEAD_LETTER)
    async def test_an_error_handler_may_reject_the_message(self, s: Scenario) -> None:
        """If the error handler raises `Reject`, the message is a dead letter with the reason that it gives."""
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        def reject(error: ErrorMessage) -> None:
            raise Reject("seen by the handler")

        app = s.consumer(topic, group, calls.fail, settings=HANDLED | ONE_CALL)
        app.register("handler", reject)
        await s.start(app)
        await s.send(topic, "x")
        (letter,) = await (await s.dead_letters(app, group)).wait(1)
        assert letter.headers[FAILURE_MESSAGE] == "seen by the handler"
        assert len(calls.items) == 1

    @case
    @needs(Capability.REDELIVERY)
    async def test_an_error_handler_may_requeue_the_message(self, s: Scenario) -> None:
        """If the error handler raises `Requeue(after=...)`, the message is redelivered after that time."""
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")
        after = s.environment.delay_levels[0]

        async def requeue_once(error: ErrorMessage) -> None:
            if len(calls.items) == 1:
                raise Requeue(after=timedelta(seconds=after))

        app = s.consumer(topic, group, calls.fail, settings=HANDLED | ONE_CALL)
        app.register("handler", requeue_once)
        await s.start(app)
        await s.send(topic, "x")
        await calls.settled(2)
        assert after * 0.95 <= calls.pauses[0] <= after + s.environment.slack

    @case
    @needs(Capability.DEAD_LETTER)
    async def test_an_error_handler_that_fails_does_not_settle_the_message(self, s: Scenario) -> None:
        """The message goes on as without an error handler; its dead letter names the listener's exception."""
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        async def fail_too(error: ErrorMessage) -> None:
            raise KeyError("the handler's own")

        app = s.consumer(topic, group, calls.fail, max_reconsume_times=0, settings=HANDLED | ONE_CALL)
        app.register("handler", fail_too)
        await s.start(app)
        await s.send(topic, "x")
        (letter,) = await (await s.dead_letters(app, group)).wait(1)
        assert letter.headers[FAILURE_TYPE] == "builtins.ValueError"
        assert letter.headers[FAILURE_MESSAGE] == "cannot handle x"

    @case
    async def test_a_setting_may_name_a_registered_retry_policy(self, s: Scenario) -> None:
        """The policy that `retry-template-name` names replaces the settings of attempts and back-off."""
        topic, group = await s.topic(), s.name("group")
        calls, errors = s.recorder("calls"), s.recorder("errors")
        app = s.consumer(topic, group, calls.fail, settings=HANDLED | {"consumer.retry-template-name": "patient"})
        app.register("handler", errors.listen)
        app.register("patient", RetryPolicy(5, BackOff(initial=s.environment.back_off, multiplier=1)))
        await s.start(app)
        await s.send(topic, "x")
        await errors.settled(1)
        assert len(calls.items) == 5
        for pause in calls.pauses:
            assert s.environment.back_off * 0.95 <= pause <= s.environment.back_off + s.environment.slack

    @case
    async def test_each_destination_has_its_own_error_channel(self, s: Scenario) -> None:
        """With `destination=a,b`, errors of messages from b are sent to `b.<group>.errors`."""
        first, second, group = await s.topic("first"), await s.topic("second"), s.name("group")
        calls, errors = s.recorder("calls"), s.recorder("errors")
        app = s.consumer(f"{first},{second}", group, calls.fail, settings=ONE_CALL)
        app.error_listener(f"{second}.{group}.errors")(errors.listen)
        await s.start(app)
        await s.nothing_more()
        await s.send(second, "of the second")
        (error,) = await errors.settled(1)
        assert error.original_message.payload == b"of the second"
