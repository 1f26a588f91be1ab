"""The test harness."""

import time as real_time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated

import pytest
from dependency_injector import containers, providers
from dependency_injector.wiring import Provide

from streamkit import Message, Processor, send_to
from streamkit.application import StreamApplication
from streamkit.errors import BinderError, MessageConversionError
from streamkit.testing.harness import Harness
from streamkit.testing.virtual_time import DEFAULT_EPOCH_MS, VirtualTime

StartTest = Callable[..., Harness]


def application(**settings: str) -> StreamApplication:
    """Return a processor from `orders` to `receipts`, configured for RocketMQ."""
    bindings = "spring.cloud.stream.bindings"
    app = StreamApplication(
        config_location="optional:/none",
        properties={
            f"{bindings}.orders.destination": "topic-of-orders",
            f"{bindings}.orders.group": "shop",
            f"{bindings}.receipts.destination": "topic-of-receipts",
            **{f"spring.cloud.stream.{key.replace('__', '.')}": value for key, value in settings.items()},
        },
    )

    @app.stream_listener("orders")
    @send_to("receipts")
    def charge(amount: float) -> str:
        if amount < 0:
            raise ValueError("negative")
        real_time.sleep(0.01)
        return f"paid {amount:g}"

    return app


def test_send_processes_everything_that_needs_no_time() -> None:
    """Listeners on threads included; inputs and outputs are found by binding or destination."""
    with application().test() as test:
        test.input("orders").send("5")
        test.input("topic-of-orders").send("6")
        assert test.output("receipts").receive(str).payload == "paid 5"
        assert test.output("topic-of-receipts").receive(str).payload == "paid 6"
        assert test.time.loop.time() < 0.001


def test_messages_are_received_in_the_order_they_were_sent() -> None:
    """Whatever their partition."""
    with application().test() as test:
        for number in range(20):
            test.input("orders").send(str(number))
        payloads = [message.payload for message in test.output("receipts").receive_all(str)]
        assert payloads == [f"paid {number}" for number in range(20)]


def test_retries_take_no_real_time() -> None:
    """Settings of the replaced binder type apply; virtual time passes only on request."""
    app = application(rocketmq__bindings__orders__consumer__push__max_reconsume_times="2")
    with app.test() as test:
        test.input("orders").send("-1")
        assert test.dead_letters("orders").is_empty
        assert test.errors == []
        test.advance(minutes=2)
        assert test.dead_letters("orders").receive().payload == b"-1"
        assert len(test.errors) == 3


def test_missing_message_failure_shows_reported_errors() -> None:
    """Those on errorChannel."""
    with application().test() as test:
        test.input("orders").send("-1")
        with pytest.raises(AssertionError, match="nothing was sent to 'topic-of-receipts' within 60 s") as caught:
            test.output("receipts").receive(within=60)
        assert "ValueError: negative" in str(caught.value)


def test_waiting_ends_with_the_message() -> None:
    """`within` advances the time only as far as necessary."""
    app = application()
    with app.test() as test:
        test.run(_send_delayed(app, 3600))
        assert test.output("receipts").receive(str, within=7200).payload == "late"
        assert 3600 <= test.time.loop.time() < 3601


async def _send_delayed(app: StreamApplication, seconds: float) -> None:
    await app.bridge.asend("receipts", Message("late", {"streamkit_delay": seconds}))


def test_messages_have_virtual_timestamps() -> None:
    """app.clock follows virtual time."""
    app = application()
    with app.test() as test:
        test.advance(hours=1)
        assert app.clock.now_ms() == DEFAULT_EPOCH_MS + 3_600_000
        test.input("orders").send("1")
        assert test.output("receipts").receive().headers.timestamp == DEFAULT_EPOCH_MS + 3_600_000


def test_strict_mode_fails_on_unread_messages(stream_test: StartTest) -> None:
    """A sent message must be received by a listener or the test."""
    with (
        pytest.raises(BinderError, match="1 sent to 'topic-of-receipts', which has no consumer"),
        application().test(strict=True) as test,
    ):
        test.input("orders").send("5")
    harness = stream_test(application(), strict=True)
    harness.input("orders").send("5")
    harness.output("receipts").receive()


def test_strict_mode_fails_on_unreceived_output() -> None:
    """The failure shows the message."""
    test = application().test(strict=True).__enter__()
    receipts = test.output("receipts")
    test.input("orders").send("5")
    test.input("orders").send("6")
    assert receipts.receive(str).payload == "paid 5"
    with pytest.raises(AssertionError, match=r"not received: 1 at 'topic-of-receipts': b'paid 6' \{"):
        test.__exit__(None, None, None)


def test_missing_message_failure_shows_other_sent_messages() -> None:
    """With binding, payload and headers, so that a wrong name is obvious."""
    with application().test() as test:
        test.input("orders").send("5")
        test.output("receipts").clear()
        with pytest.raises(AssertionError, match="nothing was sent to 'topic-of-receipts'") as caught:
            test.output("receipts").receive()
    assert "the application sent:\n  to binding 'receipts': b'paid 5' {" in str(caught.value)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda test: test.input("orderz"), "'orderz' is neither a binding nor a destination .*mean 'orders'"),
        (lambda test: test.output("receits").is_empty, "'receits' is neither .*mean 'receipts'"),
        (lambda test: test.output("topic-of-receipt"), "mean 'topic-of-receipts'"),
        (lambda test: test.dead_letters("orderss").is_empty, "no input binding of the .*mean 'orders'"),
        (lambda test: test.dead_letters("receipts"), "'receipts' is no input binding of the application"),
    ],
)
def test_misspelt_name_fails(ask: Callable[[Harness], object], message: str) -> None:
    """With the nearest name; a test that waits for nothing at a name of nothing would always pass."""
    with application().test() as test, pytest.raises(LookupError, match=message):
        ask(test)


def test_names_of_a_test_are_bindings_and_destinations() -> None:
    """Also dead letters, destinations that settings list, and names that the application sends to while it runs."""
    app = application(dynamic_destinations="later,elsewhere")
    with app.test() as test:
        assert test.output("later").is_empty
        assert test.output("%DLQ%shop").is_empty
        with pytest.raises(LookupError, match=r"known if spring\.cloud.stream.dynamic-destinations lists it"):
            test.output("now")
        test.run(app.bridge.asend("elsewhere", "x"))
        assert test.output("elsewhere").receive(str).payload == "x"


def test_binding_without_group_has_no_dead_letters() -> None:
    """Nobody could find them: an anonymous group has a name of its own at each start."""
    app = application(bindings__orders__group="")
    with app.test() as test, pytest.raises(ValueError, match=r"'orders' has no dead letters, .*: it has no group"):
        test.dead_letters("orders")


def test_message_of_another_type_is_shown() -> None:
    """The error has a note with the payload."""
    with application().test() as test:
        test.input("orders").send("5")
        with pytest.raises(MessageConversionError) as caught:
            test.output("receipts").receive(dict)
    (note,) = caught.value.__notes__
    assert note.startswith("The message at 'topic-of-receipts': b'paid 5' {")


def test_declared_channels_name_inputs_and_outputs() -> None:
    """As in decorators."""
    app = StreamApplication(config_location="optional:/none")
    app.enable_binding(Processor)
    app.stream_listener(Processor.input)(send_to(Processor.output)(echo))
    with app.test() as test:
        test.input(Processor.input).send("x")
        assert test.output(Processor.output).receive(str).payload == "x"


async def echo(text: str) -> str:
    """Return the payload."""
    return text


class Prices:
    """A dependency of a listener."""

    def of(self, name: str) -> str:
        """Fail: tests have no prices."""
        raise ConnectionError(name)


class Fake(Prices):
    """A replacement in tests."""

    def of(self, name: str) -> str:
        """Return a fixed price."""
        return f"{name}: 7"


class Parts(containers.DeclarativeContainer):
    """An application's own container."""

    prices = providers.Singleton(Prices)


async def quote(name: str, prices: Annotated[Prices, Provide[Parts.prices]]) -> str:
    """Have an injected argument."""
    return prices.of(name)


def test_providers_and_settings_are_replaced_during_the_test() -> None:
    """`provide` overrides a provider by name, `properties` override settings; both end with the test."""
    parts = Parts()
    app = StreamApplication(
        config_location="optional:/none",
        container=parts,
        properties={"spring.cloud.stream.bindings.quotes.destination": "real"},
    )
    app.enable_binding(Processor)
    app.stream_listener(Processor.input)(send_to("quotes")(quote))
    with app.test(
        provide={"prices": Fake()}, properties={"spring.cloud.stream.bindings.quotes.destination": "other"}
    ) as test:
        test.input("input").send("tea")
        assert test.output("other").receive(str).payload == "tea: 7"
    assert type(parts.prices()) is Prices
    with app.test() as test:
        assert test.properties("quotes").destination == "real"
    with pytest.raises(LookupError, match=r"no container has a provider 'price'; there are: .*prices"):
        app.test(provide={"price": Fake()}).__enter__()


def test_strict_mode_does_not_hide_a_tests_failure() -> None:
    """Its own failure is the one to see."""
    with pytest.raises(KeyError), application().test(strict=True) as test:  # noqa: PT012
        test.input("orders").send("5")
        raise KeyError


def test_application_is_restored_after_the_test() -> None:
    """It can be tested again, with its container's own parts."""
    app = application()
    for _ in range(2):
        with app.test() as test:
            test.input("orders").send("5")
            assert len(test.output("receipts").receive_all()) == 1
    assert type(app.clock).__name__ == "SystemClock"


def test_time_begins_when_the_test_says() -> None:
    """What the calendar decides can be tested at any time; other tests begin at one time, so that runs are alike."""
    app = application()
    for given, epoch_ms in ((datetime(2026, 12, 31, 23, 59, tzinfo=UTC), 1_798_761_540_000), (None, DEFAULT_EPOCH_MS)):
        with app.test(start=given) as test:
            test.advance(minutes=1)
            test.input("orders").send("5")
            assert test.output("receipts").receive(str).headers.timestamp == epoch_ms + 60_000
    with pytest.raises(ValueError, match=r"start=2026-12-31 00:00:00 has no time zone: write datetime\("):
        app.test(start=datetime(2026, 12, 31))  # noqa: DTZ001 - that is the mistake


def test_virtual_time_is_a_fixture(virtual_time: VirtualTime) -> None:
    """For tests without an application."""
    virtual_time.advance(3)
    assert virtual_time.loop.time() == 3
