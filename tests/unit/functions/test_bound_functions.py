"""Functions that settings bind by name."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType
from typing import Annotated

import pytest

from binders.inmemory.properties import InMemoryConsumerProperties
from streamkit import Acknowledgment, Header, Message, function
from streamkit.application import StreamApplication
from streamkit.errors import MessageConversionError

MakeApplication = Callable[..., StreamApplication]


@dataclass
class Order:
    """The order of a customer."""

    number: int


@dataclass
class Receipt:
    """The receipt for an order."""

    number: int


def upper(text: str) -> str:
    """Return the text in upper case."""
    return text.upper()


def test_only_function_is_bound_without_a_definition(make_app: MakeApplication) -> None:
    """From `<name>-in-0` to `<name>-out-0`, converted by its annotations."""
    app = make_app()

    @app.function
    async def charge(order: Order) -> Receipt:
        return Receipt(order.number)

    with app.test() as test:
        test.input("charge-in-0").send(Order(7))
        assert test.output("charge-out-0").receive(Receipt).payload == Receipt(7)


def test_decorated_function_is_unchanged() -> None:
    """It can be called and tested as before."""
    assert function(upper) is upper
    assert function("loud", polled=False)(upper)("a") == "A"


def test_functions_of_a_module_and_of_an_object_are_found(make_app: MakeApplication) -> None:
    """A method is bound to its object."""
    module = ModuleType("shop")

    def shout(text: str) -> str:
        return text + "!"

    shout.__module__ = "shop"
    vars(module)["shout"] = function("shout")(shout)

    class Counter:
        total = 0

        @function("count")
        async def count(self, text: str) -> int:
            self.total += len(text)
            return self.total

    app = make_app(module, Counter(), function__definition="shout;count")
    with app.test() as test:
        test.input("shout-in-0").send("a")
        test.input("count-in-0").send("abc")
        test.input("count-in-0").send("d")
        assert test.output("shout-out-0").receive(str).payload == "a!"
        assert [each.payload for each in test.output("count-out-0").receive_all(int)] == [3, 4]


def test_bindings_can_be_renamed(make_app: MakeApplication) -> None:
    """`function.bindings` renames; settings apply under the new name."""
    app = make_app(
        **{
            "stream__function__bindings__upper-in-0": "orders",
            "stream__function__bindings__upper-out-0": "receipts",
            "stream__bindings__orders__destination": "order-topic",
            "stream__bindings__orders__group": "billing",
        }
    )
    app.function(upper)
    with app.test() as test:
        assert app.binding("orders").destinations == ("order-topic",)
        test.input("orders").send("a")
        assert test.output("receipts").receive(str).payload == "A"


def test_older_name_of_the_definition_is_read(make_app: MakeApplication) -> None:
    """`spring.cloud.stream.function.definition`, if the newer one is not set."""
    app = make_app(stream__function__definition="upper")
    app.function(upper)
    app.function("other")(upper)
    with app.test() as test:
        assert sorted(test.app.bindings) == ["upper-in-0", "upper-out-0"]


def test_consumer_has_no_output(make_app: MakeApplication) -> None:
    """`-> None` declares it; a `def` runs on a thread."""
    app = make_app()
    seen: list[tuple[int, bool]] = []

    @app.function
    def note(order: Order) -> None:
        seen.append((order.number, threading.current_thread() is threading.main_thread()))

    with app.test() as test:
        test.input("note-in-0").send(Order(1))
        assert list(test.app.bindings) == ["note-in-0"]
    assert seen == [(1, False)]


def test_arguments_and_headers_are_those_of_a_listener(make_app: MakeApplication) -> None:
    """Headers as arguments, headers copied to the result, a message as a result."""
    app = make_app()

    @app.function
    async def greet(name: str, title: Annotated[str, Header("title")]) -> Message[str]:
        return Message(f"{title} {name}", {"greeted": "yes"})

    with app.test() as test:
        test.input("greet-in-0").send("Ada", {"title": "Countess"})
        greeting = test.output("greet-out-0").receive(str)
    assert (greeting.payload, greeting.headers["greeted"]) == ("Countess Ada", "yes")


def test_each_message_of_a_list_is_sent_separately(make_app: MakeApplication) -> None:
    """And each item of an iterator; any other list is one payload."""
    app = make_app(function__definition="messages;items;stream;numbers")

    @app.function
    async def messages(count: int) -> list[Message[int]]:
        return [Message(number) for number in range(count)]

    @app.function
    def items(count: int) -> Iterator[int]:
        yield from range(count)

    @app.function
    async def stream(count: int) -> AsyncIterator[int]:
        for number in range(count):
            yield number

    @app.function
    async def numbers(count: int) -> list[int]:
        return list(range(count))

    with app.test() as test:
        for name in ("messages", "items", "stream", "numbers"):
            test.input(f"{name}-in-0").send(2)
        for name in ("messages", "items", "stream"):
            assert [each.payload for each in test.output(f"{name}-out-0").receive_all(int)] == [0, 1]
        assert test.output("numbers-out-0").receive(list[int]).payload == [0, 1]


def test_header_redirects_a_result(make_app: MakeApplication) -> None:
    """`spring.cloud.stream.sendto.destination`; the header itself is not sent."""
    app = make_app()

    @app.function
    async def route(text: str) -> Message[str]:
        return Message(text, {"spring.cloud.stream.sendto.destination": f"to-{text}"})

    with app.test() as test:
        test.input("route-in-0").send("b")
        arrived = test.output("to-b").receive(str)
        assert arrived.payload == "b"
        assert "spring.cloud.stream.sendto.destination" not in arrived.headers
        assert test.output("route-out-0").is_empty


def test_composed_functions_are_one_function(make_app: MakeApplication) -> None:
    """Named after all of them; results are converted to the next parameter, and None ends the chain."""
    app = make_app(function__definition="parse|charge,show")

    @app.function
    def parse(text: str) -> dict[str, int] | None:
        return {"number": int(text)} if text.isdigit() else None

    @app.function
    async def charge(order: Order) -> Receipt:
        return Receipt(order.number + 1)

    @app.function
    async def show(receipt: Receipt) -> str:
        assert type(receipt) is Receipt
        return f"#{receipt.number}"

    with app.test() as test:
        test.input("parsechargeshow-in-0").send("41", {"customer": "c-1"})
        test.input("parsechargeshow-in-0").send("none")
        (shown,) = test.output("parsechargeshow-out-0").receive_all(str)
    assert (shown.payload, shown.headers["customer"]) == ("#42", "c-1")


@pytest.mark.parametrize("name", ["upper|twice-in-0", "[upper|twice-in-0]", "uppertwice-in-0"])
def test_a_composition_has_the_settings_of_its_name_with_or_without_bars(make_app: MakeApplication, name: str) -> None:
    """As Spring Boot, which leaves `|` out of names; also in brackets, and in the settings of a binder type."""
    bindings = f"stream__bindings__{name}" if name[0] != "[" else f"stream__bindings{name}"
    app = make_app(
        **{
            "function__definition": "upper|twice",
            f"{bindings}__destination": "words",
            f"{bindings}__group": "g",
            f"{bindings.replace('stream__', 'stream__inmemory__', 1)}__consumer__batch-size": "7",
        }
    )
    app.function(upper)

    @app.function
    def twice(text: str) -> str:
        return text * 2

    with app.test() as test:
        assert app.binding("uppertwice-in-0").destinations == ("words",)
        extended = app.environment.bind_extended("inmemory", "uppertwice-in-0", "consumer", InMemoryConsumerProperties)
        assert extended.batch_size == 7
        test.input("uppertwice-in-0").send("a")
        assert test.output("uppertwice-out-0").receive(str).payload == "AA"


def test_failure_in_a_composition_fails_its_message(make_app: MakeApplication) -> None:
    """With attempts, error channel and dead letter as for a listener."""
    app = make_app(
        function__definition="upper|check",
        **{"stream__bindings__uppercheck-in-0__group": "g"},
    )
    app.function(upper)
    calls: list[str] = []

    @app.function
    async def check(text: str) -> None:
        calls.append(text)
        raise ValueError(text)

    with app.test() as test:
        test.input("uppercheck-in-0").send("a")
        test.advance(hours=20)
        assert calls == ["A"] * (3 + 16)
        letter = test.dead_letters("uppercheck-in-0").receive(str)
    assert (letter.payload, letter.headers["FAILURE_TYPE"]) == ("a", "builtins.ValueError")


def test_unconvertible_payload_makes_no_call(make_app: MakeApplication) -> None:
    """As for a listener: the error channel is notified at once."""
    app = make_app()
    app.function("charge")(_fail)
    with app.test() as test:
        test.input("charge-in-0").send("no order")
        (error,) = test.errors
    assert isinstance(error.payload, MessageConversionError)


async def _fail(order: Order) -> None:
    raise AssertionError("called")


def test_first_function_may_settle_manually(make_app: MakeApplication) -> None:
    """With an Acknowledgment, as a listener."""
    app = make_app(**{"stream__bindings__hold-in-0__group": "g"})
    calls: list[str] = []

    @app.function
    async def hold(text: str, acknowledgment: Acknowledgment) -> None:
        calls.append(text)
        acknowledgment.requeue(timedelta(seconds=1)) if len(calls) == 1 else acknowledgment.accept()

    with app.test() as test:
        test.input("hold-in-0").send("a")
        test.advance(seconds=1.5)
    assert calls == ["a", "a"]


@pytest.mark.parametrize("name", ["a|b", "a b", "", "a;b"])
def test_name_that_no_definition_can_contain_is_refused(name: str) -> None:
    """By the decorator."""
    with pytest.raises(TypeError, match=r'write @function\("name"\)'):
        function(name)(lambda text: text) if name else function(type("F", (), {"__call__": None})())
