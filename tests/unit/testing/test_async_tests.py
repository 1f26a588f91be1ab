"""Applications under test beside other event loops: in async tests, and in web frameworks' test clients."""

import asyncio
import time as real_time
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamkit import Message, StreamApplication, send_to
from streamkit.clock import current_clock
from streamkit.errors import ApplicationError, ForeignLoopError
from streamkit.integration.gateway import MessagingGateway, reply_channel
from streamkit.testing.virtual_time import DEFAULT_EPOCH_MS, VirtualTimeLoop

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would rather have httpx2
    from starlette.testclient import TestClient

BINDINGS = "spring.cloud.stream.bindings"


@pytest.fixture
def app() -> StreamApplication:
    """Charges orders, which takes ten seconds."""
    app = StreamApplication(
        config_location="optional:/none",
        properties={
            f"{BINDINGS}.orders.group": "shop",
            f"{BINDINGS}.new-orders.destination": "orders",
            "spring.cloud.stream.output-bindings": "new-orders;receipts",
        },
    )

    @app.stream_listener("orders")
    @send_to("receipts")
    async def charge(amount: float) -> str:
        if amount < 0:
            raise ValueError("negative")
        await asyncio.sleep(10)
        return f"paid {amount:g} at {(current_clock().now_ms() - DEFAULT_EPOCH_MS) / 1000:g}"

    return app


@pytest.fixture
def web(app: StreamApplication) -> Starlette:
    """Takes orders by HTTP, in the three ways in which an endpoint may send; its lifespan starts the application."""

    @asynccontextmanager
    async def lifespan(web: Starlette) -> AsyncIterator[None]:
        async with app:
            yield

    async def awaits(request: Request) -> Response:
        await app.bridge.asend("new-orders", 5)
        return Response()

    async def blocks(request: Request) -> Response:
        app.bridge.send("new-orders", 5)
        return Response()

    def threads(request: Request) -> Response:
        app.bridge.send("new-orders", 5)
        return Response()

    async def asks(request: Request) -> Response:
        requests = app.channel("questions")

        async def answer(message: Message[object]) -> None:
            replies = reply_channel(message)
            assert replies is not None
            await replies.asend(Message(f"{message.payload}!"))

        requests.subscribe(answer)
        return Response(str(await MessagingGateway(requests).ask("what")))

    endpoints = [awaits, blocks, threads, asks]
    return Starlette(routes=[Route(f"/{each.__name__}", each) for each in endpoints], lifespan=lifespan)


@pytest.fixture(params=["asyncio.run", "virtual loop"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Coroutine[Any, Any, None]], None]]:
    """Runs an async test as pytest-asyncio and anyio do: on asyncio's loop, or on one that the test asks for."""
    with asyncio.Runner(loop_factory=None if request.param == "asyncio.run" else VirtualTimeLoop) as runner:
        yield runner.run


def test_virtual_hours_pass_in_an_async_test(
    app: StreamApplication, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    """On the test's own loop. Timers that are not due have not run, and timestamps start at the epoch."""

    async def test_it() -> None:
        async with app.test() as test:
            await test.input("orders").asend("5", {"colour": "red"})
            assert await test.output("receipts").ais_empty()
            await test.aadvance(seconds=10)
            received = await test.output("receipts").areceive(str)
            assert (received.payload, received.headers["colour"]) == ("paid 5 at 10", "red")
            await app.bridge.asend("new-orders", -1)
            await asyncio.sleep(12 * 3600)
            assert [letter.payload for letter in await test.dead_letters("orders").areceive_all()] == [b"-1"]

    begun = real_time.monotonic()
    run(test_it())
    assert real_time.monotonic() - begun < 3600


def test_time_begins_when_the_async_test_says(
    app: StreamApplication, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    """Also on a loop whose time is virtual already."""
    start = datetime(2026, 12, 31, 23, 59, tzinfo=UTC)

    async def test_it() -> None:
        async with StreamApplication(config_location="optional:/none").test():
            await asyncio.sleep(3600)
            async with app.test(start=start) as test:
                await test.input("orders").asend("5")
                received = await test.output("receipts").areceive(str, within=10)
                assert received.headers.timestamp == round(start.timestamp() * 1000) + 10_000

    run(test_it())


def test_loop_has_real_time_again_after_the_last_application(app: StreamApplication) -> None:
    """Whichever of the applications ends last."""

    async def test_it() -> None:
        first, second = app.test(), StreamApplication(config_location="optional:/none").test()
        await first.__aenter__()
        await second.__aenter__()
        await first.__aexit__(None, None, None)
        await second.aadvance(hours=1)
        await second.__aexit__(None, None, None)
        loop = asyncio.get_running_loop()
        assert type(loop) is asyncio.SelectorEventLoop
        assert abs(loop.time() - real_time.monotonic()) < 3000
        await asyncio.sleep(0)

    asyncio.run(test_it())


def test_unread_messages_fail_a_strict_async_test(app: StreamApplication) -> None:
    """As they fail a test that is not asynchronous."""

    async def test_it() -> None:
        async with app.test(strict=True):
            await app.bridge.asend("nobody", "x")

    with pytest.raises(Exception, match="nobody"):
        asyncio.run(test_it())


def test_error_of_a_blocking_call_names_the_method_to_await(app: StreamApplication) -> None:
    """They would block the loop."""

    async def test_it() -> None:
        with pytest.raises(ApplicationError, match=r"write `async with app\.test"), app.test():
            pass
        async with app.test() as test:
            with pytest.raises(ApplicationError, match="begin with `a`, such as asend, areceive and aadvance"):
                test.input("orders").send("5")
            with pytest.raises(ApplicationError, match="begin with `a`"):
                test.advance(hours=1)

    asyncio.run(test_it())


def test_loop_without_virtual_time_is_refused(app: StreamApplication) -> None:
    """The error names the loops that can be used."""
    uvloop = pytest.importorskip("uvloop")

    async def test_it() -> None:
        with pytest.raises(ApplicationError, match=r"uvloop.Loop cannot be virtual.*VirtualTimeLoop"):
            async with app.test():
                pass

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test_it())


@pytest.mark.parametrize("path", ["awaits", "blocks", "threads"])
@pytest.mark.parametrize("has_lifespan", [True, False])
def test_requests_of_a_test_client_reach_the_application(
    app: StreamApplication, web: Starlette, path: str, has_lifespan: bool
) -> None:
    """From its own loop or its threads; the application's time stays virtual, though its lifespan starts it."""
    with app.test() as test:
        client = TestClient(web)
        if has_lifespan:
            with client:
                assert client.get(f"/{path}").status_code == 200
        else:
            assert client.get(f"/{path}").status_code == 200
        assert test.output("receipts").is_empty
        test.advance(seconds=10)
        assert test.output("receipts").receive(str).payload == "paid 5 at 10"


def test_test_client_receives_the_answer_of_a_gateway(app: StreamApplication, web: Starlette) -> None:
    """The answer comes from the application's loop."""
    with app.test():
        assert TestClient(web).get("/asks").text == "what!"


def test_httpx_requests_in_an_async_test_reach_the_application(app: StreamApplication, web: Starlette) -> None:
    """Both run on the loop of the test."""

    async def test_it() -> None:
        transport = httpx.ASGITransport(web)
        async with app.test() as test, httpx.AsyncClient(transport=transport, base_url="http://test") as client, app:
            assert (await client.get("/awaits")).status_code == 200
            assert (await test.output("receipts").areceive(str, within=10)).payload == "paid 5 at 10"

    asyncio.run(test_it())


def test_test_client_is_refused_in_an_async_test(app: StreamApplication, web: Starlette) -> None:
    """It blocks the loop on which the application runs."""

    async def test_it() -> None:
        async with app.test():
            with pytest.raises(ForeignLoopError, match=r"httpx\.AsyncClient"):
                TestClient(web).get("/awaits")

    asyncio.run(test_it())


def test_threads_that_wait_for_a_blocked_loop_get_an_error(
    app: StreamApplication, web: Starlette, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else could end such a test."""
    monkeypatch.setattr("streamkit.testing.harness._BLOCKED_AFTER", 0.01)

    async def test_it() -> None:
        async with app.test():
            with pytest.raises(ApplicationError, match=r"has been blocked.*httpx\.AsyncClient"):
                TestClient(web).get("/threads")

    asyncio.run(test_it())


def test_harness_is_refused_after_the_test_client_has_started(app: StreamApplication, web: Starlette) -> None:
    """Otherwise the lifespan has started the application, on real binders."""
    app = StreamApplication(config_location="optional:/none")

    async def test_it() -> None:
        async with app:
            with pytest.raises(ApplicationError, match=r"enter app\.test\(\) before"):
                async with app.test():
                    pass

    asyncio.run(test_it())


def test_run_is_refused_in_a_test(app: StreamApplication) -> None:
    """`app.run()` in tested code would not return."""
    with app.test(), pytest.raises(ApplicationError, match="a test runs the application"):
        app.run()
