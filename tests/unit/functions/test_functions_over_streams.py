"""Functions of streams are called once, with the streams of incoming messages."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest

from streamkit import Message, Requeue
from streamkit.application import StreamApplication
from streamkit.clock import use_clock
from streamkit.testing.virtual_time import VirtualTime

MakeApplication = Callable[..., StreamApplication]
Numbers = AsyncIterator[int]


def test_stream_function_keeps_its_state(make_app: MakeApplication) -> None:
    """One call processes all messages."""
    app = make_app()
    calls = 0

    @app.function
    async def total(numbers: Numbers) -> AsyncIterator[int]:
        nonlocal calls
        calls += 1
        so_far = 0
        async for number in numbers:
            so_far += number
            yield so_far

    with app.test() as test:
        for number in (1, 2, 3):
            test.input("total-in-0").send(number)
        assert [each.payload for each in test.output("total-out-0").receive_all(int)] == [1, 3, 6]
    assert calls == 1


def test_message_is_settled_when_the_next_is_requested(make_app: MakeApplication) -> None:
    """Its results are sent before; a function that fails has failed with that message."""
    app = make_app(**{"stream__bindings__check-in-0__group": "g"})
    seen: list[str] = []

    @app.function
    async def check(texts: AsyncIterator[str]) -> AsyncIterator[str]:
        async for text in texts:
            seen.append(text)
            if text == "bad":
                raise ValueError(text)
            yield text

    with app.test() as test:
        for text in ("a", "bad", "b"):
            test.input("check-in-0").send(text)
        test.advance(hours=20)
        assert sorted(each.payload for each in test.output("check-out-0").receive_all(str)) == ["a", "b"]
        assert test.dead_letters("check-in-0").receive(str).payload == "bad"
    assert seen.count("bad") == 3 + 16


def test_stream_function_may_settle_by_raising(make_app: MakeApplication) -> None:
    """Requeue applies to the current message."""
    app = make_app(**{"stream__bindings__once-in-0__group": "g"})
    seen: list[str] = []

    @app.function
    async def once(texts: AsyncIterator[str]) -> None:
        async for text in texts:
            seen.append(text)
            if len(seen) == 1:
                raise Requeue

    with app.test() as test:
        test.input("once-in-0").send("a")
        assert seen == ["a"]
        test.advance(seconds=11)
    assert seen == ["a", "a"]
    assert not test.errors


def test_items_may_be_messages(make_app: MakeApplication) -> None:
    """With their headers; yielded messages are sent as they are, or redirected by a header."""
    app = make_app()

    @app.function
    async def tag(messages: AsyncIterator[Message[int]]) -> AsyncIterator[Message[int]]:
        async for message in messages:
            yield Message(message.payload, {"customer": message.headers["customer"]})
            yield Message(-1, {"spring.cloud.stream.sendto.destination": "copies"})

    with app.test() as test:
        test.input("tag-in-0").send(1, {"customer": "c"})
        assert test.output("tag-out-0").receive(int).headers["customer"] == "c"
        assert test.output("copies").receive(int).payload == -1


def test_several_inputs_and_outputs(make_app: MakeApplication) -> None:
    """Two parameters or a tuple of streams; a returned tuple of streams is two outputs."""
    app = make_app(function__definition="pair;split")

    @app.function
    async def pair(names: AsyncIterator[str], ages: Numbers) -> AsyncIterator[str]:
        async for name in names:
            yield f"{name} {await anext(ages)}"

    @app.function
    def split(both: tuple[Numbers, Numbers]) -> tuple[AsyncIterator[int], AsyncIterator[str]]:
        async def doubled() -> AsyncIterator[int]:
            async for number in both[0]:
                yield 2 * number

        async def shown() -> AsyncIterator[str]:
            async for number in both[1]:
                yield f"#{number}"

        return doubled(), shown()

    with app.test() as test:
        test.input("pair-in-0").send("Ada")
        assert test.output("pair-out-0").is_empty
        test.input("pair-in-1").send(36)
        assert test.output("pair-out-0").receive(str).payload == "Ada 36"
        test.input("split-in-1").send(4)
        test.input("split-in-0").send(5)
        assert test.output("split-out-0").receive(int).payload == 10
        assert test.output("split-out-1").receive(str).payload == "#4"


def test_stream_function_that_ended_is_called_again(make_app: MakeApplication) -> None:
    """For the next message, with a new state."""
    app = make_app()

    @app.function
    async def pairs(numbers: Numbers) -> AsyncIterator[list[int]]:
        yield [await anext(numbers), await anext(numbers)]

    with app.test() as test:
        for number in range(4):
            test.input("pairs-in-0").send(number)
        assert [each.payload for each in test.output("pairs-out-0").receive_all(list[int])] == [
            [0, 1],
            [2, 3],
        ]


def test_unreadable_item_never_reaches_the_stream_function(make_app: MakeApplication) -> None:
    """It fails alone; the function continues with the next."""
    app = make_app(**{"stream__bindings__note-in-0__group": "g"})
    seen: list[int] = []

    @app.function
    async def note(numbers: Numbers) -> None:
        async for number in numbers:
            seen.append(number)

    with app.test() as test:
        for data in (1, "x", 2):
            test.input("note-in-0").send(data)
        assert test.dead_letters("note-in-0").receive().payload == b"x"
    assert seen == [1, 2]


def test_stream_function_is_composed_with_message_functions(make_app: MakeApplication) -> None:
    """On either side, and after a supplier."""
    app = make_app(function__definition="tick|running|text")
    ticks = iter(range(1, 100))

    @app.function
    def tick() -> int:
        return next(ticks)

    @app.function
    async def running(numbers: Numbers) -> AsyncIterator[int]:
        total = 0
        async for number in numbers:
            total += number
            yield total

    @app.function
    def text(number: int) -> str:
        return f"<{number}>"

    with app.test() as test:
        output = test.output("tickrunningtext-out-0")
        test.advance(seconds=2.5)
        assert [each.payload for each in output.receive_all(str)] == ["<1>", "<3>", "<6>"]


def test_failure_without_a_message_is_reported(make_app: MakeApplication) -> None:
    """On errorChannel; the next message is processed."""
    app = make_app()
    calls = 0

    @app.function
    async def late(numbers: Numbers) -> AsyncIterator[int]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("not yet")
        async for number in numbers:
            yield number

    with app.test() as test:
        test.settle()
        assert "function 'late' failed: RuntimeError: not yet" in str(test.errors[0].payload)
        test.input("late-in-0").send(1)
        assert test.output("late-out-0").receive(int).payload == 1


def test_application_stops_while_a_stream_function_waits_for_input(make_app: MakeApplication) -> None:
    """Its unsettled messages are returned, and the stop does not wait for input."""
    app = make_app(**{"stream__bindings__pair-in-0__group": "g"})

    @app.function
    async def pair(names: AsyncIterator[str], ages: Numbers) -> AsyncIterator[str]:
        async for name in names:
            yield f"{name} {await anext(ages)}"

    with app.test() as test:
        test.input("pair-in-0").send("Ada")
        before = test.time.loop.time()
        test.run(app.stop())
        assert test.time.loop.time() - before < 1


def test_stream_function_may_send_without_input(make_app: MakeApplication) -> None:
    """It runs from the start of the application."""
    app = make_app()

    @app.function
    async def beat(numbers: Numbers) -> AsyncIterator[str]:
        while True:
            yield "beat"
            await asyncio.sleep(10)

    with app.test() as test:
        output = test.output("beat-out-0")
        test.advance(seconds=25)
        assert len(output.receive_all()) == 3


def test_cancelled_error_from_a_stream_function_is_a_failure(make_app: MakeApplication) -> None:
    """The function itself was not cancelled: it is called again, and later messages are processed."""
    app = make_app(**{"stream__bindings__note-in-0__group": "g"})
    seen: list[str] = []

    @app.function
    async def note(texts: AsyncIterator[str]) -> None:
        async for text in texts:
            seen.append(text)
            if len(seen) == 1:
                dead = asyncio.get_running_loop().create_future()
                dead.cancel()
                await dead

    with app.test() as test:
        test.input("note-in-0").send("a")
        test.input("note-in-0").send("b")
        test.advance(minutes=1)
    assert sorted(seen) == ["a", "a", "b"]


def test_stream_function_that_ignores_its_cancellation_is_abandoned(
    make_app: MakeApplication, caplog: pytest.LogCaptureFixture
) -> None:
    """After ten seconds, so that the application can end."""
    app = make_app(stream__default_binder="inmemory")

    async def main() -> None:
        loop, release = asyncio.get_running_loop(), asyncio.Event()

        @app.function
        async def stubborn(texts: AsyncIterator[str]) -> None:
            while not release.is_set():
                with suppress(asyncio.CancelledError):
                    await release.wait()

        await app.start(watch_loop=False)
        await asyncio.sleep(1)
        began = loop.time()
        await app.stop()
        assert loop.time() - began == pytest.approx(10)
        release.set()
        await asyncio.sleep(1)

    with VirtualTime() as time, use_clock(time.clock):
        time.run(main())
    assert "Task 'function stubborn' was cancelled and is still running; it is abandoned at " in caplog.text
