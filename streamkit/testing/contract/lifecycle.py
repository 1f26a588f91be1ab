"""Cases: starting, pausing, stopping, and how many handlers work at once."""

import asyncio
import threading

from streamkit.binder.binder import BindingState, HealthStatus
from streamkit.binder.capabilities import Capability
from streamkit.testing.contract.scenario import LONG, PREFIX, Scenario, case, refused


class LifecycleCases:
    """Life of bindings."""

    @case
    async def test_a_paused_binding_receives_nothing_until_it_is_resumed(self, s: Scenario) -> None:
        """Pausing keeps the messages; a binder that cannot, refuses."""
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        async def note(payload: str) -> None:
            calls.add(payload)

        app = await s.consume(topic, group, note)
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
    async def test_stopping_finishes_the_calls_in_flight(self, s: Scenario) -> None:
        """A call under way ends before the application is stopped, and its message is done."""
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
    async def test_a_call_that_outlasts_the_stop_is_delivered_to_the_next(self, s: Scenario) -> None:
        """What was not settled when the time was up belongs to the group still."""
        if s.lacks(Capability.DURABLE_GROUP):
            return
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
    async def test_a_message_in_back_off_does_not_hold_up_a_stop(self, s: Scenario) -> None:
        """It stays unsettled, and the group's next member receives it."""
        if s.lacks(Capability.DURABLE_GROUP):
            return
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        async def fail(payload: str) -> None:
            calls.add(payload)
            raise ValueError(payload)

        app = await s.consume(
            topic, group, fail, settings={"consumer.back-off-initial-interval": f"{LONG * 2:g}s"}
        )
        await s.send(topic, "x")
        await calls.wait(1)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await app.stop()
        assert loop.time() - began < LONG / 2
        again = await s.record(topic, group)
        assert [message.payload for message in await again.wait(1)] == [b"x"]

    @case
    async def test_a_binding_can_be_stopped_and_started_by_itself(self, s: Scenario) -> None:
        """A stopped binding receives nothing; started again it takes up what its group has."""
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        async def note(payload: str) -> None:
            calls.add(payload)

        app = await s.consume(topic, group, note)
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
    async def test_a_binding_without_auto_startup_waits_to_be_started(self, s: Scenario) -> None:
        """auto-startup=false: the binding is there, stopped."""
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        async def note(payload: str) -> None:
            calls.add(payload)

        app = await s.consume(topic, group, note, settings={"consumer.auto-startup": "false"})
        binding = app.binding("input")
        assert binding.state is BindingState.STOPPED
        await binding.start()
        await s.send(topic, "x")
        assert await calls.settled(1) == ["x"]

    @case
    async def test_concurrency_limits_the_calls_at_once(self, s: Scenario) -> None:
        """`async def` listeners of a concurrent binding: as many calls at once as permits, no more."""
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
    async def test_def_listeners_work_on_threads_of_their_binding(self, s: Scenario) -> None:
        """A `def` listener may block: as many threads as permits meet at a barrier, none of them the loop's."""
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
        """`destination=a,b` receives the messages of both."""
        first, second = await s.topic("first"), await s.topic("second")
        calls = s.recorder("calls")

        async def note(payload: str) -> None:
            calls.add(payload)

        await s.consume(f"{first}, {second}", s.name("group"), note)
        await s.nothing_more()
        await s.send(first, "1")
        await s.send(second, "2")
        assert sorted(await calls.settled(2)) == ["1", "2"]

    @case
    async def test_an_application_can_start_again_after_it_was_stopped(self, s: Scenario) -> None:
        """The same application object runs once more, its listeners called once a message."""
        topic, group = await s.topic(), s.name("group")
        calls = s.recorder("calls")

        async def note(payload: str) -> None:
            calls.add(payload)

        app = await s.consume(topic, group, note)
        await s.send(topic, "0")
        await calls.settled(1)
        await app.stop()
        await app.start(watch_loop=False)
        await s.send(topic, "1")
        assert await calls.settled(2) == ["0", "1"]

    @case
    async def test_the_binder_tells_what_it_can_and_how_it_is(self, s: Scenario) -> None:
        """The capabilities are those declared to the contract; a connected binder is up."""
        app = await s.start(
            s.app(
                {
                    f"{PREFIX}.bindings.output.destination": await s.topic(),
                    f"{PREFIX}.output-bindings": "output",
                }
            )
        )
        binder = app.binding("output").binder.binder
        assert binder.type == s.environment.binder_type
        assert binder.capabilities() == s.environment.capabilities
        assert (await binder.health()).status is HealthStatus.UP
