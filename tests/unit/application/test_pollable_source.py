"""Polled consumers: the application asks for messages."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from streamkit import Message
from streamkit.application import StreamApplication
from streamkit.errors import ApplicationError, BinderError, ConfigurationError, MessageConversionError
from streamkit.listeners.pollable_source import no_auto_ack

MakeApplication = Callable[..., StreamApplication]


@dataclass
class Order:
    """What is polled for."""

    number: int


class Taken:
    """A handler that notes what it is given."""

    def __init__(self) -> None:
        self.payloads: list[Any] = []

    async def __call__(self, message: Message[Any]) -> None:
        self.payloads.append(message.payload)


def test_a_setting_or_the_code_declares_it(make_app: MakeApplication) -> None:
    """`pollable-source=orders` is binding `orders-in-0`; asked for in code, the binding is called as it is."""
    app = make_app(pollable_source="orders;other", **{"bindings__orders-in-0__destination": "a-topic"})
    by_setting, by_code = app.pollable_source("orders"), app.pollable_source("a")
    taken = Taken()
    with app.test() as test:
        assert sorted(test.app.bindings) == ["a", "orders-in-0", "other-in-0"]
        assert app.binding("orders-in-0").destinations == ("a-topic",)
        test.input("orders-in-0").send(Order(1))
        test.input("a").send(Order(2))
        assert test.run(by_setting.poll(taken, Order))
        assert test.run(by_code.poll(taken, Order))
        assert not test.run(by_code.poll(taken, Order))
        assert test.run(app.pollable_source("other-in-0").poll(taken)) is False
    assert taken.payloads == [Order(1), Order(2)]


@pytest.mark.parametrize("group", ["g", ""])
def test_strict_mode_fails_on_what_was_not_polled(make_app: MakeApplication, group: str) -> None:
    """With and without a group; and on what was polled and not settled."""
    app = make_app(bindings__a__group=group)
    source = app.pollable_source("a")

    async def keep(message: Message[bytes]) -> None:
        no_auto_ack(message)

    with pytest.raises(BinderError, match="2 at 'a' waiting for"), app.test(strict=True) as test:  # noqa: PT012
        for number in range(2):
            test.input("a").send(Order(number))
        assert test.run(source.poll(keep))


def test_without_a_type_it_gives_bytes_and_a_def_runs_on_a_thread(app: StreamApplication) -> None:
    """The loop turns meanwhile."""
    source = app.pollable_source("a")
    seen: list[tuple[bytes, bool]] = []

    def handle(message: Message[bytes]) -> None:
        seen.append((message.payload, threading.current_thread() is threading.main_thread()))

    with app.test() as test:
        test.input("a").send("x")
        assert test.run(source.poll(handle))
    assert seen == [(b"x", False)]


def test_destinations_take_turns(make_app: MakeApplication) -> None:
    """Of a binding with several each is polled; on binders that take them together the binder mixes them."""
    app = make_app(bindings__a__destination="one,two", inmemory__binder__stands_in_for="rocketmq")
    source, taken = app.pollable_source("a"), Taken()
    with app.test() as test:
        for topic in ("one", "one", "two"):
            test.run(app.bridge.asend(topic, topic))
        for _ in range(3):
            assert test.run(source.poll(taken, str))
    assert taken.payloads == ["one", "two", "one"]


def test_what_cannot_be_read_is_a_dead_letter(app: StreamApplication) -> None:
    """The poll had a message, and the error channel hears of it; no handler is called."""
    source, taken = app.pollable_source("a"), Taken()
    with app.test() as test:
        test.input("a").send("no order")
        assert test.run(source.poll(taken, Order))
        assert isinstance(test.errors[0].payload, MessageConversionError)
        assert test.dead_letters("a").receive().payload == b"no order"
    assert not taken.payloads


def test_a_type_nobody_reads_is_the_caller_s_error(app: StreamApplication) -> None:
    """Nothing is taken from the group."""
    source, taken = app.pollable_source("a"), Taken()
    with app.test() as test:
        test.input("a").send(Order(1))
        with pytest.raises(MessageConversionError, match="complex"):
            test.run(source.poll(taken, complex))
        assert test.run(source.poll(taken, Order))


def test_what_a_handler_settled_before_it_failed_stays_settled(app: StreamApplication) -> None:
    """There is no second attempt; the failure is logged."""
    source, calls = app.pollable_source("a"), []

    async def reject_and_fail(message: Message[bytes]) -> None:
        calls.append(message.payload)
        no_auto_ack(message).reject("no")
        raise ValueError

    with app.test() as test:
        test.input("a").send("x")
        assert test.run(source.poll(reject_and_fail))
        assert test.dead_letters("a").receive().payload == b"x"
    assert calls == [b"x"]


def test_one_that_is_never_settled_comes_again(make_app: MakeApplication) -> None:
    """After consume-timeout; the acknowledgment decides nothing any more."""
    app = make_app(rocketmq__bindings__a__consumer__push__consume_timeout="1m")
    source = app.pollable_source("a")
    acknowledgments = []

    async def hold(message: Message[bytes]) -> None:
        acknowledgments.append(no_auto_ack(message))

    taken = Taken()
    with app.test() as test:
        test.input("a").send("x")
        assert test.run(source.poll(hold))
        assert not test.run(source.poll(taken))
        test.advance(minutes=2)
        assert not acknowledgments[0].accept()
        assert test.run(source.poll(taken))
    assert taken.payloads == [b"x"]


def test_an_acknowledgment_may_give_it_back(app: StreamApplication) -> None:
    """As Spring's REQUEUE, during the call or later."""
    source = app.pollable_source("a")

    async def requeue(message: Message[bytes]) -> None:
        no_auto_ack(message).requeue(timedelta(seconds=1))

    taken = Taken()
    with app.test() as test:
        test.input("a").send("x")
        assert test.run(source.poll(requeue))
        test.advance(seconds=1.1)
        assert test.run(source.poll(taken))
    assert taken.payloads == [b"x"]


def test_a_poll_that_is_cancelled_gives_its_message_back(app: StreamApplication) -> None:
    """Nothing is lost with a task, and whoever settles it by hand is told that he decided nothing."""
    source, taken = app.pollable_source("a"), Taken()

    acknowledgments = []

    async def slow(message: Message[bytes]) -> None:
        acknowledgments.append(no_auto_ack(message))
        await asyncio.sleep(100)

    async def cancelled() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await source.poll(slow)

    with app.test() as test:
        test.input("a").send("x")
        test.run(cancelled())
        assert not acknowledgments[0].accept()
        test.advance(seconds=11)
        assert test.run(source.poll(taken))


def test_a_poll_that_is_cancelled_keeps_to_what_was_settled_by_hand(app: StreamApplication) -> None:
    """Who settled was told that he decided."""
    source, taken, decided = app.pollable_source("a"), Taken(), []

    async def accept_and_dawdle(message: Message[bytes]) -> None:
        decided.append(no_auto_ack(message).accept())
        await asyncio.sleep(100)

    async def cancelled() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await source.poll(accept_and_dawdle)

    with app.test() as test:
        test.input("a").send("x")
        test.run(cancelled())
        test.advance(seconds=11)
        assert not test.run(source.poll(taken))
    assert decided == [True]


def test_a_stopped_binding_gives_nothing_and_keeps_its_place(app: StreamApplication) -> None:
    """Paused, stopped, started again: also what was not settled is there, and can only be settled anew."""
    source, taken = app.pollable_source("a"), Taken()

    acknowledgments = []

    async def hold(message: Message[bytes]) -> None:
        acknowledgments.append(no_auto_ack(message))

    with app.test() as test:
        test.input("a").send("x")
        test.run(app.binding("a").pause())
        assert not test.run(source.poll(taken))
        test.run(app.binding("a").resume())
        assert test.run(source.poll(hold))
        test.run(app.binding("a").stop())
        assert not acknowledgments[0].accept()
        assert not test.run(source.poll(taken))
        test.run(app.binding("a").start())
        assert test.run(source.poll(taken))
    assert taken.payloads == [b"x"]


def test_a_handler_may_stop_its_own_binding(app: StreamApplication) -> None:
    """It is not waited for; its message is done when it returns."""
    source, taken = app.pollable_source("a"), Taken()

    async def stop_here(message: Message[bytes]) -> None:
        began = asyncio.get_running_loop().time()
        await app.binding("a").stop()
        assert asyncio.get_running_loop().time() == began

    with app.test() as test:
        test.input("a").send("x")
        assert test.run(source.poll(stop_here))
        test.run(app.binding("a").start())
        assert not test.run(source.poll(taken))


def test_it_needs_a_running_application(app: StreamApplication) -> None:
    """And a name that is declared."""
    source = app.pollable_source("a")
    with pytest.raises(ApplicationError, match="does not run"):
        asyncio.run(source.poll(Taken()))
    with app.test() as test, pytest.raises(ApplicationError, match="pollable-source=nobody"):
        test.run(app.pollable_source("nobody").poll(Taken()))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"bindings__a__consumer__batch_mode": "true"}, "remove its batch-mode"),
        ({"rocketmq__bindings__a__consumer__orderly": "true"}, "remove its ordered mode"),
    ],
)
def test_what_a_polled_binding_cannot_be(make_app: MakeApplication, settings: dict[str, str], reason: str) -> None:
    """Is told at start."""
    app = make_app(**settings)
    app.pollable_source("a")
    with pytest.raises(ConfigurationError, match=f"binding 'a' is polled.*{reason}"), app.test():
        pass


def test_a_polled_binding_has_no_listener(app: StreamApplication) -> None:
    """Messages go one way or the other."""

    @app.stream_listener("a")
    async def listen(text: str) -> None: ...

    app.pollable_source("a")
    with pytest.raises(ConfigurationError, match="binding 'a' is polled, and has a listener"), app.test():
        pass
