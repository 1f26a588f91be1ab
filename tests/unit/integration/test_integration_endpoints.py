"""Message endpoints between channels."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

import pytest

from streamkit.application import StreamApplication
from streamkit.errors import ExpressionError, MessageDeliveryError, MessageHandlingError
from streamkit.integration import (
    Aggregator,
    Bridge,
    MessageFilter,
    MessagingGateway,
    Poller,
    Router,
    Splitter,
    Transformer,
    reply_channel,
)
from streamkit.messaging import DirectChannel, Message
from streamkit.testing.virtual_time import VirtualTime


class Kept(DirectChannel):
    """A channel that records messages."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.messages: list[Message[object]] = []
        self.subscribe(self.messages.append)

    @property
    def payloads(self) -> list[object]:
        """Return the sent payloads."""
        return [message.payload for message in self.messages]


@pytest.fixture
def out() -> Kept:
    """The channel of results."""
    return Kept("out")


@pytest.fixture
def other() -> Kept:
    """The channel of other messages."""
    return Kept("other")


@pytest.fixture
def time() -> Iterator[VirtualTime]:
    """A loop in virtual time."""
    with VirtualTime() as made:
        yield made


def send(handler: object, *messages: Message[object]) -> None:
    """Send messages to a channel with one subscriber."""
    channel = DirectChannel("in")
    channel.subscribe(handler)  # type: ignore[arg-type]

    async def main() -> None:
        for message in messages:
            await channel.asend(message)

    asyncio.run(main())


def test_bridge_forwards_messages(out: Kept) -> None:
    """Unchanged, with the same id."""
    message = Message("x", {"a": 1})
    send(Bridge(out), message)
    assert out.messages == [message]
    assert out.messages[0].headers.id == message.headers.id


async def is_large(message: Message[object]) -> bool:
    """Decide asynchronously."""
    return isinstance(message.payload, int) and message.payload > 10


@pytest.mark.parametrize("accepts", [is_large, lambda m: m.payload > 10, "payload > 10"])
def test_filter_forwards_matching_messages(out: Kept, other: Kept, accepts: Callable[..., bool] | str) -> None:
    """By a function, also `async def`, or an expression; the others are discarded."""
    send(MessageFilter(accepts, out, discards=other), Message(5), Message(50))
    assert (out.payloads, other.payloads) == ([50], [5])
    send(MessageFilter(accepts, out), Message(5))
    assert out.payloads == [50]


def lacks_await(function: Callable[[Message[object]], object]) -> Callable[[Message[object]], object]:
    """Return an `async def` whose coroutine returns that of an `async def`, as stacked decorators do."""

    async def inner(message: Message[object]) -> object:
        return function(message)

    async def outer(message: Message[object]) -> object:
        return inner(message)

    return outer


def test_decisions_are_awaited_until_they_are_not_awaitable(out: Kept) -> None:
    """A coroutine that nobody awaits counts as true, is no name of a route, and cannot be sent."""
    send(MessageFilter(lacks_await(lambda m: m.payload == 1), out), Message(1), Message(2))  # type: ignore[arg-type]
    send(Router(lacks_await(lambda m: m.payload), {"shop": out}), Message("shop"))  # type: ignore[arg-type]
    send(Transformer(lacks_await(lambda m: -1), out), Message(4))
    send(Splitter(lacks_await(lambda m: [5, 6]), out), Message(7))  # type: ignore[arg-type]
    assert out.payloads == [1, "shop", -1, 5, 6]


def has_yield(message: Message[object]) -> Iterator[object]:
    """Decide nothing, because nothing iterates the generator."""
    yield message.payload


def test_generator_is_no_decision(out: Kept) -> None:
    """It would count as true; only a splitter iterates one."""
    for endpoint in (MessageFilter(has_yield, out), Router(has_yield, {}, default=out), Transformer(has_yield, out)):  # type: ignore[arg-type]
        with pytest.raises(MessageHandlingError, match="has_yield has a yield"):
            send(endpoint, Message(1))
    send(Splitter(has_yield, out), Message(1))
    assert out.payloads == [1]


def test_filter_expression_is_checked_at_creation(out: Kept) -> None:
    """Not at the first message."""
    with pytest.raises(ExpressionError):
        MessageFilter("payload >", out)


@pytest.mark.parametrize("route", [lambda m: m.headers.get("to"), "headers['to']"])
def test_router_sends_to_the_selected_channel(out: Kept, other: Kept, route: Callable[..., str | None] | str) -> None:
    """Or to the default channel."""
    router = Router(route, {"shop": out}, default=other)
    send(router, Message(1, {"to": "shop"}), Message(2, {"to": "moon"}), Message(3))
    assert (out.payloads, other.payloads) == ([1], [2, 3])


def test_unroutable_message_without_a_default_channel_is_an_error(out: Kept) -> None:
    """It names the known channels."""
    with pytest.raises(MessageDeliveryError, match="no channel for 'moon', and no default; known: shop"):
        send(Router("headers['to']", {"shop": out}), Message(2, {"to": "moon"}))


def test_transformer_sends_its_result(out: Kept) -> None:
    """With the same headers, unless it returns a message; None is not sent."""
    made: dict[object, object] = {1: "one", 2: Message("two", {"own": True}), 3: None}
    send(Transformer(lambda m: made[m.payload], out), *(Message(n, {"a": n}) for n in (1, 2, 3)))
    assert out.messages == [Message("one", {"a": 1}), Message("two", {"own": True})]


def test_split_message_is_aggregated(out: Kept) -> None:
    """In the order of the parts, however they arrive, with the headers of the whole."""
    parts = Kept("parts")
    send(Splitter(lambda m: str(m.payload).split(), parts), Message("a b c", {"from": "me"}), Message("x"))
    numbers = [(m.headers["sequenceNumber"], m.headers["sequenceSize"]) for m in parts.messages]
    assert numbers == [(1, 3), (2, 3), (3, 3), (1, 1)]
    aggregator = Aggregator(out)
    send(aggregator, *reversed(parts.messages))
    assert out.messages == [Message(["x"]), Message(["a", "b", "c"], {"from": "me"})]
    assert len(aggregator) == 0


def test_aggregator_strategies_can_be_replaced(out: Kept) -> None:
    """Correlation, release and result."""
    aggregator = Aggregator(
        out,
        correlate=lambda m: m.headers["customer"],
        release=lambda group: len(group) == 2,
        combine=lambda group: sum(int(str(m.payload)) for m in group),
    )
    send(aggregator, *(Message(n, {"customer": name}) for n, name in enumerate("abab")))
    assert out.payloads == [0 + 2, 1 + 3]


def test_incomplete_group_expires(time: VirtualTime, out: Kept, other: Kept) -> None:
    """Each new message extends its time."""
    aggregator = Aggregator(out, timeout=timedelta(hours=1), expired=other)
    part = {"correlationId": 1, "sequenceSize": 3}
    time.run(aggregator.handle_message(Message("a", part)))
    time.advance(3000)
    time.run(aggregator.handle_message(Message("b", part)))
    time.advance(3000)
    assert len(aggregator) == 1
    time.advance(1000)
    assert (len(aggregator), other.payloads, out.payloads) == (0, ["a", "b"], [])


def test_group_whose_result_cannot_be_sent_is_kept(out: Kept) -> None:
    """Except the failed message, which is redelivered and completes it."""
    failures = iter([ConnectionError("away"), None])

    def fail_once(message: Message[object]) -> None:
        if (error := next(failures)) is not None:
            raise error
        out.messages.append(message)

    way = DirectChannel("way")
    way.subscribe(fail_once)
    aggregator = Aggregator(way, timeout=timedelta(hours=1))
    part = {"correlationId": 1, "sequenceSize": 2}

    async def main() -> None:
        await aggregator.handle_message(Message("a", {**part, "sequenceNumber": 1}))
        last = {**part, "sequenceNumber": 2}
        with pytest.raises(MessageHandlingError, match="away"):
            await aggregator.handle_message(Message("b", last))
        assert len(aggregator) == 1
        await aggregator.handle_message(Message("b", last))

    asyncio.run(main())
    assert (len(aggregator), out.payloads) == (0, [["a", "b"]])


def test_what_comes_while_a_result_is_not_sent_joins_its_group(time: VirtualTime, out: Kept, other: Kept) -> None:
    """The group goes on with all of them, and waits once for further messages."""

    async def fail_later(message: Message[object]) -> None:
        await asyncio.sleep(5)
        raise ConnectionError("away")

    way = DirectChannel("way")
    way.subscribe(fail_later)
    part = {"correlationId": 1, "sequenceSize": 2}
    aggregator = Aggregator(way, timeout=timedelta(seconds=60), expired=other)

    async def main() -> None:
        await aggregator.handle_message(Message("a", part))
        failing = asyncio.create_task(aggregator.handle_message(Message("b", part)))
        await asyncio.sleep(1)
        await aggregator.handle_message(Message("c", part))
        with pytest.raises(MessageHandlingError, match="away"):
            await failing
        assert len(aggregator) == 1
        await asyncio.sleep(58)
        assert other.payloads == []
        await asyncio.sleep(10)

    time.run(main())
    assert (len(aggregator), other.payloads) == (0, ["a", "c"])


def test_message_that_failed_to_be_added_is_not_in_its_group(out: Kept) -> None:
    """Retried, it counts once."""
    moods = iter([False, ValueError("bad mood"), True])

    def release(group: Sequence[Message[object]]) -> bool:
        mood = next(moods)
        if isinstance(mood, Exception):
            raise mood
        return mood

    aggregator = Aggregator(out, correlate=lambda _: 1, release=release)

    async def main() -> None:
        await aggregator.handle_message(Message("a"))
        with pytest.raises(ValueError, match="bad mood"):
            await aggregator.handle_message(Message("b"))
        await aggregator.handle_message(Message("b"))

    asyncio.run(main())
    assert out.payloads == [["a", "b"]]


def test_gateway_returns_the_reply(time: VirtualTime) -> None:
    """It arrives on the channel in the request's header; without a reply the call times out."""
    requests = DirectChannel("requests")

    async def answer(message: Message[object]) -> None:
        channel = reply_channel(message)
        if channel is not None and message.payload != "silence":
            await channel.asend(Message(f"{message.payload}, {message.headers['name']}"))

    requests.subscribe(answer)
    gateway = MessagingGateway(requests, timeout=60)
    assert time.run(gateway.ask("hello", {"name": "Ann"})) == "hello, Ann"
    with pytest.raises(MessageDeliveryError, match="within 60 s"):
        time.run(gateway.ask("silence"))


def test_poller_polls_repeatedly(time: VirtualTime, out: Kept, caplog: pytest.LogCaptureFixture) -> None:
    """Up to so many messages per poll; after a failure, which is logged, it continues."""
    given = iter([1, 2, 3, None, ValueError("away"), 4])

    def source() -> object:
        value = next(given, None)
        if isinstance(value, Exception):
            raise value
        return value

    async def main() -> None:
        async with Poller(source, out, timedelta(seconds=10), at_most=2):
            await asyncio.sleep(5)
            assert out.payloads == [1, 2]
            await asyncio.sleep(10)
            assert out.payloads == [1, 2, 3]
            await asyncio.sleep(60)
        assert out.payloads == [1, 2, 3, 4]

    time.run(main())
    assert "away" in caplog.text


def test_cancelled_error_from_a_source_is_a_failure(time: VirtualTime, out: Kept) -> None:
    """The poller itself was not cancelled."""
    calls = 0

    async def source() -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            dead = asyncio.get_running_loop().create_future()
            dead.cancel()
            await dead
        return calls

    async def main() -> None:
        async with Poller(source, out, timedelta(seconds=10)):
            await asyncio.sleep(15)

    time.run(main())
    assert out.payloads == [2]


def test_endpoints_connect_an_applications_channels() -> None:
    """An input's messages pass a splitter to an output."""
    app = StreamApplication(
        config_location="optional:/none",
        properties={
            "spring.cloud.stream.input-bindings": "lines",
            "spring.cloud.stream.output-bindings": "words",
            "spring.cloud.stream.bindings.lines.group": "g",
        },
    )
    app.channel("lines").subscribe(Splitter(lambda m: bytes(m.payload).split(), app.channel("words")))  # type: ignore[arg-type]
    with app.test() as test:
        test.input("lines").send("to be or not")
        words = test.output("words").receive_all(str)
        assert [word.payload for word in words] == ["to", "be", "or", "not"]
        assert [word.headers["sequenceNumber"] for word in words] == [1, 2, 3, 4]
