"""Parts of the application can be inspected, replaced and extended."""

from collections.abc import Callable

from dependency_injector import providers

from streamkit.application import StreamApplication
from streamkit.container import OF_ONE_RUN, ApplicationContainer
from streamkit.errors import MessageConversionError
from streamkit.messaging.converter import CompositeMessageConverter
from streamkit.messaging.message_converter import Reader, Writer
from streamkit.messaging.mime import MimeType
from streamkit.testing.harness import Harness

Start = Callable[[], Harness]


class Celsius:
    """A type that only its own converter supports."""

    def __init__(self, degrees: float) -> None:
        self.degrees = degrees


class CelsiusConverter:
    """Writes and reads `21C`."""

    def reader(self, type_: object, mime: MimeType) -> Reader | None:
        """Return the reader of its own type only."""
        return _read if type_ is Celsius else None

    def writer(self, type_: type, mime: MimeType) -> Writer | None:
        """Return the writer of its own type only."""
        return (lambda celsius: f"{celsius.degrees:g}C".encode()) if type_ is Celsius else None


def _read(data: bytes) -> Celsius:
    if not data.endswith(b"C"):
        raise MessageConversionError("no temperature")
    return Celsius(float(data[:-1]))


class StoppedClock:
    """A clock that stands still."""

    def now_ms(self) -> int:
        """Return always the same time."""
        return 42


def test_own_converters_take_precedence() -> None:
    """In listeners, outputs and the test harness."""
    app = StreamApplication(
        config_location="optional:/none",
        properties={"spring.cloud.stream.bindings.a.destination": "a"},
        converters=[CelsiusConverter()],
    )
    seen: list[float] = []

    @app.stream_listener("a")
    async def note(temperature: Celsius) -> None:
        seen.append(temperature.degrees)

    with app.test() as test:
        test.input("a").send(Celsius(21))
        app.bridge.send("b", Celsius(5))
        assert test.output("b").receive(Celsius).payload.degrees == 5
    assert seen == [21]


def test_parts_can_be_overridden(app: StreamApplication) -> None:
    """For example the clock that timestamps messages."""
    app.container.clock.override(providers.Object(StoppedClock()))
    assert app.clock.now_ms() == 42


def test_settings_and_bindings_are_parts(app: StreamApplication, test: Start) -> None:
    """They are what the application runs with."""
    app.stream_listener("a")(lambda: None)
    test()
    assert app.container.settings().value.bindings["a"].group == "g"
    assert app.container.bindings().bindings == app.bindings
    assert app.container.application() is app


def test_each_run_takes_its_parts_from_the_container(app: StreamApplication) -> None:
    """Overrides apply; the next run creates new parts, again with the custom ones first."""

    class Counted(CompositeMessageConverter):
        """A converter that counts look-ups."""

    converter = Counted()
    app.stream_listener("a")(lambda text: None)
    with app.container.converter.override(providers.Object(converter)), app.test() as test:
        assert test.converter() is converter
        first = app.container.assembly()
        assert app.container.assembly() is first
    with app.test() as test:
        assert test.converter() is not converter
        assert app.container.assembly() is not first


def test_names_of_parts_per_run_are_providers() -> None:
    """Each name that is reset after a run is a provider's."""
    assert set(OF_ONE_RUN) <= set(ApplicationContainer.providers)
