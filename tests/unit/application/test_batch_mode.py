"""Listeners and functions of bindings in batch mode."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import pytest

from streamkit import Acknowledgment, Header, Message, MessageHeaders, Requeue, send_to
from streamkit.application import StreamApplication
from streamkit.errors import ConfigurationError
from streamkit.events import message_failed, message_received
from streamkit.listeners.batch_listener import BATCH_HEADERS
from streamkit.settlement import ACCEPT, Reject, Settlement
from streamkit.testing.harness import Harness

MakeApplication = Callable[..., StreamApplication]

BATCH = {"bindings__a__consumer__batch_mode": "true"}


@dataclass
class Order:
    """The order of a customer."""

    number: int


def fill(test: Harness, binding: str, payloads: list[object], **headers: object) -> None:
    """Send several messages of one partition before the binding starts."""

    async def send() -> None:
        for payload in payloads:
            await test.app.bridge.asend("a-topic", Message(payload, {"scst_partition": 0, **headers}))
        await test.app.binding(binding).start()

    test.run(test.app.binding(binding).stop())
    test.run(send())
    test.settle()


@pytest.fixture
def app(make_app: MakeApplication) -> StreamApplication:
    """Return an application whose binding `a` is in batch mode; `bridge.asend("a-topic", ...)` reaches it."""
    return make_app(**BATCH, bindings__a__destination="a-topic")


def test_batch_listener_takes_payloads_messages_or_one_message(app: StreamApplication) -> None:
    """Payloads, messages, or one message with a list of payloads and the headers of each."""
    taken: list[object] = []

    @app.stream_listener("a")
    async def listen(order: list[Message[Order]], headers: MessageHeaders) -> None:
        taken.append([(one.payload, one.headers["n"]) for one in order])
        taken.append([each["n"] for each in headers[BATCH_HEADERS]])

    with app.test() as test:
        fill(test, "a", [Order(1), Order(2)], n=7)
    assert taken == [[(Order(1), 7), (Order(2), 7)], [7, 7]]


def test_batch_as_one_message_has_a_list_payload(app: StreamApplication) -> None:
    """On a thread too."""
    taken: list[list[Order]] = []

    @app.stream_listener("a")
    def listen(message: Message[list[Order]]) -> None:
        taken.append(message.payload)
        assert len(message.headers[BATCH_HEADERS]) == len(message.payload)

    with app.test() as test:
        fill(test, "a", [Order(1), Order(2)])
    assert taken == [[Order(1), Order(2)]]


def test_items_without_an_annotation_are_bytes(app: StreamApplication) -> None:
    """As for listeners without batches."""
    taken: list[object] = []

    @app.stream_listener("a")
    async def listen(items) -> None:
        taken.extend(items)

    with app.test() as test:
        fill(test, "a", [{"number": 1}, [2]])
    assert taken == [b'{"number":1}', b"[2]"]


def test_batch_result_is_sent(app: StreamApplication) -> None:
    """A list of messages one by one; the headers of the batch are not copied."""

    @app.stream_listener("a")
    @send_to("b")
    async def listen(orders: list[Order]) -> list[Message[int]]:
        return [Message(order.number) for order in orders]

    with app.test() as test:
        fill(test, "a", [Order(1), Order(2)])
        assert [each.payload for each in test.output("b").receive_all(int)] == [1, 2]


def test_function_takes_batches(make_app: MakeApplication) -> None:
    """A single result is one message, without the headers of the batch."""
    app = make_app(**{"bindings__total-in-0__consumer__batch_mode": "true"})

    @app.function
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    with app.test() as test:
        test.input("total-in-0").send(4)
        sent = test.output("total-out-0").receive(int)
    assert sent.payload == 4
    assert BATCH_HEADERS not in sent.headers


@pytest.mark.parametrize("settlements", [[], [ACCEPT]])
def test_too_few_settlements_fail_the_batch(app: StreamApplication, settlements: list[Settlement]) -> None:
    """The attempts continue, and the error says what to return; an empty list is too short too."""
    calls: list[int] = []

    @app.stream_listener("a")
    async def listen(orders: list[Order]) -> list[Settlement]:
        calls.append(len(orders))
        return settlements

    with app.test() as test:
        fill(test, "a", [Order(1), Order(2)])
        test.advance(seconds=5)
        assert calls == [2, 2, 2]
        assert f"the listener settled {len(settlements)} message(s), but received 2" in str(
            test.errors[0].payload.__cause__
        )


def test_invalid_settlement_fails_the_batch(app: StreamApplication) -> None:
    """A missing settlement is not an acceptance."""

    @app.stream_listener("a")
    async def listen(orders: list[Order]) -> list[Settlement | None]:
        return [Reject("wrong") if order.number == 2 else None for order in orders]

    with app.test() as test:
        fill(test, "a", [Order(1), Order(2)])
        test.advance(seconds=5)
        assert "the listener returned None among its settlements" in str(test.errors[0].payload.__cause__)


def test_settlements_are_for_delivered_messages(app: StreamApplication) -> None:
    """None is expected for a message that could not be converted."""

    @app.stream_listener("a")
    async def listen(orders: list[Order]) -> list[Settlement]:
        return [Reject("odd") if order.number % 2 else ACCEPT for order in orders]

    with app.test() as test:
        fill(test, "a", ["x", Order(1), Order(2)])
        letters = test.dead_letters("a").receive_all()
    assert [letter.payload for letter in letters] == [b"x", b'{"number":1}']


def test_requeue_applies_to_the_whole_batch(app: StreamApplication) -> None:
    """Without further attempts; each message is redelivered."""
    calls: list[list[int]] = []

    @app.stream_listener("a")
    async def listen(numbers: list[int]) -> None:
        calls.append(numbers)
        if len(calls) == 1:
            raise Requeue

    with app.test() as test:
        fill(test, "a", [1, 2])
        assert calls == [[1, 2]]
        test.advance(seconds=11)
    assert calls == [[1, 2], [1, 2]]


def test_batch_events_are_per_message(app: StreamApplication) -> None:
    """So the counts equal those of a listener without batches."""
    received: list[object] = []
    failed: list[tuple[object, object]] = []

    def note_received(sender: object, message: Message[bytes], **values: object) -> None:
        received.append(message.payload)

    def note(sender: object, message: Message[bytes], error: Exception, **values: object) -> None:
        failed.append((message.payload, message.headers["deliveryAttempt"]))

    @app.stream_listener("a")
    async def listen(numbers: list[int]) -> None:
        raise ValueError

    with app.test() as test, message_failed.connected_to(note), message_received.connected_to(note_received):
        fill(test, "a", [1, 2])
        test.advance(seconds=1)
    assert received == [b"1", b"2"]
    assert failed == [(b"1", 1), (b"2", 1), (b"1", 2), (b"2", 2)]


def test_batch_timeout_redelivers_each_message(make_app: MakeApplication) -> None:
    """consume-timeout applies to the call."""
    app = make_app(
        **BATCH,
        bindings__a__destination="a-topic",
        rocketmq__bindings__a__consumer__push__consume_timeout="1m",
    )
    calls: list[list[int]] = []

    @app.stream_listener("a")
    async def listen(numbers: list[int]) -> None:
        calls.append(numbers)
        if len(calls) == 1:
            await asyncio.sleep(3600)

    with app.test() as test:
        fill(test, "a", [1, 2])
        test.advance(minutes=2)
    assert calls == [[1, 2], [1, 2]]


def test_acknowledgment_settles_a_batch_later(app: StreamApplication) -> None:
    """Until then none of the messages is settled."""
    held: list[Acknowledgment] = []

    @app.stream_listener("a")
    async def listen(numbers: list[int], acknowledgment: Acknowledgment) -> None:
        held.append(acknowledgment)

    with app.test() as test:
        fill(test, "a", [1, 2])
        assert held[0].reject("no more")
        test.settle()
        assert len(test.dead_letters("a").receive_all()) == 2


def test_embedded_headers_are_extracted_from_each_message(make_app: MakeApplication) -> None:
    """As without batches."""
    app = make_app(
        **BATCH,
        bindings__a__destination="t",
        bindings__a__consumer__header_mode="embeddedHeaders",
        bindings__b__destination="t",
        bindings__b__producer__header_mode="embeddedHeaders",
        output_bindings="b",
    )
    taken: list[object] = []

    @app.stream_listener("a")
    async def listen(batch: list[Message[int]]) -> None:
        taken.extend((one.payload, one.headers["n"]) for one in batch)

    with app.test() as test:
        test.run(app.bridge.asend("b", Message(1, {"n": 5})))
        test.settle()
    assert taken == [(1, 5)]


async def single(order: Order) -> None:
    """Take a single payload."""


async def header(orders: list[Order], number: Annotated[int, Header("n")]) -> None:
    """Take a single header."""


async def unreadable(numbers: list[complex]) -> None:
    """Take a type that no converter reads."""


@pytest.mark.parametrize(
    ("listener", "reason"),
    [
        (single, "its binding is in batch mode: annotate it as list[Order]"),
        (header, "takes one header as 'number', but its binding is in batch mode"),
        (unreadable, "complex"),
    ],
)
def test_unsupported_parameter_is_an_error_at_startup(
    app: StreamApplication, listener: Callable[..., object], reason: str
) -> None:
    """With the listener's place."""
    app.stream_listener("a")(listener)
    with pytest.raises(ConfigurationError) as caught, app.test():
        pass
    assert reason in str(caught.value)
    assert f"({__file__}:" in str(caught.value)


def test_batch_mode_excludes_some_features(make_app: MakeApplication) -> None:
    """Conditions, several listeners, streams, iterators."""
    app = make_app(
        **BATCH,
        bindings__c__consumer__batch_mode="true",
        function__definition="stream;items",
        **{f"bindings__{name}-in-0__consumer__batch_mode": "true" for name in ("stream", "items")},
    )

    async def take(orders: list[Order]) -> None: ...

    app.stream_listener("a", condition="true")(take)
    app.stream_listener("c")(take)
    app.stream_listener("c")(partial(take))

    @app.function
    async def stream(numbers: AsyncIterator[int]) -> None: ...

    @app.function
    def items(numbers: list[int]) -> Iterator[int]:
        yield from numbers

    with pytest.raises(ConfigurationError) as caught, app.test():
        pass
    text = str(caught.value)
    assert "has a condition, but binding 'a' is in batch mode" in text
    assert "binding 'c' is in batch mode, so it has one listener" in text
    assert "takes streams, but its binding 'stream-in-0' is in batch mode" in text
    assert "returns an iterator, but its binding 'items-in-0' is in batch mode" in text
