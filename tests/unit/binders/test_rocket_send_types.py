"""Send types that do not wait for the broker's answer: delivery and failures."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from binders.rocket.producer import ASYNC_WINDOW
from rocket_client import Admin, ClientSettings, Producer
from rocket_remoting.wire.sys_flag import PERM_READ
from streamkit import Message
from streamkit.application import StreamApplication
from streamkit.binder.binder import ProducerDestination
from streamkit.errors import BinderError, MessageDeliveryError, MessageHandlingError
from streamkit.events import send_failed
from streamkit.messaging.message import ErrorMessage
from streamkit.testing.contract import Scenario
from streamkit.testing.contract.scenario import run_case
from streamkit.testing.virtual_time import VirtualTime
from tests.contract.rocket_environment import VirtualRocketEnvironment


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[VirtualRocketEnvironment]:
    """Return a broker in virtual time."""
    with VirtualTime() as time:
        yield VirtualRocketEnvironment(time, tmp_path)


def sending(s: Scenario, topic: str, send_type: str) -> StreamApplication:
    """Return an application, not started, whose output `out` is bound to the topic."""
    settings = {
        "spring.cloud.stream.output-bindings": "out",
        "spring.cloud.stream.bindings.out.destination": topic,
        "spring.cloud.stream.rocketmq.bindings.out.producer.send-type": send_type,
    }
    return s.app(settings)


@pytest.mark.parametrize("send_type", ["Async", "OneWay"])
def test_unawaited_messages_keep_partition_and_order(environment: VirtualRocketEnvironment, send_type: str) -> None:
    """As with the waiting send type, unless a send fails; for any number without a pause."""
    count = ASYNC_WINDOW + 50

    async def main(s: Scenario) -> None:
        topic = await s.topic(partitions=4)
        received = await s.record(topic, s.name("group"), ordered=True)
        app = await s.start(sending(s, topic, send_type))
        for number in range(count):
            assert await app.bridge.asend("out", Message(b"%d" % number, {"scst_partition": 3}))
        await app.stop(5)
        messages = await received.settled(count)
        assert [message.payload for message in messages] == [b"%d" % number for number in range(count)]
        assert {message.headers["rocketmq_QUEUE_ID"] for message in messages} == {3}

    run_case(environment, main)


def test_late_refusal_is_reported(environment: VirtualRocketEnvironment) -> None:
    """To the binding's error channel and as an event; the sender has continued."""

    async def main(s: Scenario) -> None:
        topic = await s.topic()
        errors, reported = s.recorder("errors"), list[BinderError]()

        def note(sender: object, error: BinderError, binding: str, message: Message[bytes]) -> None:
            assert (binding, message.payload) == ("out", b"x")
            reported.append(error)

        app = sending(s, topic, "Async")

        @app.error_listener(f"{topic}.errors")
        async def hear(error: ErrorMessage) -> None:
            errors.add(error)

        await s.start(app)
        settings = ClientSettings(name_servers=environment.properties[_NAME_SERVER])
        async with Admin(settings, transport=environment.transport(), clock=environment.clock) as admin:
            await admin.create_topic(topic, perm=PERM_READ)

        with send_failed.connected_to(note):
            assert await app.bridge.asend("out", b"x")
            (error,) = await errors.settled(1)
        assert isinstance(error.payload, MessageDeliveryError)
        assert "forbidden" in str(reported[0])
        assert error.payload.__cause__ is reported[0]

    run_case(environment, main)


@pytest.mark.parametrize("send_type", ["Sync", "Async", "OneWay"])
def test_list_is_sent_up_to_its_first_illegal_message(environment: VirtualRocketEnvironment, send_type: str) -> None:
    """The error names the message, as if it had been sent alone."""

    async def main(s: Scenario) -> None:
        topic = await s.topic(partitions=1)
        received = await s.record(topic, s.name("group"), ordered=True)
        app = await s.start(sending(s, topic, send_type))
        payloads = [b"a", b"b", b"c", b"d"]
        listed = [Message(each, {"note": "\x01"} if each == b"c" else {}) for each in payloads]
        with pytest.raises(MessageHandlingError, match="control character") as caught:
            await app.channel("out").asend_all(listed)
        assert caught.value.failed_message is listed[2]
        assert [message.payload for message in await received.settled(2)] == [b"a", b"b"]

    run_case(environment, main)


def test_list_fails_when_the_producer_is_closed(environment: VirtualRocketEnvironment) -> None:
    """With the binder's error, not the client's."""

    async def main(s: Scenario) -> None:
        topic = await s.topic()
        app, producers = sending(s, topic, "Sync"), list[Producer]()

        @app.customize_producer
        def keep(producer: Producer, destination: ProducerDestination) -> None:
            producers.append(producer)

        await s.start(app)
        await producers[0].shutdown()
        with pytest.raises(MessageHandlingError) as caught:
            await app.channel("out").asend_all([Message(b"a"), Message(b"b")])
        assert isinstance(caught.value.__cause__, BinderError)

    run_case(environment, main)


_NAME_SERVER = "spring.cloud.stream.rocketmq.binder.name-server"
