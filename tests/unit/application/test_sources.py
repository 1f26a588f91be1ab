"""Sources of listeners and bindings: modules, classes, objects, interfaces."""

import functools
import re
import threading
import types
from collections.abc import Callable
from functools import partial
from typing import Annotated, ClassVar

import pytest
from dependency_injector import containers, providers
from dependency_injector.wiring import Provide

from streamkit import (
    ErrorMessage,
    Message,
    Processor,
    Reject,
    Sink,
    Source,
    StreamApplication,
    StreamBridge,
    enable_binding,
    error_listener,
    input_channel,
    output_channel,
    send_to,
    stream_listener,
)
from streamkit.errors import ConfigurationError

MakeApplication = Callable[..., StreamApplication]


@enable_binding(Sink, Source)
class SpringStyle:
    """A class in Spring's style."""

    def __init__(self, source: Source, bridge: StreamBridge, app: StreamApplication) -> None:
        self.source = source
        self.bridge = bridge
        self.app = app

    @stream_listener(Sink.INPUT)
    async def forward(self, text: str) -> None:
        """Send to the injected channel."""
        await self.source.output.asend(Message(text.upper()))


def test_class_with_enabled_bindings_is_instantiated_and_wired(make_app: MakeApplication) -> None:
    """Its constructor gets channels, bridge and application; its methods are listeners."""
    with make_app(SpringStyle).test() as test:
        test.input("input").send("hello")
        assert test.output("output").receive(str).payload == "HELLO"


def test_class_that_is_a_source_twice_is_instantiated_once(make_app: MakeApplication) -> None:
    """For instance named, and in a module that is a source: two instances would handle each message twice."""
    module = types.ModuleType(__name__)
    vars(module)["SpringStyle"] = SpringStyle
    with make_app(module, SpringStyle).test() as test:
        test.input("input").send("hello")
        assert [message.payload for message in test.output("output").receive_all(str)] == ["HELLO"]


class OddlyDecorated:
    """Static and class methods with the decorators in either order, and a cached method."""

    seen: ClassVar[list[str]] = []

    @stream_listener("a")
    @staticmethod
    def outside(text: str) -> None:
        """Listen."""
        OddlyDecorated.seen.append(f"outside {text}")

    @classmethod
    @stream_listener("b")
    def inside(cls, text: str) -> None:
        """Listen."""
        cls.seen.append(f"inside {text}")

    @functools.lru_cache  # noqa: B019
    @stream_listener("c")
    def cached(self, text: str) -> None:
        """Listen."""
        self.seen.append(f"cached {text}")


def test_decorators_of_methods_may_be_in_any_order(make_app: MakeApplication) -> None:
    """A listener that is not found loses messages without a word."""
    OddlyDecorated.seen.clear()
    with make_app(OddlyDecorated).test() as test:
        for name in "abc":
            test.input(name).send(name)
    assert OddlyDecorated.seen == ["outside a", "inside b", "cached c"]


def note_of(who: str, seen: list[str], text: str) -> None:
    """Note what was heard."""
    seen.append(f"{who} {text}")


class Noting:
    """A callable object."""

    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    def __call__(self, text: str) -> None:
        """Note what was heard."""
        self.seen.append(f"object {text}")


def test_partials_and_callable_objects_of_a_module_are_listeners(make_app: MakeApplication) -> None:
    """As functions are."""
    seen: list[str] = []
    module = types.ModuleType("listeners")
    vars(module)["part"] = stream_listener("a")(partial(note_of, "partial", seen))
    vars(module)["thing"] = stream_listener("b")(Noting(seen))
    with make_app(module).test() as test:
        for name in "ab":
            test.input(name).send(name)
    assert seen == ["partial a", "object b"]


def test_decorated_function_is_a_source(make_app: MakeApplication) -> None:
    """By itself, and as a method of an object."""
    seen: list[str] = []

    @stream_listener("a")
    async def listener(text: str) -> None:
        seen.append(text)

    with make_app(listener, OddlyDecorated().inside).test() as test:
        test.input("a").send("x")
    assert seen == ["x"]


class Child(SpringStyle):
    """A class that inherits its constructor, and forgets the decorator of a method."""

    async def forward(self, text: str) -> None:
        """Override a listener."""


def undecorated(text: str) -> None:
    """Listen to nothing."""


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (Child, "Child.forward overrides the decorated method of SpringStyle, but is not decorated itself"),
        ("package.listeners", "'package.listeners' is text, and no source of listeners: import the module"),
        ([undecorated], "a list is no source of listeners: pass its items as arguments of their own"),
        (undecorated, "undecorated is not decorated: decorate it with streamkit.stream_listener"),
    ],
)
def test_wrong_source_is_an_error_that_says_what_to_do(make_app: MakeApplication, source: object, error: str) -> None:
    """Not that it should be removed."""
    with pytest.raises(ConfigurationError, match=re.escape(error)), make_app(source).test():
        pass


def test_class_may_switch_an_inherited_listener_off(make_app: MakeApplication) -> None:
    """As None switches off other methods of Python, such as `__hash__`."""

    class Parent:
        texts: list[str] = []  # noqa: RUF012 - of this test

        @stream_listener("a")
        async def note(self, text: str) -> None:
            self.texts.append(f"a {text}")

        @stream_listener("b")
        async def other(self, text: str) -> None:
            self.texts.append(f"b {text}")

    class Child(Parent):
        note = None  # type: ignore[assignment]

    with make_app(Child).test() as test:
        test.input("b").send("1")
    assert Parent.texts == ["b 1"]


def test_class_cannot_be_decorated_as_a_listener(app: StreamApplication) -> None:
    """Its methods can."""
    for decorator in (app.stream_listener("a"), stream_listener("a"), send_to("b"), error_listener()):
        with pytest.raises(TypeError, match="Child is a class: decorate its methods"):
            decorator(Child)


class Shop:
    """A declaring interface."""

    orders = input_channel()
    invoices = output_channel("invoices-out")


def test_interface_names_its_channels(make_app: MakeApplication) -> None:
    """By attribute or by the given name; usable as the binding's name."""
    app = make_app()
    app.enable_binding(Shop)

    @app.stream_listener(Shop.orders)
    @send_to(Shop.invoices)
    def bill(order: str) -> str:
        return f"invoice for {order}"

    with app.test() as test:
        test.input("orders").send("pen")
        assert test.output("invoices-out").receive(str).payload == "invoice for pen"
        app.bound(Shop).invoices.send(Message("by hand"))
        assert test.output("invoices-out").receive(str).payload == "by hand"


def test_module_provides_its_functions_classes_and_interfaces(make_app: MakeApplication) -> None:
    """Only its own, and each once."""
    module = types.ModuleType("listeners")
    source = """
from streamkit import input_channel, send_to, stream_listener, output_channel, Processor
class Own:
    box = output_channel()
@stream_listener("a")
@send_to("box")
def note(text: str) -> str:
    return text
"""
    exec(source, vars(module))
    app = make_app(module, module)
    with app.test() as test:
        test.input("a").send("x")
        assert len(test.output("box").receive_all()) == 1
        assert set(app.bindings) == {"a", "box"}


class Repository:
    """A dependency."""

    def __init__(self) -> None:
        self.stored: list[str] = []


class Container(containers.DeclarativeContainer):
    """A dependency container."""

    repository = providers.Singleton(Repository)


class Storing:
    """A class with an injected repository."""

    def __init__(self, repository: Annotated[Repository, Provide[Container.repository]]) -> None:
        self.repository = repository

    @stream_listener("a")
    def store(self, text: str) -> None:
        """Store the payload."""
        self.repository.stored.append(text)


def test_containers_provide_constructor_and_listener_arguments(make_app: MakeApplication) -> None:
    """By annotation, by default value, by name; a test can override them."""
    container = Container()
    app = StreamApplication(
        Storing,
        config_location="optional:/none",
        properties={
            "spring.cloud.stream.bindings.a.destination": "a",
            "spring.cloud.stream.bindings.b.group": "g",
        },
        container=container,
    )

    @app.stream_listener("b")
    async def store(text: str, repository: Repository = Provide["repository"]) -> None:
        repository.stored.append(text)

    fake = Repository()
    with container.repository.override(providers.Object(fake)), app.test() as test:
        test.input("a").send("by class")
        test.input("b").send("by function")
    assert fake.stored == ["by class", "by function"]


def test_error_listeners_are_found_in_classes(make_app: MakeApplication) -> None:
    """A method may listen to an error channel."""

    class Listeners:
        errors: list[ErrorMessage]

        def __init__(self) -> None:
            self.errors = []

        @stream_listener("a")
        async def fail(self, text: str) -> None:
            """Raise an error."""
            raise ValueError(text)

        @error_listener("a.g.errors")
        async def note(self, error: ErrorMessage) -> None:
            """Record the error."""
            self.errors.append(error)

    listeners = Listeners()
    with make_app(listeners).test() as test:
        test.input("a").send("x")
        test.advance(seconds=10)
    assert len(listeners.errors) == 1


def test_def_error_listeners_run_on_threads(make_app: MakeApplication) -> None:
    """They may block, and `channel.send` works; settlements they raise apply."""
    app = make_app(output_bindings="b")
    app.stream_listener("a")(_fail)
    threads: list[str] = []

    @app.error_listener("a.g.errors")
    def pass_on(error: ErrorMessage) -> None:
        threads.append(threading.current_thread().name)
        app.channel("b").send(Message(str(error.payload.__cause__)))
        raise Reject("passed on")

    with app.test() as test:
        test.input("a").send("x")
        test.advance(seconds=10)
        assert test.output("b").receive(str).payload == "x"
        assert test.dead_letters("a").receive().headers["FAILURE_MESSAGE"] == "passed on"
    assert threads == ["a.g.errors listener 1"]


async def _fail(text: str) -> None:
    raise ValueError(text)


def test_decorated_functions_are_unchanged() -> None:
    """They can be called and tested like any other."""

    @stream_listener("a")
    @send_to("b")
    def double(number: int) -> int:
        return 2 * number

    assert double(4) == 8
    assert double.__name__ == "double"


def test_processor_is_a_sink_and_a_source() -> None:
    """It has the channels of both."""
    assert Processor.INPUT == "input"
    assert Processor.OUTPUT == "output"
    assert Processor.input is Sink.input


def test_decorator_without_a_name_is_an_error() -> None:
    """It says what to write, since `@stream_listener` alone would take the function for a binding."""
    with pytest.raises(TypeError, match=r'is not the name of a binding: write @app\.stream_listener\("orders"\)'):

        @stream_listener  # type: ignore[arg-type]
        def take(order: str) -> None: ...
