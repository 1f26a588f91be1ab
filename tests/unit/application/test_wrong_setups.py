"""What is wrong with an application is told at start, all of it, with names."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from streamkit import Message, Processor, Source, output_channel, send_to, stream_listener
from streamkit.application import StreamApplication
from streamkit.errors import ApplicationError, BlockingSendError, ConfigurationError, ConfigurationErrors
from streamkit.testing.harness import Harness

MakeApplication = Callable[..., StreamApplication]
Start = Callable[[], Harness]


async def take(payload: str) -> None:
    """A listener."""


def test_a_listener_naming_no_binding_is_told_the_known_ones(app: StreamApplication, test: Start) -> None:
    """With the nearest name, and how to make one."""
    app.stream_listener("aa")(take)
    with pytest.raises(ConfigurationError) as caught:
        test()
    assert "test_wrong_setups.take" in str(caught.value)
    assert "names binding 'aa', which does not exist; did you mean 'a'?" in str(caught.value)
    assert "Known bindings: a, b, c." in str(caught.value)
    assert "spring.cloud.stream.bindings.aa.destination" in str(caught.value)


def test_a_listener_that_cannot_be_given_its_payload_is_told_with_its_binding(
    make_app: MakeApplication,
) -> None:
    """Beside the function, its file and line, and the parameter."""

    async def parse(payload: dict[str, str]) -> None:
        """A listener."""

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


def test_a_refused_function_s_binding_is_not_said_to_have_no_listener(
    make_app: MakeApplication, caplog: pytest.LogCaptureFixture
) -> None:
    """It would have one, so that would mislead."""
    app = make_app(**{"bindings__parse-in-0__content_type": "application/xml"})

    @app.function
    async def parse(payload: dict[str, str]) -> None:
        """A consumer."""

    with pytest.raises(ConfigurationError, match="No converter reads application/xml"), app.test():
        pass
    assert "has no listener" not in caplog.text


class Plain:
    """Has no fields that could be written."""


class Shape:
    """Has none itself, but its subclasses have."""


@dataclass
class Square(Shape):
    """A shape that can be written."""

    side: int


@pytest.mark.parametrize("returned", [Plain, list[Plain], Plain | None, dict[str, Plain]])
def test_a_result_that_cannot_be_written_is_told_at_start(make_app: MakeApplication, returned: object) -> None:
    """Not at the first message: with the function, its file and line, and what to do."""

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


@pytest.mark.parametrize("returned", [Shape, Square, list[Square], Message[bytes], Message[Square], object])
def test_what_may_be_writable_is_no_mistake(make_app: MakeApplication, returned: object) -> None:
    """A base class whose subclasses have fields, and messages."""

    async def draw(payload: str) -> object:
        return Square(2)

    draw.__annotations__["return"] = returned
    app = make_app()
    app.stream_listener("a")(send_to("b")(draw))
    with app.test() as harness:
        harness.input("a").send("x")
        assert harness.output("b").receive(dict).payload == {"side": 2}


def test_everything_wrong_is_one_report(make_app: MakeApplication) -> None:
    """Two unknown bindings, a wrong expression, an exception that does not exist."""
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


def test_an_exception_that_cannot_be_imported_is_told_with_its_setting(make_app: MakeApplication) -> None:
    """The key and what is expected."""
    app = make_app(bindings__a__consumer__retryable_exceptions__NoSuchError="true")
    app.stream_listener("a")(take)
    with (
        pytest.raises(ConfigurationError, match="'NoSuchError' is not an exception class") as caught,
        app.test(),
    ):
        pass
    assert caught.value.origin is not None


def test_a_binding_is_an_input_or_an_output(app: StreamApplication, test: Start) -> None:
    """Not both."""
    app.stream_listener("a")(send_to("a")(partial(take)))
    with pytest.raises(ConfigurationError, match="binding 'a' is used as an input and as an output"):
        test()


def test_of_several_listeners_none_may_return(app: StreamApplication, test: Start) -> None:
    """Whose result would it be?"""

    async def answer(payload: str) -> str:
        return payload

    app.stream_listener("a")(take)
    app.stream_listener("a")(send_to("b")(answer))
    with pytest.raises(ConfigurationError, match="has 2 listeners, so none of them may have @send_to"):
        test()


def test_a_method_cannot_be_registered_without_its_object() -> None:
    """The error says how to do it."""
    app = StreamApplication()
    with pytest.raises(TypeError, match=r"is a method: decorate it with streamkit\.stream_listener"):

        class Listeners:
            @app.stream_listener("a")
            def take(self, payload: str) -> None:
                """A method."""


def test_a_class_that_asks_for_too_much_is_told_what_there_is(make_app: MakeApplication) -> None:
    """Constructors are given interfaces, the bridge, the application, and what containers provide."""

    class Listeners:
        def __init__(self, database: dict[str, str]) -> None:
            self.database = database

        @stream_listener("a")
        def take(self, payload: str) -> None:
            """A method."""

    with pytest.raises(ConfigurationError, match="asks for 'database'"), make_app(Listeners).test():
        pass


def test_a_source_with_nothing_in_it_is_a_mistake(make_app: MakeApplication) -> None:
    """Neither listeners nor channels."""

    class Nothing:
        """Nothing."""

    with pytest.raises(ConfigurationError, match=r"Nothing.*neither listeners nor"), make_app(Nothing).test():
        pass


def test_an_application_that_does_not_run_says_how_to_start_it() -> None:
    """The bridge and bindings need it."""
    app = StreamApplication(config_location="optional:/none")
    with pytest.raises(ApplicationError, match="start it with `async with app`"):
        app.bridge.send("a", "x")
    with pytest.raises(ApplicationError, match="start it"):
        app.binding("a")


def test_starting_twice_is_an_error(app: StreamApplication, test: Start) -> None:
    """The application runs already."""
    harness = test()
    with pytest.raises(ApplicationError, match="runs already"):
        harness.run(app.start())


def test_unknown_bindings_of_a_running_application_are_told(app: StreamApplication, test: Start) -> None:
    """With those there are."""
    app.stream_listener("a")(take)
    test()
    with pytest.raises(ApplicationError, match="no binding 'x'; there are: a"):
        app.binding("x")
    assert app.binding("A") is app.binding("a")


def test_an_interface_without_channels_is_refused(app: StreamApplication) -> None:
    """enable_binding expects declarations."""
    with pytest.raises(TypeError, match="declares no channels"):
        app.enable_binding(dict)


def test_an_unbound_interface_says_how_to_bind_it() -> None:
    """An instance made by hand has no channels."""
    with pytest.raises(TypeError, match=r"take it from app\.bound\(Source\)"):
        _ = Source().output


def test_a_blocking_send_on_the_loop_is_refused(app: StreamApplication, test: Start) -> None:
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


def test_a_wrong_shutdown_timeout_is_told_at_start() -> None:
    """Not when it is needed, which is too late."""
    properties = {"spring.lifecycle.timeout-per-shutdown-phase": "soon"}
    app = StreamApplication(config_location="optional:/none", properties=properties)
    started = False
    with pytest.raises(ConfigurationError, match="timeout-per-shutdown-phase=soon: expected a"), app.test():
        started = True
    assert not started
