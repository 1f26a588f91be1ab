"""Effects of binding settings that no other test covers."""

import asyncio
from collections.abc import Callable, Mapping
from itertools import pairwise

import pytest

from binders.inmemory.binder import InMemoryBinder
from streamkit.application import StreamApplication
from streamkit.binder.binder import Binder, BinderContext, ConsumerDestination
from streamkit.binder.binder_type import BinderType
from streamkit.binder.delivery import (
    ConsumerModel,
    ExtendedConsumerProperties,
    ExtendedProducerProperties,
    ProducerModel,
)
from streamkit.errors import ConfigurationError
from streamkit.messaging.headers import PARTITION
from streamkit.messaging.message import Message
from streamkit.plugins import hookimpl

MakeApplication = Callable[..., StreamApplication]


def test_back_off_grows_up_to_its_maximum(make_app: MakeApplication) -> None:
    """back-off-initial-interval, back-off-multiplier, back-off-max-interval."""
    consumer = "bindings.a.consumer"
    app = make_app(
        **{
            f"{consumer}.max-attempts": "5",
            f"{consumer}.back-off-initial-interval": "100",
            f"{consumer}.back-off-multiplier": "3",
            f"{consumer}.back-off-max-interval": "1s",
        }
    )
    times: list[float] = []

    @app.stream_listener("a")
    async def fail(text: str) -> None:
        times.append(asyncio.get_running_loop().time())
        raise ValueError(text)

    with app.test() as test:
        test.input("a").send("x")
        test.advance(seconds=5)
    pauses = [later - earlier for earlier, later in pairwise(times[:5])]
    assert pauses == pytest.approx([0.1, 0.3, 0.9, 1.0], abs=0.001)


@pytest.mark.parametrize(("multiplex", "at_once"), [("false", 4), ("true", 2)])
@pytest.mark.parametrize("stands_in_for", ["inmemory", "rocketmq"])
def test_multiplexed_destinations_share_their_concurrency(
    make_app: MakeApplication, multiplex: str, at_once: int, stands_in_for: str
) -> None:
    """Two concurrent calls for each of two destinations, or for both together."""
    app = make_app(
        **{
            "inmemory.binder.stands-in-for": stands_in_for,
            "default-binder": "inmemory",
            "bindings.a.destination": "x,y",
            "bindings.a.consumer.concurrency": "2",
            "bindings.a.consumer.multiplex": multiplex,
        }
    )
    running = most = 0

    @app.stream_listener("a")
    async def work(text: str) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1

    with app.test() as test:
        for _ in range(4):
            app.bridge.send("x", "1")
            app.bridge.send("y", "1")
        test.advance(seconds=10)
    assert (most, running) == (at_once, 0)


def test_input_binding_needs_no_listener(make_app: MakeApplication) -> None:
    """input-bindings: subscribers of the channel get its messages."""
    app = make_app(**{"input-bindings": "a;b"})
    received: list[object] = []

    def note(message: Message[object]) -> None:
        received.append(message.payload)

    app.channel("a").subscribe(note)
    with app.test() as test:
        test.input("a").send("x")
        assert set(app.bindings) == {"a", "b"}
    assert received == [b"x"]


def test_configured_headers_are_not_copied_to_results(make_app: MakeApplication) -> None:
    """integration.message-handler-not-propagated-headers replaces the default, the content type."""
    app = make_app(**{"integration.message-handler-not-propagated-headers": "contentType,secret"})

    @app.stream_listener("a")
    @app.send_to("b")
    async def copy(text: str) -> str:
        return text

    with app.test() as test:
        test.input("a").send("x", {"secret": "1", "public": "2"})
        headers = test.output("b").receive().headers
        assert ("secret" in headers, headers["public"]) == (False, "2")


def test_binders_get_the_instance_index(make_app: MakeApplication) -> None:
    """instance-index and instance-count; the binding's override the application's."""
    app = make_app(
        **{
            "instance-count": "5",
            "instance-index": "3",
            "bindings.b.consumer.instance-count": "9",
            "bindings.b.consumer.instance-index": "7",
        }
    )
    reported: dict[str, tuple[int, int]] = {}

    @app.customize_consumer
    def see(consumer: object, destination: ConsumerDestination) -> None:
        reported[destination.binding] = destination.instance_index, destination.instance_count

    for name in "ab":
        app.stream_listener(name)(lambda: None)
    with app.test():
        pass
    assert reported == {"a": (3, 5), "b": (7, 9)}


def test_named_function_selects_the_queue_of_each_message(make_app: MakeApplication) -> None:
    """rocketmq….producer.message-queue-selector gets the whole message; no key is needed."""
    settings = {"output-bindings": "out", "rocketmq.bindings.out.producer.messageQueueSelector": "byTag"}
    app = make_app(**settings)

    @app.named("byTag")
    def by_tag(message: Message[object], count: int) -> int:
        return ("a", "b", "c").index(str(message.headers["tag"])) + count

    with app.test() as test:
        for tag in "abca":
            app.bridge.send("out", Message(tag, {"tag": tag}))
        sent = test.output("out").receive_all()
        assert [message.headers[PARTITION] for message in sent] == [0, 1, 2, 0]
    with (
        pytest.raises(ConfigurationError, match=r"message-queue-selector=byTag: .*byTag"),
        make_app(**settings).test(),
    ):
        pass


def test_secrets_of_binding_settings_are_masked(make_app: MakeApplication) -> None:
    """Settings named like keys, tokens or passwords, in the controller and the endpoints."""

    class Secretive(ExtendedConsumerProperties):
        """Settings of a binder."""

        access_key: str | None = None
        region: str | None = None

    class Plugin(BinderType):
        """A binder type with secrets, and its plugin."""

        @hookimpl
        def streamkit_binder_types(self) -> Mapping[str, BinderType]:
            """Return itself."""
            return {"vault": self}

        def create_binder(self, name: str, context: BinderContext) -> Binder:
            """Return an in-memory binder in place of this type."""
            return InMemoryBinder(name, context)

        def extended_models(self) -> tuple[ConsumerModel, ProducerModel]:
            """Return the settings models."""
            return Secretive, ExtendedProducerProperties

    app = StreamApplication(
        config_location="optional:/none",
        properties={
            "spring.cloud.stream.default-binder": "vault",
            "spring.cloud.stream.inmemory.binder.stands-in-for": "vault",
            "spring.cloud.stream.input-bindings": "in",
            "spring.cloud.stream.vault.bindings.in.consumer.access-key": "hush",
            "spring.cloud.stream.vault.bindings.in.consumer.region": "eu",
        },
        plugins=[Plugin()],
    )
    with app:
        reported = app.controller.query_state("in").settings
    assert (reported["access-key"], reported["region"]) == ("******", "eu")
