"""A payload is converted once per delivery, whatever the number of attempts."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest

from streamkit import ChannelInterceptor, Message, Reject, Requeue
from streamkit.application import StreamApplication
from streamkit.messaging.message_converter import MessageConverter, Reader, Writer
from streamkit.messaging.mime import MimeType

PREFIX = "spring.cloud.stream.bindings.a"


@dataclass
class Order:
    """The order of a customer."""

    text: str


class CountingConverter(MessageConverter):
    """Converts orders and records what it read."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.failures = 0

    def reader(self, type_: object, mime: MimeType) -> Reader | None:
        """Return what reads orders."""
        return self._read if type_ is Order else None

    def writer(self, type_: type, mime: MimeType) -> Writer | None:
        """Return what writes orders."""
        return (lambda order: order.text.encode()) if type_ is Order else None

    def _read(self, data: bytes) -> Order:
        self.read.append(data.decode())
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the registry of schemas is away")
        return Order(data.decode())


@pytest.fixture
def converter() -> CountingConverter:
    """The custom converter."""
    return CountingConverter()


@pytest.fixture
def make(converter: CountingConverter) -> Callable[..., StreamApplication]:
    """Return a factory of applications with the converter and settings of binding `a`."""

    def make(**consumer: object) -> StreamApplication:
        return StreamApplication(
            converters=[converter],
            config_location="optional:/none",
            properties={
                f"{PREFIX}.destination": "a-topic",
                f"{PREFIX}.group": "g",
                **{f"{PREFIX}.consumer.{name}": str(value) for name, value in consumer.items()},
            },
        )

    return make


def test_attempts_of_a_delivery_share_one_object(
    make: Callable[..., StreamApplication], converter: CountingConverter
) -> None:
    """Two listeners convert once each; a redelivery converts anew and sees no changes by earlier attempts."""
    app = make()
    seen: list[tuple[str, object]] = []

    @app.stream_listener("a")
    async def first(order: Order) -> None:
        pass

    @app.stream_listener("a")
    async def second(message: Message[Order]) -> None:
        seen.append((message.payload.text, message.headers["deliveryAttempt"]))
        message.payload.text += "!"
        if len(seen) < 4:
            raise ValueError

    with app.test() as test:
        test.input("a").send(Order("tea"))
        test.advance(hours=1)
    assert seen == [("tea", 1), ("tea!", 2), ("tea!!", 3), ("tea", 4)]
    assert converter.read == ["tea"] * 4


def test_batch_is_converted_once(make: Callable[..., StreamApplication], converter: CountingConverter) -> None:
    """Each message once, although the batch is delivered three times."""
    app = make(**{"batch-mode": "true"})
    sizes: list[int] = []

    @app.stream_listener("a")
    async def listen(orders: list[Order]) -> None:
        sizes.append(len(orders))
        if len(sizes) < 3:
            raise ValueError

    async def send() -> None:
        for text in ("tea", "rum"):
            await test.app.bridge.asend("a-topic", Message(Order(text), {"scst_partition": 0}))
        await test.app.binding("a").start()

    with app.test() as test:
        test.run(test.app.binding("a").stop())
        test.run(send())
        test.advance(minutes=1)
    assert sizes == [2, 2, 2]
    assert converter.read == ["tea", "rum"]


def test_polled_message_is_converted_once(make: Callable[..., StreamApplication], converter: CountingConverter) -> None:
    """For three calls of its handler."""
    app = make()
    source = app.pollable_source("a")
    calls: list[str] = []

    async def handle(message: Message[Order]) -> None:
        calls.append(message.payload.text)
        if len(calls) < 3:
            raise ValueError

    with app.test() as test:
        test.input("a").send(Order("tea"))
        assert test.run(source.poll(handle, Order))
    assert calls == ["tea"] * 3
    assert converter.read == ["tea"]


def test_embedded_headers_cause_no_second_conversion(
    make: Callable[..., StreamApplication], converter: CountingConverter
) -> None:
    """Each attempt has its own message, of the same delivery."""
    app = make(**{"header-mode": "embeddedHeaders"})
    calls: list[object] = []

    @app.stream_listener("a")
    async def listen(message: Message[Order]) -> None:
        calls.append(message.headers["colour"])
        if len(calls) < 3:
            raise ValueError

    with app.test(properties={"spring.cloud.stream.bindings.a-topic.producer.header-mode": "embeddedHeaders"}) as test:
        test.run(test.app.bridge.asend("a-topic", Message(Order("tea"), {"colour": "red"})))
        test.advance(minutes=1)
    assert calls == ["red"] * 3
    assert converter.read == ["tea"]


def test_failed_conversion_is_retried(make: Callable[..., StreamApplication], converter: CountingConverter) -> None:
    """If the settings make conversion errors retryable."""
    app = make(**{"retryable-exceptions.streamkit.errors.MessageConversionError": "true"})
    converter.failures = 2
    seen: list[Order] = []

    @app.stream_listener("a")
    async def listen(order: Order) -> None:
        seen.append(order)

    with app.test() as test:
        test.input("a").send(Order("tea"))
        test.advance(minutes=1)
    assert seen == [Order("tea")]
    assert converter.read == ["tea"] * 3


class Renaming(ChannelInterceptor):
    """An interceptor that gives each attempt another payload."""

    def pre_send(self, message: Message[object], channel: object) -> Message[object]:
        """Return the new message."""
        return message.with_payload(f"tea {message.headers['deliveryAttempt']}".encode())


def test_message_derived_by_an_interceptor_is_converted(
    make: Callable[..., StreamApplication], converter: CountingConverter
) -> None:
    """Its payload is converted separately."""
    app = make()
    seen: list[str] = []

    @app.stream_listener("a")
    async def listen(order: Order) -> None:
        seen.append(order.text)
        if len(seen) < 2:
            raise ValueError

    app.channel("a").add_interceptor(Renaming())
    with app.test() as test:
        test.input("a").send(Order("coffee"))
        test.advance(minutes=1)
    assert seen == ["tea 1", "tea 2"]


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("raises", [True, False])
def test_settlements_may_be_returned_or_raised(
    make: Callable[..., StreamApplication], is_async: bool, raises: bool
) -> None:
    """By `async def` and `def` listeners; later listeners are not called, and no attempt follows."""
    app = make()
    seen: list[str] = []

    def decide(order: Order) -> Requeue | Reject | None:
        seen.append(order.text)
        decision = {1: Requeue(after=timedelta(seconds=5)), 2: Reject("not for us")}[len(seen)]
        if raises:
            raise decision
        return decision

    async def decide_on_the_loop(order: Order) -> Requeue | Reject | None:
        return decide(order)

    app.stream_listener("a")(decide_on_the_loop if is_async else decide)

    @app.stream_listener("a")
    async def never(order: Order) -> None:
        seen.append("never")

    with app.test() as test:
        test.input("a").send(Order("tea"))
        test.advance(seconds=4)
        assert seen == ["tea"]
        test.advance(minutes=1)
        (letter,) = test.dead_letters("a").receive_all()
    assert seen == ["tea", "tea"]
    assert letter.headers["FAILURE_MESSAGE"] == "not for us"
