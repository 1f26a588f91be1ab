"""Namespaces of bindings: settings, listeners and headers use names without it, the broker uses names with it."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from binders.rocket.binder import RocketBinder
from streamkit import Message, StreamApplication, send_to
from streamkit.binder.binding import InputBinding, OutputBinding
from streamkit.testing.contract import Recorder, Scenario
from streamkit.testing.contract.scenario import run_case
from streamkit.testing.virtual_time import VirtualTime
from tests.contract.rocket_environment import PREFIX, VirtualRocketEnvironment

STREAM = "spring.cloud.stream"
LEFT = {f"{PREFIX}.binder.namespace": "left"}


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[VirtualRocketEnvironment]:
    """Return a broker in virtual time."""
    with VirtualTime() as time:
        yield VirtualRocketEnvironment(time, tmp_path)


def kitchen(s: Scenario, settings: Mapping[str, str]) -> StreamApplication:
    """Return an application that answers topic `orders` on topic `receipts`."""
    app = s.app(
        {
            f"{STREAM}.bindings.in.destination": "orders",
            f"{STREAM}.bindings.in.group": "kitchen",
            f"{STREAM}.bindings.in.consumer.max-attempts": "1",
            f"{STREAM}.bindings.out.destination": "receipts",
            f"{PREFIX}.bindings.in.consumer.push.max-reconsume-times": "1",
            f"{PREFIX}.bindings.in.consumer.consume-from-where": "CONSUME_FROM_FIRST_OFFSET",
            **settings,
        }
    )

    @app.stream_listener("in")
    @send_to("out")
    def serve(message: Message[bytes]) -> bytes:
        if message.payload == b"poison":
            raise ValueError(message.payload)
        return message.payload + b" from " + str(message.headers["rocketmq_TOPIC"]).encode()

    return app


def note(app: StreamApplication, binding: str, recorder: Recorder[bytes]) -> None:
    """Have the application's binding record what it receives."""

    @app.stream_listener(binding)
    def listen(message: Message[bytes]) -> None:
        recorder.add(message.payload)


def test_namespace_applies_to_listener_output_and_dead_letters(environment: VirtualRocketEnvironment) -> None:
    """Applications outside need the names with the namespace; those inside do not."""

    async def scene(s: Scenario) -> None:
        app = await s.start(kitchen(s, LEFT))
        outside = await s.record("left%receipts", "outside", start="earliest")
        await s.send("orders", b"from outside")
        await s.send("left%orders", b"poison")
        await s.send("left%orders", b"tea")
        assert [message.payload for message in await outside.settled(1)] == [b"tea from orders"]
        letters = await s.record("%DLQ%left%kitchen", "undertaker", start="earliest")
        assert [message.payload for message in await letters.wait(1)] == [b"poison"]
        bound = app.binding("in")
        assert isinstance(bound, InputBinding)
        where = bound.binder.binder.dead_letter_destination(bound.consumer_destinations[0])
        assert where == "%DLQ%kitchen"

    run_case(environment, scene)


def test_binding_may_have_its_own_namespace(environment: VirtualRocketEnvironment) -> None:
    """It overrides the binder's, for consumers and producers."""

    async def scene(s: Scenario) -> None:
        own = {f"{PREFIX}.bindings.out.producer.namespace": "right"}
        await s.start(kitchen(s, LEFT | own))
        receipts = await s.record("right%receipts", "outside", start="earliest")
        await s.send("left%orders", b"tea")
        await receipts.settled(1)

    run_case(environment, scene)


def test_anonymous_listener_starts_at_the_end_within_its_namespace(environment: VirtualRocketEnvironment) -> None:
    """It gets messages sent from now on."""

    async def scene(s: Scenario) -> None:
        heard: Recorder[bytes] = s.recorder()
        await s.send("left%orders", b"before")
        app = s.app(LEFT | {f"{STREAM}.bindings.in.destination": "orders"})
        note(app, "in", heard)
        await s.start(app)
        await s.send("left%orders", b"after")
        assert await heard.settled(1) == [b"after"]

    run_case(environment, scene)


def test_equal_groups_in_two_namespaces_may_subscribe_differently(environment: VirtualRocketEnvironment) -> None:
    """They are separate groups."""

    async def scene(s: Scenario) -> None:
        heard: dict[str, Recorder[bytes]] = {side: s.recorder(side) for side in ("left", "right")}
        settings: dict[str, str] = {}
        for side in heard:
            settings |= {
                f"{STREAM}.bindings.{side}.destination": "orders",
                f"{STREAM}.bindings.{side}.group": "kitchen",
                f"{PREFIX}.bindings.{side}.consumer.namespace": side,
                f"{PREFIX}.bindings.{side}.consumer.tags": side,
            }
        app = s.app(settings)
        for side, recorder in heard.items():
            note(app, side, recorder)
        await s.start(app)
        for side in heard:
            await s.send(f"{side}%orders", side.encode(), {"TAGS": "left"})
        assert await heard["left"].settled(1) == [b"left"]
        assert heard["right"].items == []

    run_case(environment, scene)


def test_spark_gets_the_names_with_the_namespace(environment: VirtualRocketEnvironment) -> None:
    """Its executors have no binding."""

    async def scene(s: Scenario) -> None:
        app = await s.start(kitchen(s, LEFT))
        binding, output = app.binding("in"), app.binding("out")
        binder = binding.binder.binder
        assert isinstance(binding, InputBinding)
        assert isinstance(output, OutputBinding)
        assert isinstance(binder, RocketBinder)
        source = binder.spark_source(binding.consumer_destinations[0]).options
        sink = binder.spark_sink(output.destination).options
        assert (source["subscribe"], source["consumerGroup"]) == ("left%orders", "left%kitchen")
        assert (sink["topic"], sink["producerGroup"]) == ("left%receipts", "left%receipts")
        assert not {"accessKey", "secretKey"} & {*source, *sink}

    run_case(environment, scene)


def test_spark_gets_the_keys_of_the_binding(environment: VirtualRocketEnvironment) -> None:
    """In options whose values Spark hides."""

    async def scene(s: Scenario) -> None:
        keys = {f"{PREFIX}.bindings.in.consumer.access-key": "me", f"{PREFIX}.bindings.in.consumer.secret-key": "hush"}
        app = await s.start(kitchen(s, keys))
        binding = app.binding("in")
        binder = binding.binder.binder
        assert isinstance(binding, InputBinding)
        assert isinstance(binder, RocketBinder)
        source = binder.spark_source(binding.consumer_destinations[0]).options
        assert (source["accessKey"], source["secretKey"]) == ("me", "hush")

    run_case(environment, scene)
