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
    """The order of a customer."""

    number: int


class Taken:
    """A handler that records its arguments."""

    def __init__(self) -> None:
        self.payloads: list[Any] = []

    async def __call__(self, message: Message[Any]) -> None:
        self.payloads.append(message.payload)


def test_polled_binding_is_declared_by_a_setting_or_in_code(make_app: MakeApplication) -> None:
    """`pollable-source=orders` makes binding `orders-in-0`; in code, the given name is the binding's."""
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
def test_strict_mode_fails_on_unpolled_messages(make_app: MakeApplication, group: str) -> None:
    """With and without a group; also on polled but unsettled ones."""
    app = make_app(bindings__a__group=group)
    source = app.pollable_source("a")

    async def keep(message: Message[bytes]) -> None:
        no_auto_ack(message)

    with pytest.raises(BinderError, match="2 at 'a' waiting for"), app.test(strict=True) as test:  # noqa: PT012
        for number in range(2):
            test.input("a").send(Order(number))
        assert test.run(source.poll(keep))


def test_untyped_poll_gives_bytes_and_runs_def_handlers_on_a_thread(app: StreamApplication) -> None:
    """The loop runs meanwhile."""
    source = app.pollable_source("a")
    seen: list[tuple[bytes, bool]] = []

    def handle(message: Message[bytes]) -> None:
        seen.append((message.payload, threading.current_thread() is threading.main_thread()))

    with app.test() as test:
        test.input("a").send("x")
        assert test.run(source.poll(handle))
    assert seen == [(b"x", False)]


def test_destinations_are_polled_in_turn(make_app: MakeApplication) -> None:
    """For a binding with several; binders that consume them together mix them."""
    app = make_app(bindings__a__destination="one,two", inmemory__binder__stands_in_for="rocketmq")
    source, taken = app.pollable_source("a"), Taken()
    with app.test() as test:
        for topic in ("one", "one", "two"):
            test.run(app.bridge.asend(topic, topic))
        for _ in range(3):
            assert test.run(source.poll(taken, str))
    assert taken.payloads == ["one", "two", "one"]


def test_unreadable_message_is_a_dead_letter(app: StreamApplication) -> None:
    """The poll returns true and the error channel is notified; no handler is called."""
    source, taken = app.pollable_source("a"), Taken()
    with app.test() as test:
        test.input("a").send("no order")
        assert test.run(source.poll(taken, Order))
        assert isinstance(test.errors[0].payload, MessageConversionError)
        assert test.dead_letters("a").receive().payload == b"no order"
    assert not taken.payloads


def test_unsupported_type_is_the_callers_error(app: StreamApplication) -> None:
    """No message is taken from the group."""
    source, taken = app.pollable_source("a"), Taken()
    with app.test() as test:
        test.input("a").send(Order(1))
        with pytest.raises(MessageConversionError, match="complex"):
            test.run(source.poll(taken, complex))
        assert test.run(source.poll(taken, Order))


def test_settlement_before_a_failure_stands(app: StreamApplication) -> None:
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


def test_unsettled_message_is_redelivered(make_app: MakeApplication) -> None:
    """After consume-timeout; a later acknowledgment has no effect."""
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


def test_acknowledgment_may_requeue(app: StreamApplication) -> None:
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


def test_cancelled_poll_returns_its_message(app: StreamApplication) -> None:
    """No message is lost, and a late manual settlement is told that it had no effect."""
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


def test_cancelled_poll_keeps_a_manual_settlement(app: StreamApplication) -> None:
    """The handler was told that its settlement counted."""
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


def test_stopped_binding_returns_nothing_and_keeps_its_position(app: StreamApplication) -> None:
    """After pause, stop and start, unsettled messages are polled again and must be settled again."""
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


def test_handler_may_stop_its_own_binding(app: StreamApplication) -> None:
    """The stop does not wait for it; its message is settled when it returns."""
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


def test_poll_needs_a_running_application(app: StreamApplication) -> None:
    """And a declared name."""
    source = app.pollable_source("a")
    with pytest.raises(ApplicationError, match="does not run"):
        asyncio.run(source.poll(Taken()))
    with app.test() as test, pytest.raises(ApplicationError, match="pollable-source=nobody"):
        test.run(app.pollable_source("nobody").poll(Taken()))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"bindings__a__consumer__batch_mode": "true"}, "remove batch-mode"),
        ({"rocketmq__bindings__a__consumer__orderly": "true"}, "set it to false for this binding, or remove it"),
    ],
)
def test_unsupported_settings_of_a_polled_binding_are_refused(
    make_app: MakeApplication, settings: dict[str, str], reason: str
) -> None:
    """At startup."""
    app = make_app(**settings)
    app.pollable_source("a")
    with pytest.raises(ConfigurationError, match=f"binding 'a' is polled.*{reason}"), app.test():
        pass


def test_consumer_that_is_ordered_by_default_can_be_polled(make_app: MakeApplication) -> None:
    """Kafka's consumers are ordered; only a setting for the order is refused, with its key and place."""
    app = make_app(default_binder="kafka")
    source, taken = app.pollable_source("a"), Taken()
    with app.test() as test:
        test.input("a").send("x")
        assert test.run(source.poll(taken))
    app = make_app(default_binder="kafka", kafka__default__consumer__ordered="true")
    app.pollable_source("a")
    with pytest.raises(ConfigurationError, match="set it to false for this binding") as caught, app.test():
        pass
    assert caught.value.key == "spring.cloud.stream.kafka.default.consumer.ordered"
    assert caught.value.origin == "given in code"


@pytest.mark.parametrize("is_paused", [False, True])
def test_loop_of_polls_lets_other_tasks_run(app: StreamApplication, is_paused: bool) -> None:
    """With and without messages, and while the binding is paused."""
    source, ended = app.pollable_source("a"), asyncio.Event()

    async def poll() -> None:
        while not ended.is_set():
            await source.poll(Taken())

    async def main() -> None:
        if is_paused:
            await app.binding("a").pause()
        polling = asyncio.create_task(poll())
        await asyncio.sleep(60)
        ended.set()
        await polling

    with app.test() as test:
        test.run(main())


def test_polled_binding_cannot_have_a_listener(app: StreamApplication) -> None:
    """Messages go one way or the other."""

    @app.stream_listener("a")
    async def listen(text: str) -> None: ...

    app.pollable_source("a")
    with pytest.raises(ConfigurationError, match="binding 'a' is polled, and has a listener"), app.test():
        pass
