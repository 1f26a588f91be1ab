"""What type checkers must see: decorators change nothing, channels and results have their types.

`test_typing.py` checks this file with mypy; pyright checks it in CI.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, assert_type

from streamkit import (
    Acknowledgment,
    Header,
    Message,
    MessageHeaders,
    Processor,
    Source,
    StreamApplication,
    input_channel,
    output_channel,
    send_to,
    stream_listener,
)
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


@app.stream_listener(Processor.input)
@app.send_to(Processor.output)
def copy(message: Message[Order], acknowledgment: Acknowledgment) -> Message[Order]:
    """Messages keep their payload's type."""
    assert_type(message.payload, Order)
    return message


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
    handler: Callable[[Order, MessageHeaders], Awaitable[Receipt]] = charge
    assert_type(await handler(Order(1), headers), Receipt)
    assert_type(app.bound(Source).output, SubscribableChannel)
    assert_type(app.bound(Shop).invoices, SubscribableChannel)
    assert_type(app.bound(Shop), Shop)
    assert_type(await app.bound(Shop).invoices.asend(Message(Order(1))), bool)
    assert_type(await app.bridge.asend("orders", Order(1)), bool)
    assert_type(Message(Order(1)).with_payload("x"), Message[str])
    with app.test() as test:
        assert_type(test.output("receipts").receive(Receipt), Message[Receipt])
        assert_type(test.output("receipts").receive(), Message[bytes])
        assert_type(test.output("receipts").receive_all(Receipt), list[Message[Receipt]])
