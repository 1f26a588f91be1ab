"""Listeners that return an awaitable: a `def` around an `async def`, or an `async def` that lacks an `await`."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from types import coroutine
from typing import Any

import pytest

from streamkit import ErrorMessage, Message, send_to
from streamkit.application import StreamApplication
from streamkit.testing.harness import Harness

Start = Callable[[], Harness]
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def plain_decorator(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `def` around the function, as decorators of applications are often written."""

    @wraps(function)
    def decorated(*arguments: Any, **keywords: Any) -> Any:
        return function(*arguments, **keywords)

    return decorated


def without_await(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an `async def` that calls the function without awaiting it."""

    @wraps(function)
    async def decorated(*arguments: Any, **keywords: Any) -> Any:
        return function(*arguments, **keywords)

    return decorated


def twice_without_await(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an `async def` whose coroutine returns a coroutine that returns the function's."""
    return without_await(without_await(function))


def with_task(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an `async def` that returns a task of the function."""

    @wraps(function)
    async def decorated(*arguments: Any, **keywords: Any) -> Any:
        return asyncio.ensure_future(function(*arguments, **keywords))

    return decorated


def of_generator(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a coroutine in the manner before `async def`."""

    @coroutine
    @wraps(function)
    def decorated(*arguments: Any, **keywords: Any) -> Any:
        return (yield from function(*arguments, **keywords).__await__())

    return decorated


both = pytest.mark.parametrize(
    "decorator", [plain_decorator, without_await, twice_without_await, with_task, of_generator]
)


@both
def test_coroutine_of_a_listener_is_awaited(app: StreamApplication, test: Start, decorator: Decorator) -> None:
    """Before the message counts as consumed, and its result is sent."""
    seen: list[str] = []

    @app.stream_listener("a")
    @send_to("b")
    @decorator
    async def listener(text: str) -> str:
        await asyncio.sleep(0)
        seen.append(text)
        return text.upper()

    harness = test()
    harness.input("a").send("x")
    assert seen == ["x"]
    assert harness.output("b").receive(str).payload == "X"


@both
def test_failure_of_the_coroutine_is_the_listeners(app: StreamApplication, test: Start, decorator: Decorator) -> None:
    """The message becomes a dead letter, and is not lost."""

    @app.stream_listener("a")
    @decorator
    async def listener(text: str) -> None:
        raise ValueError(text)

    harness = test()
    harness.input("a").send("x")
    harness.advance(hours=5)
    assert harness.dead_letters("a").receive().headers["FAILURE_MESSAGE"] == "x"


@both
def test_coroutine_of_a_batch_listener_is_awaited(app: StreamApplication, decorator: Decorator) -> None:
    """As that of a listener of single messages."""
    seen: list[str] = []

    @app.stream_listener("a")
    @decorator
    async def listener(texts: list[str]) -> None:
        await asyncio.sleep(0)
        seen.extend(texts)

    settings = {"spring.cloud.stream.bindings.a.consumer.batch-mode": "true"}
    with app.test(properties=settings) as harness:
        harness.input("a").send("x")
        assert seen == ["x"]


@both
def test_coroutine_of_an_error_listener_is_awaited(app: StreamApplication, test: Start, decorator: Decorator) -> None:
    """Before the failed message counts as consumed."""
    seen: list[object] = []

    @app.stream_listener("a")
    async def listener(text: str) -> None:
        raise ValueError(text)

    @app.error_listener("a.g.errors")
    @decorator
    async def handle(error: ErrorMessage) -> None:
        await asyncio.sleep(0)
        seen.append(error.original_message.payload)

    harness = test()
    harness.input("a").send("x")
    harness.advance(minutes=1)
    assert seen == [b"x"]


@both
def test_coroutine_of_a_settings_error_handler_is_awaited(app: StreamApplication, decorator: Decorator) -> None:
    """As that of an error listener."""
    seen: list[object] = []

    @app.stream_listener("a")
    async def listener(text: str) -> None:
        raise ValueError(text)

    @app.named("handler")
    @decorator
    async def handle(error: ErrorMessage) -> None:
        await asyncio.sleep(0)
        seen.append(error.original_message.payload)

    settings = {"spring.cloud.stream.bindings.a.error-handler-definition": "handler"}
    with app.test(properties=settings) as harness:
        harness.input("a").send("x")
        harness.advance(minutes=1)
    assert seen == [b"x"]


@both
def test_coroutine_of_a_polls_handler_is_awaited(
    make_app: Callable[..., StreamApplication], decorator: Decorator
) -> None:
    """Before the message is accepted."""
    app = make_app()
    source = app.pollable_source("a")
    seen: list[str] = []

    @decorator
    async def handle(message: Message[str]) -> None:
        await asyncio.sleep(0)
        seen.append(message.payload)

    with app.test() as harness:
        harness.input("a").send("x")
        assert harness.run(source.poll(handle, str))
    assert seen == ["x"]


customer: ContextVar[str] = ContextVar("customer", default="nobody")


def for_customer(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `def` that sets a context variable for the function."""

    @wraps(function)
    def decorated(*arguments: Any, **keywords: Any) -> Any:
        customer.set("Ann")
        return function(*arguments, **keywords)

    return decorated


@pytest.mark.parametrize("is_batch", [False, True])
def test_coroutine_has_the_context_variables_that_its_decorator_has_set(
    app: StreamApplication, *, is_batch: bool
) -> None:
    """The decorator runs on a thread, the coroutine on the loop, both in the context of the call."""
    seen: list[str] = []

    @app.stream_listener("a")
    @for_customer
    async def listener(payload: list[str] if is_batch else str) -> None:  # type: ignore[valid-type]
        await asyncio.sleep(0)
        seen.append(customer.get())

    settings = {"spring.cloud.stream.bindings.a.consumer.batch-mode": str(is_batch)}
    with app.test(properties=settings) as harness:
        harness.input("a").send("x")
    assert seen == ["Ann"]
    assert customer.get() == "nobody"


@pytest.mark.parametrize("is_async", [False, True])
def test_message_of_a_listener_with_a_yield_becomes_a_dead_letter(
    app: StreamApplication, test: Start, *, is_async: bool
) -> None:
    """Nothing iterates the generator, so the listener has done nothing."""
    if is_async:

        @app.stream_listener("a")
        async def listener(text: str) -> Any:
            yield text

    else:

        @app.stream_listener("a")
        def listener(text: str) -> Any:
            yield text

    harness = test()
    harness.input("a").send("x")
    harness.advance(hours=5)
    reason = str(harness.dead_letters("a").receive().headers["FAILURE_MESSAGE"])
    assert "listener has a yield, so it returned a generator, which nothing iterates" in reason


@both
def test_coroutine_of_a_supplier_is_awaited(app: StreamApplication, decorator: Decorator) -> None:
    """Its result is sent."""

    @app.function
    @decorator
    async def tick() -> str:
        await asyncio.sleep(0)
        return "tock"

    with app.test(properties={"spring.cloud.function.definition": "tick"}) as harness:
        harness.advance(seconds=2)
        assert harness.output("tick-out-0").receive(str).payload == "tock"
