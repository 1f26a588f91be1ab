"""What type checkers must see: decorators change nothing, channels and results have their types.

`test_typing.py` checks this file with mypy and, where it is installed, with pyright.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, assert_type

from streamkit import (
    Acknowledgment,
    ErrorMessage,
    Header,
    Message,
    MessageHeaders,
    Processor,
    Source,
    StreamApplication,
    function,
    input_channel,
    output_channel,
    send_to,
    stream_listener,
)
from streamkit.binder.attempts import BackOff, RetryPolicy
from streamkit.binder.binder import ConsumerBinding, ConsumerDestination
from streamkit.listeners.pollable_source import no_auto_ack
from streamkit.messaging import SubscribableChannel


@dataclass
class Order:
    """A payload."""

    number: int


@dataclass
class Receipt:
    """A result."""

    number: int


app = StreamApplication()


@app.stream_listener("orders")
@send_to("receipts")
async def charge(order: Order, headers: MessageHeaders) -> Receipt:
    """A coroutine function stays one."""
    return Receipt(order.number)


@stream_listener("orders", condition="payload.number > 1")
def count(order: Order, customer: Annotated[str, Header("customer")] = "") -> None:
    """A function stays one, defaults included."""


@app.function
def shown(order: Order) -> str:
    """A function that settings bind stays one."""
    return str(order.number)


@function("ticks", polled=True)
async def ticks() -> AsyncIterator[int]:
    """A supplier too."""
    yield 1


async def poll() -> None:
    """A handler takes messages of the type that is asked for."""

    async def ship(message: Message[Order]) -> None:
        assert_type(message.payload, Order)
        assert_type(no_auto_ack(message), Acknowledgment)

    assert_type(await app.pollable_source("orders").poll(ship, Order), bool)
    assert_type(shown(Order(1)), str)
    assert_type(ticks(), AsyncIterator[int])


@app.stream_listener(Processor.input)
@app.send_to(Processor.output)
def copy(message: Message[Order], acknowledgment: Acknowledgment) -> Message[Order]:
    """Messages keep their payload's type."""
    assert_type(message.payload, Order)
    return message


@app.named("order-errors")
@app.error_listener("orders.shop.errors")
async def explain(error: ErrorMessage) -> str:
    """What handles errors stays callable, too."""
    return str(error.payload)


@app.customize_consumer
def limit(consumer: ConsumerBinding, destination: ConsumerDestination) -> None:
    """A customizer stays what it is."""


@app.named("by-customer")
class Customers:
    """So does a class."""

    def extract_key(self, message: Message[object]) -> object:
        """A strategy."""
        return message.headers["customer"]


class Shop:
    """An interface."""

    orders = input_channel()
    invoices = output_channel("invoices")


class Listeners:
    """Methods stay methods."""

    @stream_listener("orders")
    async def charge(self, order: Order) -> int:
        """A method."""
        return order.number


async def typed() -> None:
    """Each line is what a checker infers."""
    headers = MessageHeaders()
    assert_type(await charge(Order(1), headers), Receipt)
    assert_type(await Listeners().charge(Order(1)), int)
    count(Order(1))
    count(Order(1), "me")
    assert_type(await explain(ErrorMessage(ValueError())), str)
    assert_type(Customers(), Customers)
    limiter: Callable[[ConsumerBinding, ConsumerDestination], None] = limit
    assert callable(limiter)
    app.use_retry_policy(RetryPolicy(5, BackOff(0.5), {ConnectionError: True}, default_retryable=False))
    handler: Callable[[Order, MessageHeaders], Awaitable[Receipt]] = charge
    assert_type(await handler(Order(1), headers), Receipt)
    assert_type(app.bound(Source).output, SubscribableChannel)
    assert_type(app.bound(Shop).invoices, SubscribableChannel)
    assert_type(app.bound(Shop), Shop)
    assert_type(await app.bound(Shop).invoices.asend(Message(Order(1))), bool)
    assert_type(await app.bridge.asend("orders", Order(1)), bool)
    assert_type(Message(Order(1)).with_payload("x"), Message[str])
    with app.test(strict=True, provide={"prices": 7}) as test:
        test.input(Processor.input).send(Order(1), {"customer": "Ann"})
        assert_type(test.output("receipts").receive(Receipt), Message[Receipt])
        assert_type(test.output("receipts").receive(), Message[bytes])
        assert_type(test.output("receipts").receive_all(Receipt), list[Message[Receipt]])
