"""Applications with errors are refused, while a correct one at the same broker continues."""

import asyncio
from collections.abc import Iterator, Mapping

import pytest

from binders.rocket.producer import ASYNC_WINDOW
from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import Admin, ClientSettings
from streamkit import Message, StreamApplication
from streamkit.errors import BinderError, BinderUnavailable, ConfigurationError, MessageHandlingError
from streamkit.messaging.headers import DELAY, DELIVER_AT
from tests.end_to_end.honest_shop import HonestShop, settings


@pytest.fixture(scope="module")
def broker() -> Iterator[ThreadedBroker]:
    """One broker for all of them, which filters by tags only."""
    with ThreadedBroker(settings={"enablePropertyFilter": "false"}) as started:
        yield started


def application(name_server: str, lines: Mapping[str, str], listeners: str = "") -> StreamApplication:
    """Return an application with further settings, and a listener for each of the bindings."""
    app = StreamApplication(config_location="optional:/none", properties=settings(name_server, **lines))

    async def take(payload: bytes) -> None:
        """Accept any message."""

    for name in listeners.split():
        app.stream_listener(name)(take)
    return app


BILLS = {"bindings.bills.destination": "bills", "bindings.bills.group": "office"}
TAGS = {
    **BILLS,
    "bindings.red.destination": "bills",
    "bindings.red.group": "office",
    "rocketmq.bindings.red.consumer.tags": "red",
}


@pytest.mark.parametrize(
    ("lines", "listeners", "message"),
    [
        ({"bindings.bills.destinatoin": "bills"}, "bills", "did you mean spring.cloud.stream.bindings.bills.dest"),
        ({**BILLS, "bindings.bills.consumer.concurrency": "many"}, "bills", "concurrency=many: expected a valid int"),
        ({**BILLS, "bindings.bills.binder": "rabbit"}, "bills", "binder=rabbit: there is no binder 'rabbit'"),
        ({**BILLS, "rocketmq.bindings.bills.consumer.sql": "a > 1"}, "bills", "asks for sql, which binder 'rocketmq'"),
        (BILLS, "bills bil", "names binding 'bil', which does not exist; did you mean 'bills'?"),
        ({**BILLS, "bindings.bills.destination": "no good"}, "bills", "the topic name 'no good' has a character"),
        ({**BILLS, "bindings.bills.group": "no good"}, "bills", "the group name 'no good' has a character outside"),
        (TAGS, "bills red", "are both in group 'office', but one subscribes to 'bills' with tags '*'"),
    ],
)  # fmt: skip
def test_invalid_application_is_refused_at_startup(
    lines: dict[str, str], listeners: str, message: str, broker: ThreadedBroker
) -> None:
    """By one error that names the setting or listener; the correct application is not disturbed."""

    async def main() -> None:
        async with HonestShop(broker.name_server) as shop:
            wrong = application(broker.name_server, lines, listeners)
            with pytest.raises(ConfigurationError) as caught:
                await wrong.start()
            assert message in str(caught.value)
            assert not wrong.is_running
            await shop.goes_on()

    asyncio.run(main())


PRODUCER = "rocketmq.bindings.bills.producer"


@pytest.mark.parametrize(
    ("broker_limit", "lines", "message"),
    [
        ("4194304", {}, "a body of 5000000 bytes; the limit is 4194304"),
        ("10000", {}, "MESSAGE_ILLEGAL (13): the message is illegal"),
        ("10000", {f"{PRODUCER}.send-type": "Async"}, "MESSAGE_ILLEGAL (13): the message is illegal"),
        ("33554432", {f"{PRODUCER}.max-message-size": "33554432"}, "failed after 3 attempts"),
    ],
)
def test_too_large_body_fails_alone(broker_limit: str, lines: dict[str, str], message: str) -> None:
    """At the client's limit, the broker's, and the frame limit: the binding's next message is delivered."""
    size = {"10000": 50_000, "4194304": 5_000_000, "33554432": 20_000_000}[broker_limit]
    keys = {
        "bindings.bills.destination": "bills",
        f"{PRODUCER}.compress-message-body-threshold": "100000000",
        f"{PRODUCER}.send-message-timeout": "10s",
    }

    async def main(name_server: str) -> None:
        app = application(name_server, keys | lines)
        failures: asyncio.Queue[BaseException] = asyncio.Queue()
        app.error_listener()(failures.put_nowait)
        # The large frame ends the connection that both have, so what was on its way is asked again.
        async with HonestShop(name_server, may_warn="", may_repeat=True) as shop, app:
            if "Async" in lines.values():
                await app.bridge.asend("bills", b"x" * size)
                failure = await asyncio.wait_for(failures.get(), 60)
            else:
                with pytest.raises(MessageHandlingError) as caught:
                    await app.bridge.asend("bills", b"x" * size)
                failure = caught.value
            assert message in str(failure)
            assert "'bills'" in str(failure)
            await app.bridge.asend("bills", b"small")
            await shop.goes_on()

    with ThreadedBroker(settings={"maxMessageSize": broker_limit}) as broker:
        asyncio.run(main(broker.name_server))


def test_refused_messages_free_the_window_of_async_sends(broker: ThreadedBroker) -> None:
    """After any number of refusals the next valid message is sent."""

    async def main() -> None:
        lines = {
            "bindings.bills.destination": "bills",
            f"{PRODUCER}.send-type": "Async",
            f"{PRODUCER}.max-message-size": "9",
        }
        async with application(broker.name_server, lines) as app, asyncio.timeout(60):
            for _ in range(ASYNC_WINDOW + 1):
                with pytest.raises(MessageHandlingError) as caught:
                    await app.bridge.asend("bills", b"ten bytes!")
                assert isinstance(caught.value.__cause__, BinderError)
            assert await app.bridge.asend("bills", b"nine byte")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (DELAY, "soon", "a timedelta or a number of seconds"),
        (DELAY, float("nan"), "a timedelta or a number of seconds"),
        (DELAY, float("inf"), "a timedelta or a number of seconds"),
        (DELIVER_AT, "tomorrow", "an aware datetime or milliseconds since 1970"),
    ],
)
@pytest.mark.parametrize("binder", ["rocketmq", "inmemory"])
def test_invalid_delay_is_refused(name: str, value: object, expected: str, binder: str, broker: ThreadedBroker) -> None:
    """It must not count as no delay."""

    async def main() -> None:
        lines = {"bindings.bills.destination": "bills", "default-binder": binder}
        async with application(broker.name_server, lines) as app:
            with pytest.raises(MessageHandlingError, match=f"header '{name}' is .*: expected {expected}"):
                await app.bridge.asend("bills", Message("x", {name: value}))

    asyncio.run(main())


def test_missing_topic_is_reported_and_waited_for() -> None:
    """Without auto-creation the sender's error says what to do;

    the consumer warns, and receives once the topic exists.
    """
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def main(name_server: str) -> None:
        keys = BILLS | {
            "bindings.bills-out.destination": "bills",
            "rocketmq.binder.poll-name-server-interval": "100ms",
        }
        app = application(name_server, keys)

        @app.stream_listener("bills")
        async def take(text: str) -> None:
            heard.put_nowait(text)

        waits = "group office: topic bills does not exist yet; nothing is received from it until it does"
        by_name = "bindings.bills-out.destination names nothing: "  # the application sends to it by name
        async with HonestShop(name_server, may_warn=f"{waits}|.*{by_name}") as shop, app:
            assert [warning for warning in shop.warnings.reported if by_name not in warning] == [waits]
            with pytest.raises(BinderUnavailable) as caught:
                await app.bridge.asend("receipts", "1")
            assert str(caught.value) == (
                "binding 'receipts' could not be bound to topic 'receipts': no route for topic 'receipts': it does "
                "not exist, and no broker creates topics by itself (no route of TBW102). Create it (streamkit "
                "topic create receipts), or set spring.cloud.stream.rocketmq.binder.provisioning=create."
            )
            async with Admin(ClientSettings(name_servers=name_server)) as admin:
                await admin.create_topic("bills", 2)
                await admin.create_topic("receipts", 2)
            await app.bridge.asend("bills-out", "1")
            assert await asyncio.wait_for(heard.get(), 60) == "1"
            await app.bridge.asend("receipts", "1")
            await shop.goes_on()

    with ThreadedBroker(settings={"autoCreateTopicEnable": "false"}) as broker:
        asyncio.run(main(broker.name_server))


MISSING = {"bindings.missing.group": "office", "rocketmq.binder.provisioning": "verify"}


def test_topic_that_must_exist_is_refused_at_startup(broker: ThreadedBroker) -> None:
    """With `provisioning=verify` nothing of the application runs."""

    async def main() -> None:
        app = application(broker.name_server, MISSING, "missing")
        async with HonestShop(broker.name_server) as shop:
            with pytest.raises(BinderError, match=r"topic 'missing' does not exist and .*=verify\. Create it"):
                await app.start()
            await shop.goes_on()

    asyncio.run(main())
