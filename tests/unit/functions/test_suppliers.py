"""Suppliers: functions without input that are polled, or called once."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress

import pytest

from streamkit import Message
from streamkit.application import StreamApplication
from streamkit.clock import use_clock
from streamkit.events import message_sent
from streamkit.testing.harness import Harness
from streamkit.testing.virtual_time import VirtualTime

MakeApplication = Callable[..., StreamApplication]


def times_of(test: Harness, name: str, seconds: float) -> list[float]:
    """Return the virtual times of the messages sent within so many seconds."""
    started = test.time.clock.now_ms() / 1000 - test.time.loop.time()
    output = test.output(name)
    test.advance(seconds=seconds)
    return [round(float(each.payload) - started, 1) for each in output.receive_all(float)]


def clocked(app: StreamApplication) -> StreamApplication:
    """Return the application with a supplier `tick` of the time."""

    @app.function
    async def tick() -> float:
        return app.clock.now_ms() / 1000

    return app


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [0, 1, 2, 3]),
        ({"integration.poller.fixed-delay": "2s"}, [0, 2]),
        ({"integration.poller.fixed-rate": "1500ms"}, [0, 1.5, 3]),
        ({"integration.poller.initial-delay": "1s", "integration.poller.fixed-delay": "1"}, None),
        ({"cloud.stream.poller.fixed-delay": "1500"}, [0, 1.5, 3]),
        ({"cloud.stream.poller.fixed-delay": "2", "cloud.stream.poller.time-unit": "seconds"}, [0, 2]),
        ({"cloud.stream.poller.fixed-delay": "9s", "integration.poller.fixed-delay": "2s"}, [0, 2]),
        ({"integration.poller.cron": "*/2 * * * * *"}, [2]),
        (
            {
                "integration.poller.cron": "0 0 0 1 1 *",
                "cloud.stream.bindings.tick-out-0.producer.poller.fixed-delay": "2s",
            },
            [0, 2],
        ),
        (
            {
                "integration.poller.fixed-delay": "2s",
                "cloud.stream.bindings.tick-out-0.producer.poller.initial-delay": "1s",
            },
            [1, 3],
        ),
    ],
)
def test_polling_times_follow_the_settings(settings: dict[str, str], expected: list[float] | None) -> None:
    """Global ones in both spellings, overridden by the binding's."""
    properties = {f"spring.{key}": value for key, value in settings.items()}
    app = clocked(StreamApplication(config_location="optional:/none", properties=properties))
    with app.test() as test:
        times = times_of(test, "tick-out-0", 3.4 if expected is not None else 1.05)
    if expected is None:
        assert times[0] == 1
        assert len(times) > 10
    else:
        assert times == expected


def test_cron_is_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Virtual time starts at 22:13:20 UTC: nine in the evening, two hours to the west, is 46 minutes away."""
    monkeypatch.setenv("TZ", "Etc/GMT+2")
    time.tzset()
    try:
        properties = {"spring.integration.poller.cron": "0 0 21 * * ?"}
        app = clocked(StreamApplication(config_location="optional:/none", properties=properties))
        with app.test() as test:
            assert times_of(test, "tick-out-0", 26 * 3600) == [46 * 60 + 40, 46 * 60 + 40 + 86400]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_several_messages_per_poll(make_app: MakeApplication) -> None:
    """Up to max-messages-per-poll, fewer if the supplier returns None."""
    app = make_app(stream__poller__max_messages_per_poll="3")
    left = list(range(5))

    @app.function
    def take() -> int | None:
        return left.pop(0) if left else None

    with app.test() as test:
        output = test.output("take-out-0")
        test.settle()
        assert len(output.receive_all()) == 3
        test.advance(seconds=1)
        assert len(output.receive_all()) == 2


def test_unlimited_messages_per_poll(make_app: MakeApplication) -> None:
    """-1 calls it until it returns None."""
    app = make_app(stream__poller__max_messages_per_poll="-1")
    left = list(range(20))

    @app.function
    def take() -> int | None:
        return left.pop(0) if left else None

    with app.test() as test:
        assert len(test.output("take-out-0").receive_all()) == 20


def test_batch_and_finite_stream_are_sent_one_by_one(make_app: MakeApplication) -> None:
    """A list of messages, an iterator, and, if polled, an async iterator."""
    app = make_app(function__definition="batch;numbers;stream")

    @app.function
    def batch() -> list[Message[int]]:
        return [Message(1), Message(2)]

    @app.function
    def numbers() -> Iterator[int]:
        yield from (1, 2)

    @app.function(polled=True)
    async def stream() -> AsyncIterator[int]:
        yield 1
        yield 2

    with app.test() as test:
        outputs = [test.output(f"{name}-out-0") for name in ("batch", "numbers", "stream")]
        test.advance(seconds=1.5)
        assert [[each.payload for each in output.receive_all(int)] for output in outputs] == [[1, 2, 1, 2]] * 3


def test_stream_supplier_is_called_once(make_app: MakeApplication) -> None:
    """It yields at any time; when it ends, it is not called again."""
    app = make_app()
    calls = 0

    @app.function
    async def stream() -> AsyncIterator[int]:
        nonlocal calls
        calls += 1
        for number in range(3):
            yield number
            await asyncio.sleep(10)

    with app.test() as test:
        output = test.output("stream-out-0")
        test.advance(seconds=100)
        assert [each.payload for each in output.receive_all(int)] == [0, 1, 2]
    assert calls == 1


def test_failed_supplier_is_reported_and_polled_again(make_app: MakeApplication) -> None:
    """On errorChannel; a failed stream is called again."""
    app = make_app(function__definition="value;stream")
    numbers = itertools.count()

    @app.function
    def value() -> int:
        if next(numbers) == 0:
            raise ValueError("nothing yet")
        return 1

    calls: list[None] = []

    @app.function
    async def stream() -> AsyncIterator[int]:
        calls.append(None)
        if len(calls) == 1:
            raise ValueError("no stream yet")
        yield 1

    with app.test() as test:
        outputs = [test.output("value-out-0"), test.output("stream-out-0")]
        test.advance(seconds=1.5)
        assert [output.receive(int).payload for output in outputs] == [1, 1]
        assert sorted(str(error.payload) for error in test.errors) == [
            "function 'stream' failed: ValueError: no stream yet",
            "function 'value' failed: ValueError: nothing yet",
        ]


def test_supplier_is_not_polled_while_its_output_is_unbound(make_app: MakeApplication) -> None:
    """So no result is lost; it follows the binding's start and stop."""
    app = make_app(**{"stream__bindings__take-out-0__producer__auto-startup": "false"})
    left = list(range(10))

    @app.function
    def take() -> int:
        return left.pop(0)

    with app.test() as test:
        output = test.output("take-out-0")
        test.advance(seconds=3)
        assert len(left) == 10
        test.run(app.binding("take-out-0").start())
        test.advance(seconds=2)
        assert [each.payload for each in output.receive_all(int)] == [0, 1]
        test.run(app.binding("take-out-0").stop())
        test.advance(seconds=5)
        assert len(left) == 8


def test_a_stream_waits_while_its_output_is_not_bound(make_app: MakeApplication) -> None:
    """No item is lost, and none is called a failure."""
    app = make_app()

    @app.function
    async def numbers() -> AsyncIterator[int]:
        for number in range(100):
            yield number
            await asyncio.sleep(1)

    with app.test() as test:
        output = test.output("numbers-out-0")
        test.advance(seconds=2.5)
        test.run(app.binding("numbers-out-0").stop())
        test.advance(seconds=10)
        test.run(app.binding("numbers-out-0").start())
        test.advance(seconds=3)
        given = [each.payload for each in output.receive_all(int)]
        assert len(given) > 4
        assert given == list(range(len(given)))
        assert not test.errors


def test_an_endless_poll_ends_when_the_application_stops(make_app: MakeApplication) -> None:
    """With the call that is under way; the stop does not wait for its timeout."""
    app = make_app(stream__poller__max_messages_per_poll="-1")
    calls = 0

    @app.function
    async def endless() -> str:
        nonlocal calls
        calls += 1
        await asyncio.sleep(1)
        return "x"

    with app.test() as test:
        test.advance(seconds=2.5)
        test.run(app.stop())
        assert calls == 3
        assert test.time.loop.time() == pytest.approx(3, abs=0.1)


def test_poll_in_progress_completes_when_the_application_stops(make_app: MakeApplication) -> None:
    """Its result is sent."""
    app = make_app()
    sent: list[tuple[str, bytes]] = []

    @app.function
    async def slow() -> str:
        await asyncio.sleep(5)
        return "x"

    def note(sender: object, *, binding: str, message: Message[bytes]) -> None:
        sent.append((binding, message.payload))

    with message_sent.connected_to(note, sender=app), app.test() as test:
        test.advance(seconds=1)
        test.run(app.stop())
        assert sent == [("slow-out-0", b"x")]
        assert test.time.loop.time() == pytest.approx(5, abs=0.1)


@pytest.mark.parametrize("is_stream", [False, True])
def test_cancelled_error_from_a_supplier_is_a_failure(make_app: MakeApplication, is_stream: bool) -> None:
    """The supplier itself was not cancelled."""
    app = make_app()
    calls = 0

    async def give() -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            dead = asyncio.get_running_loop().create_future()
            dead.cancel()
            await dead
        return calls

    if is_stream:

        @app.function("give")
        async def stream() -> AsyncIterator[int]:
            yield await give()

    else:
        app.function("give")(give)

    with app.test() as test:
        output = test.output("give-out-0")
        test.advance(seconds=2)
        assert output.receive(int).payload == 2
        assert "awaited something that was cancelled" in str(test.errors[0].payload)


def test_supplier_that_ignores_its_cancellation_is_abandoned(
    make_app: MakeApplication, caplog: pytest.LogCaptureFixture
) -> None:
    """After its timeout and ten seconds, so that the application can end."""
    app = make_app(stream__default_binder="inmemory")

    async def main() -> None:
        loop, release = asyncio.get_running_loop(), asyncio.Event()

        @app.function
        async def stubborn() -> int:
            while not release.is_set():
                with suppress(asyncio.CancelledError):
                    await release.wait()
            return 1

        await app.start(watch_loop=False)
        await asyncio.sleep(1)
        began = loop.time()
        await app.stop(5)
        assert loop.time() - began == pytest.approx(15)
        release.set()
        await asyncio.sleep(1)

    with VirtualTime() as time, use_clock(time.clock):
        time.run(main())
    assert "Task 'supplier stubborn' was cancelled and is still running; it is abandoned at " in caplog.text
