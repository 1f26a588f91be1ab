"""Cases: starting, pausing and stopping bindings, and their concurrency."""

import asyncio
import threading

from streamkit.binder.binder import BindingState, HealthStatus
from streamkit.binder.capabilities import Capability
from streamkit.testing.contract.scenario import LONG_STOP_TIMEOUT, Scenario, case, needs, refused


class LifecycleCases:
    """Starting, pausing, stopping, concurrency."""

    @case
    async def test_a_paused_binding_receives_nothing_until_it_is_resumed(self, s: Scenario) -> None:
        """A resumed binding receives the messages of the pause; a binder without the capability refuses to pause."""
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        app = await s.consume(topic, group, calls.listen_to_text)
        binding = app.binding("input")
        if s.lacks(Capability.PAUSE):
            await refused(binding.pause())
            return
        await s.send(topic, "0")
        await calls.wait(1)
        await binding.pause()
        assert app.binding("input").state is BindingState.PAUSED
        await s.nothing_more()
        for number in range(1, 4):
            await s.send(topic, str(number))
        assert await calls.settled(1) == ["0"]
        await binding.resume()
        assert app.binding("input").state is BindingState.RUNNING
        assert sorted(await calls.settled(4)) == ["0", "1", "2", "3"]

    @case
    async def test_the_lag_is_the_number_of_unsettled_messages(self, s: Scenario) -> None:
        """Messages of a call in flight and of a paused binding count; a binder that cannot know its lag has none."""
        topic, group = await s.topic(), s.name("group")
        begun, go_on = s.recorder("begun"), asyncio.Event()

        async def wait(payload: str) -> None:
            begun.add(payload)
            await go_on.wait()

        app = await s.consume(topic, group, wait)

        if "input" not in await app.lags():
            return
        await s.until_lag(app, "input", 0)
        await s.send(topic, "first")
        await begun.wait(1)
        await s.until_lag(app, "input", 1)
        go_on.set()
        await s.until_lag(app, "input", 0)
        if s.lacks(Capability.PAUSE):
            return
        await app.binding("input").pause()
        for number in range(3):
            await s.send(topic, str(number))
        await s.until_lag(app, "input", 3)
        await app.binding("input").resume()
        await s.until_lag(app, "input", 0)

    @case
    async def test_a_stop_waits_for_the_calls_in_flight(self, s: Scenario) -> None:
        """A call in flight returns before the application has stopped, and its message is not delivered again."""
        topic, group = await s.topic(), s.name("group")
        begun, ended = s.recorder("begun"), s.recorder("ended")

        async def take_time(payload: str) -> None:
            begun.add(payload)
            await asyncio.sleep(s.environment.quiet / 2)
            ended.add(payload)

        app = await s.consume(topic, group, take_time)
        await s.send(topic, "x")
        await begun.wait(1)
        await app.stop()
        assert ended.items == ["x"]
        again = await s.record(topic, group)
        await again.settled(0)

    @case
    @needs(Capability.DURABLE_GROUP)
    async def test_a_message_whose_call_outlasts_the_stop_is_redelivered(self, s: Scenario) -> None:
        """A message that is not settled within the stop's timeout is delivered to the group's next member."""
        topic, group = await s.topic(), s.name("group")
        begun = s.recorder("begun")

        async def never_end(payload: str) -> None:
            begun.add(payload)
            await asyncio.Event().wait()

        app = await s.consume(topic, group, never_end)
        await s.send(topic, "x")
        await begun.wait(1)
        await app.stop(0.05)
        again = await s.record(topic, group)
        assert [message.payload for message in await again.wait(1)] == [b"x"]

    @case
    @needs(Capability.DURABLE_GROUP)
    async def test_a_stop_does_not_wait_for_a_message_in_back_off(self, s: Scenario) -> None:
        """The message stays unsettled, and the group's next member receives it."""
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        app = await s.consume(
            topic,
            group,
            calls.fail,
            settings={"consumer.back-off-initial-interval": f"{LONG_STOP_TIMEOUT * 2:g}s"},
        )
        await s.send(topic, "x")
        await calls.wait(1)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await app.stop()
        assert loop.time() - began < LONG_STOP_TIMEOUT / 2
        again = await s.record(topic, group)
        assert [message.payload for message in await again.wait(1)] == [b"x"]

    @case
    async def test_a_binding_can_be_stopped_and_started_alone(self, s: Scenario) -> None:
        """Started again, the binding receives its group's messages."""
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        app = await s.consume(topic, group, calls.listen_to_text)
        await s.send(topic, "0")
        await calls.wait(1)
        await s.nothing_more()
        binding = app.binding("input")
        await binding.stop()
        assert binding.state is BindingState.STOPPED
        await binding.start()
        await s.send(topic, "1")
        assert await calls.settled(2) == ["0", "1"]

    @case
    async def test_a_binding_without_auto_startup_is_bound_but_stopped(self, s: Scenario) -> None:
        """With auto-startup=false the binding receives messages after `start()` has been called."""
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        app = await s.consume(topic, group, calls.listen_to_text, settings={"consumer.auto-startup": "false"})
        binding = app.binding("input")
        assert binding.state is BindingState.STOPPED
        await binding.start()
        await s.send(topic, "x")
        assert await calls.settled(1) == ["x"]

    @case
    async def test_concurrency_is_the_number_of_calls_at_the_same_time(self, s: Scenario) -> None:
        """With concurrency 3 an `async def` listener is called for three messages at the same time, never for more."""
        topic, group = await s.topic(), s.name("group")
        state = {"working": 0, "most": 0}
        done, all_work = s.recorder("done"), asyncio.Event()

        async def work(payload: str) -> None:
            state["working"] += 1
            state["most"] = max(state["most"], state["working"])
            if state["working"] == 3:
                all_work.set()
            await all_work.wait()
            await asyncio.sleep(s.environment.quiet / 20)
            state["working"] -= 1
            done.add(payload)

        await s.consume(topic, group, work, concurrency=3)
        for number in range(30):
            await s.send(topic, str(number))
        await done.settled(30)
        assert state["most"] == 3

    @case
    async def test_def_listeners_are_called_on_threads(self, s: Scenario) -> None:
        """A `def` listener may block: with concurrency 3 it is called on three threads other than the loop's."""
        topic, group = await s.topic(), s.name("group")
        barrier = threading.Barrier(3, timeout=60)
        threads = s.recorder("threads")

        def block(payload: str) -> None:
            barrier.wait()
            threads.add(threading.get_ident())

        await s.consume(topic, group, block, concurrency=3)
        for number in range(3):
            await s.send(topic, str(number))
        found = await threads.settled(3)
        assert len(set(found)) == 3
        assert threading.get_ident() not in found

    @case
    async def test_an_input_may_have_several_destinations(self, s: Scenario) -> None:
        """With `destination=a,b` the binding receives the messages of both."""
        first, second = await s.topic("first"), await s.topic("second")
        calls = s.recorder("calls")

        await s.consume(f"{first}, {second}", s.name("group"), calls.listen_to_text)
        await s.nothing_more()
        await s.send(first, "1")
        await s.send(second, "2")
        assert sorted(await calls.settled(2)) == ["1", "2"]

    @case
    async def test_an_application_can_start_again_after_a_stop(self, s: Scenario) -> None:
        """After a second start, each listener is called once for each message."""
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        app = await s.consume(topic, group, calls.listen_to_text)
        await s.send(topic, "0")
        await calls.settled(1)
        await app.stop()
        await app.start(watch_loop=False)
        await s.send(topic, "1")
        assert await calls.settled(2) == ["0", "1"]

    @case
    async def test_the_binder_reports_its_capabilities_and_its_health(self, s: Scenario) -> None:
        """The capabilities equal those of the environment, and the health of a started binder is UP."""
        app = await s.start(s.producer(await s.topic()))
        binder = app.binding("output").binder.binder
        assert binder.type == s.environment.binder_type
        assert binder.capabilities() == s.environment.capabilities
        assert (await binder.health()).status is HealthStatus.UP
