"""Configuration errors are all reported at startup, with names."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from streamkit import ErrorMessage, Message, Processor, Source, output_channel, send_to, stream_listener
from streamkit.application import StreamApplication
from streamkit.errors import ApplicationError, BlockingSendError, ConfigurationError, ConfigurationErrors
from streamkit.testing.harness import Harness

MakeApplication = Callable[..., StreamApplication]
Start = Callable[[], Harness]


async def take(payload: str) -> None:
    """Do nothing."""


def test_unknown_binding_of_a_listener_is_reported_with_the_known_ones(app: StreamApplication, test: Start) -> None:
    """With the nearest name, and how to create one."""
    app.stream_listener("aa")(take)
    with pytest.raises(ConfigurationError) as caught:
        test()
    assert "test_wrong_setups.take" in str(caught.value)
    assert "names binding 'aa', which does not exist; did you mean 'a'?" in str(caught.value)
    assert "Known bindings: a, b, c." in str(caught.value)
    assert "spring.cloud.stream.bindings.aa.destination" in str(caught.value)


def test_unreadable_payload_type_is_reported_with_its_binding(
    make_app: MakeApplication,
) -> None:
    """And with the function, its file and line, and the parameter."""

    async def parse(payload: dict[str, str]) -> None:
        """Do nothing."""

    app = make_app(bindings__a__content_type="application/xml")
    app.stream_listener("a")(parse)
    with (
        pytest.raises(
            ConfigurationError,
            match=r"parse \(.*:\d+\).*'payload': binding 'a': No converter reads application/xml",
        ),
        app.test(),
    ):
        pass


def test_binding_of_a_refused_function_is_not_reported_as_unused(
    make_app: MakeApplication, caplog: pytest.LogCaptureFixture
) -> None:
    """That second error would mislead."""
    app = make_app(**{"bindings__parse-in-0__content_type": "application/xml"})

    @app.function
    async def parse(payload: dict[str, str]) -> None:
        """Consume a payload."""

    with pytest.raises(ConfigurationError, match="No converter reads application/xml"), app.test():
        pass
    assert "has no listener" not in caplog.text


class Plain:
    """A class without fields that could be written."""


class Shape:
    """A class without fields whose subclasses have some."""


@dataclass
class Square(Shape):
    """A subclass that can be written."""

    side: int


@pytest.mark.parametrize("returned", [Plain, list[Plain], Plain | None, dict[str, Plain]])
def test_unwritable_result_type_is_reported_at_startup(make_app: MakeApplication, returned: object) -> None:
    """With the function, its file and line, and what to do."""

    async def draw(payload: str) -> object:
        raise AssertionError("not to be called")

    draw.__annotations__["return"] = returned
    app = make_app()
    app.stream_listener("a")(send_to("b")(draw))
    with (
        pytest.raises(ConfigurationError, match=r"draw \(.*:\d+\) returns Plain, which no converter writes: make it"),
        app.test(),
    ):
        pass


def test_output_of_a_listener_that_returns_nothing_is_refused(make_app: MakeApplication) -> None:
    """Nothing would ever be sent."""
    app = make_app()
    app.stream_listener("a")(send_to("b")(partial(take)))
    with pytest.raises(ConfigurationError, match=r"take \(.*:\d+\) has @send_to, but .*`-> None`"), app.test():
        pass


@pytest.mark.parametrize("returned", [Shape, Square, list[Square], Message[bytes], Message[Square], object])
def test_possibly_writable_result_type_is_accepted(make_app: MakeApplication, returned: object) -> None:
    """A base class whose subclasses have fields, and messages."""

    async def draw(payload: str) -> object:
        return Square(2)

    draw.__annotations__["return"] = returned
    app = make_app()
    app.stream_listener("a")(send_to("b")(draw))
    with app.test() as harness:
        harness.input("a").send("x")
        assert harness.output("b").receive(dict).payload == {"side": 2}


def test_all_errors_are_in_one_report(make_app: MakeApplication) -> None:
    """Two unknown bindings, a wrong expression, an unknown exception class."""
    app = make_app(
        bindings__b__producer__partition_key_expression="headers[",
        bindings__c__consumer__retryable_exceptions__NoSuchError="true",
    )
    app.stream_listener("x")(take)
    app.stream_listener("a")(send_to("y")(partial(take)))
    app.stream_listener("c")(take)
    app.stream_listener("c", condition="payload ===")(take)
    app.enable_binding(type("B", (), {"b": output_channel("b")}))
    with pytest.raises(ConfigurationErrors) as caught, app.test():
        pass
    text = str(caught.value)
    for part in ("binding 'x'", "binding 'y'", "partition_key_expression=headers[", "condition of listener"):
        assert part in text


def test_unknown_exception_class_is_reported_with_its_setting(make_app: MakeApplication) -> None:
    """The key and what is expected."""
    app = make_app(bindings__a__consumer__retryable_exceptions__NoSuchError="true")
    app.stream_listener("a")(take)
    with (
        pytest.raises(ConfigurationError, match="'NoSuchError' is not an exception class") as caught,
        app.test(),
    ):
        pass
    assert caught.value.origin is not None


def test_binding_cannot_be_both_input_and_output(app: StreamApplication, test: Start) -> None:
    """The error names it."""
    app.stream_listener("a")(send_to("a")(partial(take)))
    with pytest.raises(ConfigurationError, match="binding 'a' is used as an input and as an output"):
        test()


def test_several_listeners_may_not_return_results(app: StreamApplication, test: Start) -> None:
    """It would be unclear which result to send."""

    async def answer(payload: str) -> str:
        return payload

    app.stream_listener("a")(take)
    app.stream_listener("a")(send_to("b")(answer))
    with pytest.raises(ConfigurationError, match="has 2 listeners, so none of them may have @send_to"):
        test()


def test_method_cannot_be_registered_without_its_object() -> None:
    """The error says how to do it."""
    app = StreamApplication()
    with pytest.raises(TypeError, match=r"is a method: decorate it with streamkit\.stream_listener"):

        class Listeners:
            @app.stream_listener("a")
            def take(self, payload: str) -> None:
                """Do nothing."""


def test_unsupported_constructor_parameter_is_reported(make_app: MakeApplication) -> None:
    """Constructors get interfaces, the bridge, the application, and what containers provide."""

    class Listeners:
        def __init__(self, database: dict[str, str]) -> None:
            self.database = database

        @stream_listener("a")
        def take(self, payload: str) -> None:
            """Do nothing."""

    with pytest.raises(ConfigurationError, match="asks for 'database'"), make_app(Listeners).test():
        pass


def test_source_without_listeners_or_channels_is_an_error(make_app: MakeApplication) -> None:
    """Neither listeners nor channels."""

    class Nothing:
        """An empty class."""

    with pytest.raises(ConfigurationError, match=r"Nothing.*neither listeners nor"), make_app(Nothing).test():
        pass


def test_use_before_the_start_says_how_to_start() -> None:
    """The bridge and bindings need a running application."""
    app = StreamApplication(config_location="optional:/none")
    with pytest.raises(ApplicationError, match="start it with `async with app`"):
        app.bridge.send("a", "x")
    with pytest.raises(ApplicationError, match="start it"):
        app.binding("a")


def test_starting_twice_is_an_error(make_app: MakeApplication) -> None:
    """The application runs already."""
    app = make_app(default_binder="inmemory")

    async def start_twice() -> None:
        async with app:
            with pytest.raises(ApplicationError, match="runs already"):
                await app.start()

    asyncio.run(start_twice())


def test_unknown_binding_of_a_running_application_is_reported(app: StreamApplication, test: Start) -> None:
    """With the known ones."""
    app.stream_listener("a")(take)
    test()
    with pytest.raises(ApplicationError, match="no binding 'x'; there are: a"):
        app.binding("x")
    assert app.binding("A") is app.binding("a")


def test_interface_without_channels_is_refused(app: StreamApplication) -> None:
    """enable_binding expects declarations."""
    with pytest.raises(TypeError, match="declares no channels"):
        app.enable_binding(dict)


def test_unbound_interface_says_how_to_bind_it() -> None:
    """An instance created by hand has no channels."""
    with pytest.raises(TypeError, match=r"take it from app\.bound\(Source\)"):
        _ = Source().output


def test_blocking_send_on_the_loop_is_refused(app: StreamApplication, test: Start) -> None:
    """On the loop's own thread only `asend` works."""
    app.enable_binding(Processor)
    refused: list[Exception] = []

    @app.stream_listener("a")
    async def listener(payload: str) -> None:
        for send in (lambda: app.bridge.send("b", "x"), lambda: app.channel("output").send(Message("x"))):
            try:
                send()
            except BlockingSendError as error:
                refused.append(error)

    test().input("a").send("x")
    assert len(refused) == 2


def test_invalid_shutdown_timeout_is_reported_at_startup() -> None:
    """At the stop it would be too late."""
    properties = {"spring.lifecycle.timeout-per-shutdown-phase": "soon"}
    app = StreamApplication(config_location="optional:/none", properties=properties)
    started = False
    with pytest.raises(ConfigurationError, match="timeout-per-shutdown-phase=soon: expected a"), app.test():
        started = True
    assert not started


def test_function_registered_twice_for_a_binding_is_refused(app: StreamApplication, test: Start) -> None:
    """It would handle each message twice, and nothing would say so."""
    app.stream_listener("a")(take)
    app.stream_listener("A", copy_headers=False)(take)
    with pytest.raises(ConfigurationError, match=r"take .* is registered twice for binding 'A', so it would handle"):
        test()


def test_function_may_listen_to_several_bindings_and_by_several_conditions(app: StreamApplication, test: Start) -> None:
    """Only a declaration that repeats another one is a mistake."""
    seen: list[str] = []

    @app.stream_listener("a", condition="headers['n'] == '1'")
    @app.stream_listener("a", condition="headers['n'] == '2'")
    @app.stream_listener("b")
    async def listener(text: str) -> None:
        seen.append(text)

    harness = test()
    for number in "123":
        harness.input("a").send(number, {"n": number})
    harness.input("b").send("4")
    assert seen == ["1", "2", "4"]


@pytest.mark.parametrize("is_async", [False, True])
def test_error_listener_registered_twice_for_a_channel_is_refused(
    app: StreamApplication, test: Start, *, is_async: bool
) -> None:
    """As a listener of a binding."""

    async def note(error: ErrorMessage) -> None: ...

    def note_on_thread(error: ErrorMessage) -> None: ...

    for _ in range(2):
        app.error_listener("a.g.errors")(note if is_async else note_on_thread)
    with pytest.raises(ConfigurationError, match=r"note.* is registered twice for channel 'a\.g\.errors'"):
        test()
