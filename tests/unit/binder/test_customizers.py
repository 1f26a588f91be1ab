"""Customizers: the objects they are called for, and errors of unusable ones."""

from collections.abc import Callable

import pytest

from binders.inmemory.binder import InMemoryBinder
from binders.inmemory.consumer import ConcurrentConsumerBinding, OrderedConsumerBinding
from streamkit.application import StreamApplication
from streamkit.binder.binder import ConsumerDestination
from streamkit.errors import ConfigurationError


@pytest.fixture
def app() -> StreamApplication:
    """Return an application with two inputs, of which one is ordered."""
    prefix = "spring.cloud.stream"
    app = StreamApplication(
        config_location="optional:/none",
        properties={
            f"{prefix}.default-binder": "rocketmq",
            f"{prefix}.bindings.a.group": "g",
            f"{prefix}.bindings.b.group": "g",
            f"{prefix}.rocketmq.bindings.b.consumer.orderly": "true",
        },
    )
    for name in "ab":
        app.stream_listener(name)(take)
    return app


async def take(payload: str) -> None:
    """Do nothing."""


def test_annotation_selects_the_customized_objects(app: StreamApplication) -> None:
    """A function annotated with a class is called for its instances; one without an annotation for all."""
    seen: list[str] = []

    @app.customize_consumer
    def ordered(consumer: OrderedConsumerBinding, destination: ConsumerDestination) -> None:
        seen.append(f"ordered {destination.binding}")

    @app.customize_consumer
    def any_of_them(consumer, destination):  # type: ignore[no-untyped-def]
        seen.append(f"any {destination.binding}")

    @app.customize_binder
    def binder(binder: InMemoryBinder) -> None:
        seen.append(binder.type)

    @app.customize_binder
    def none_of_them(binder: ConcurrentConsumerBinding) -> None:
        seen.append("not called")

    with app.test():
        assert sorted(seen) == ["any a", "any b", "inmemory", "ordered b"]


def test_customizer_error_fails_the_start(app: StreamApplication) -> None:
    """The error has the customizer's name and the binding."""

    @app.customize_consumer
    def clumsy(consumer: object, destination: ConsumerDestination) -> None:
        raise ValueError("no such attribute")

    with (
        pytest.raises(ConfigurationError, match=r"clumsy could not customize an object of binding 'a': no such"),
        app.test(),
    ):
        pass


async def too_late(consumer: object, destination: object) -> None:
    """Be async, although nothing awaits it."""


@pytest.mark.parametrize(
    ("function", "reason"),
    [(too_late, "too_late is `async def`"), (lambda: None, "cannot be called with the binder's object")],
)
def test_invalid_customizer_is_refused_at_registration(
    app: StreamApplication, function: Callable[..., object], reason: str
) -> None:
    """Where it is registered."""
    with pytest.raises(TypeError, match=reason):
        app.customize_consumer(function)
