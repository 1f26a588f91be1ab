"""The workers of a binding in concurrent mode: tasks that are parked while there are no messages."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar

import pytest

from binders.inmemory.consumer import ConcurrentConsumerBinding, InMemoryMember
from binders.inmemory.group import Delivery, GroupQueue
from streamkit import Message, StreamApplication
from streamkit.binder.binder import BindingState
from streamkit.binder.drivers import ConcurrentDriver, Driver

Send = Callable[[str], Awaitable[object]]

NAME = "in consumer"


def workers() -> list["asyncio.Task[object]"]:
    """Return the tasks of the binding that have not ended."""
    return [task for task in asyncio.all_tasks() if task.get_name() == NAME]


@asynccontextmanager
async def listening(
    listener: Callable[[str], Awaitable[None]], *, concurrency: int = 1, **consumer: str
) -> AsyncIterator[tuple[StreamApplication, Send]]:
    """Run an application in memory with a listener; yield it, and what sends to the listener."""
    prefix = "spring.cloud.stream"
    app = StreamApplication(
        config_location="optional:/none",
        properties={
            f"{prefix}.default-binder": "inmemory",
            f"{prefix}.output-bindings": "out",
            f"{prefix}.bindings.out.destination": "topic",
            f"{prefix}.bindings.in.destination": "topic",
            f"{prefix}.bindings.in.group": "g",
            f"{prefix}.bindings.in.consumer.concurrency": str(concurrency),
            **{f"{prefix}.bindings.in.consumer.{key.replace('_', '-')}": value for key, value in consumer.items()},
        },
    )
    app.stream_listener("in")(listener)
    async with app:
        channel = app.channel("out")
        yield app, lambda text: channel.asend(Message(text))


async def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition is true, and let other tasks run meanwhile."""
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - it looks at the turns of the loop
            await asyncio.sleep(0)


def test_one_worker_handles_messages_that_come_one_after_the_other() -> None:
    """It is parked between them, and ends with the application."""

    async def main() -> None:
        handlers: list[asyncio.Task[object] | None] = []

        async def note(text: str) -> None:
            handlers.append(asyncio.current_task())

        async with listening(note) as (_, send):
            for number in range(20):
                await send("x")
                await until(lambda number=number: len(handlers) > number)  # type: ignore[misc]
            assert len(set(handlers)) == 1
            assert workers() == [handlers[0]]
        assert workers() == []

    asyncio.run(main())


def test_parked_workers_handle_as_many_messages_at_once_as_there_are_permits() -> None:
    """Each burst finds all of them, whether its messages are in one partition or in several."""

    async def main() -> None:
        running = 0
        finished = asyncio.Semaphore(0)
        go_on = asyncio.Event()

        async def wait(text: str) -> None:
            nonlocal running
            running += 1
            await go_on.wait()
            running -= 1
            finished.release()

        async with listening(wait, concurrency=3) as (_, send):
            for burst in (1, 7, 2, 5):
                go_on.clear()
                for _ in range(burst):
                    await send("x")
                await until(lambda burst=burst: running == min(burst, 3))  # type: ignore[misc]
                go_on.set()
                for _ in range(burst):
                    await finished.acquire()
                await until(lambda: running == 0)
                assert len(workers()) <= 3

    asyncio.run(main())


def test_workers_of_a_burst_end() -> None:
    """Messages that wait for another attempt have a worker each; no more than the permits stay parked."""

    async def main() -> None:
        failed: set[str] = set()
        handled: set[str] = set()

        async def fail_first(text: str) -> None:
            if text in failed:
                handled.add(text)
            else:
                failed.add(text)
                raise ValueError("again")

        async with listening(fail_first, concurrency=2, back_off_initial_interval="200") as (_, send):
            for number in range(30):
                await send(str(number))
            await until(lambda: len(failed) == 30)
            assert len(workers()) > 2
            await until(lambda: len(handled) == 30)
            await until(lambda: len(workers()) <= 2)

    asyncio.run(main())


def test_paused_binding_keeps_messages_for_its_parked_workers() -> None:
    """A paused binding gives parked workers no message until it is resumed."""

    async def main() -> None:
        handled: list[str] = []

        async def note(text: str) -> None:
            handled.append(text)

        async with listening(note) as (app, send):
            await send("a")
            await until(lambda: handled == ["a"])
            binding = app.binding("in")
            await binding.pause()
            await send("b")
            for _ in range(10):
                await asyncio.sleep(0)
            assert (handled, binding.state) == (["a"], BindingState.PAUSED)
            await binding.resume()
            await until(lambda: handled == ["a", "b"])

    asyncio.run(main())


def test_context_variables_of_one_call_are_not_seen_by_the_next() -> None:
    """Messages come one after the other, so that a parked worker could handle all."""

    async def main() -> None:
        variable: ContextVar[str | None] = ContextVar("variable", default=None)
        seen: list[str | None] = []

        async def note(text: str) -> None:
            seen.append(variable.get())
            variable.set(text)

        async with listening(note) as (_, send):
            for number in range(3):
                await send(str(number))
                await until(lambda: len(seen) == number + 1)  # noqa: B023 - it is awaited here
        assert seen == [None] * 3

    asyncio.run(main())


def test_worker_that_is_cancelled_leaves_its_message_to_another() -> None:
    """Between its wake-up and its first step nobody else would look for the message."""

    async def main() -> None:
        handled: list[str] = []

        async def note(text: str) -> None:
            handled.append(text)

        async with listening(note) as (_, send):
            await send("a")
            await until(lambda: handled == ["a"])
            (worker,) = workers()
            await send("b")
            worker.cancel()
            await until(lambda: handled == ["a", "b"])

    asyncio.run(main())


def test_drivers_and_bindings_may_override_wake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each calls the method that it overrides."""
    woken: list[str] = []

    class NotingDriver(ConcurrentDriver[GroupQueue, Delivery]):
        def wake(self, source: GroupQueue) -> None:
            woken.append("driver")
            super().wake(source)

    class NotingBinding(ConcurrentConsumerBinding):
        _driver_type = NotingDriver

        def wake(self, source: GroupQueue) -> None:
            woken.append("binding")
            super().wake(source)

    async def main() -> None:
        heard: list[str] = []

        async def note(text: str) -> None:
            heard.append(text)

        async with listening(note) as (_, send):
            woken.clear()
            await send("x")
            await until(lambda: heard == ["x"])

    monkeypatch.setattr("binders.inmemory.binder.ConcurrentConsumerBinding", NotingBinding)
    asyncio.run(main())
    assert woken == ["binding", "driver"]


@pytest.mark.parametrize("kind", [Driver, InMemoryMember])
def test_classes_without_wake_are_abstract(kind: type[object]) -> None:
    """So a subclass that lacks it is refused when it is made, and not at its first message."""
    assert "wake" in getattr(kind, "__abstractmethods__", ())
