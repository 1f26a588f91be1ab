"""Bindings of a running application, reported and changed by the controller."""

import asyncio
from collections.abc import Callable

import pytest

from streamkit.application import StreamApplication
from streamkit.binder.binder import BindingState
from streamkit.binder.factory import NewDestination
from streamkit.errors import ApplicationError, ConfigurationError, MessagingError
from streamkit.management.bindings_controller import StateChange
from streamkit.messaging.message import Message
from streamkit.testing.harness import Harness

MakeApplication = Callable[..., StreamApplication]


def reported(test: Harness) -> dict[str, tuple[str, BindingState]]:
    """Return the controller's report of each binding."""
    return {info.name: (info.kind, info.state) for info in test.app.controller.query_states()}


def test_binding_states_are_reported(make_app: MakeApplication) -> None:
    """Names, kinds, destinations, groups, states and settings; secrets are masked, dynamic bindings come last."""
    app = make_app(
        output_bindings="out",
        bindings__out__destination="topic",
        bindings__a__consumer__concurrency="3",
        rocketmq__bindings__a__consumer__orderly="true",
    )
    app.stream_listener("a")(lambda: None)
    with app.test() as test:
        app.bridge.send("dyn", "x")
        assert reported(test) == {
            "out": ("producer", BindingState.RUNNING),
            "a": ("consumer", BindingState.RUNNING),
            "dyn": ("producer", BindingState.RUNNING),
        }
        info = app.controller.query_state("A")
        assert (info.destinations, info.group, info.binder, info.is_pausable) == (
            ("a",),
            "g",
            "rocketmq",
            True,
        )
        assert (info.settings["concurrency"], info.settings["orderly"]) == ("3", "true")
        assert [each.is_dynamic for each in app.controller.query_states()] == [False, False, True]
        assert not app.controller.query_state("dyn").is_pausable


def test_input_can_be_stopped_started_paused_and_resumed(app: StreamApplication) -> None:
    """While it is stopped or paused, its group retains messages."""
    received: list[str] = []

    @app.stream_listener("a")
    async def note(text: str) -> None:
        received.append(text)

    with app.test() as test:
        change = app.controller.change_state
        states = [BindingState.STOPPED, BindingState.STOPPED, BindingState.RUNNING]
        assert [test.run(change("a", each)).state for each in ("stopped", "STOPPED", "started")] == states
        assert test.run(change("a", StateChange.PAUSED)).state is BindingState.PAUSED
        test.input("a").send("x")
        assert received == []
        assert test.run(change("a", StateChange.RESUMED)).state is BindingState.RUNNING
        test.settle()
        assert received == ["x"]


def test_stopped_output_refuses_sends(make_app: MakeApplication) -> None:
    """It works again once it is started."""
    app = make_app(output_bindings="out")
    with app.test() as test:
        test.run(app.controller.change_state("out", "STOPPED"))
        with pytest.raises(MessagingError):
            app.channel("out").send(Message("x"))
        test.run(app.controller.change_state("out", "STARTED"))
        assert app.channel("out").send(Message("x"))


def test_binding_without_auto_startup_can_be_started(make_app: MakeApplication) -> None:
    """auto-startup=false: nothing is bound until then."""
    app = make_app(
        output_bindings="b",
        **{"bindings.b.producer.auto-startup": "false", "bindings.a.consumer.auto-startup": "false"},
    )
    received: list[object] = []
    app.stream_listener("a")(received.append)
    with app.test() as test:
        assert {state for _, state in reported(test).values()} == {BindingState.STOPPED}
        test.run(app.controller.change_state("a", "STARTED"))
        test.run(app.controller.change_state("b", "STARTED"))
        test.input("a").send("x")
        assert received == [b"x"]


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        (
            "a",
            "HALTED",
            "unknown state change 'HALTED': expected one of STARTED, STOPPED, PAUSED, RESUMED",
        ),
        ("z", "STOPPED", "there is no binding 'z'; there are: a, out"),
        ("out", "PAUSED", "binding 'out' is an output: only inputs can be paused"),
    ],
)
def test_invalid_state_change_is_reported(make_app: MakeApplication, name: str, change: str, text: str) -> None:
    """With the valid names."""
    app = make_app(output_bindings="out")
    app.stream_listener("a")(lambda: None)
    with app.test() as test, pytest.raises(ApplicationError, match=text):
        test.run(app.controller.change_state(name, change))


def test_stopped_input_cannot_be_paused(app: StreamApplication) -> None:
    """It must be started first."""
    app.stream_listener("a")(lambda: None)
    with app.test() as test:
        test.run(app.controller.change_state("a", "STOPPED"))
        with pytest.raises(ApplicationError, match="'a' is stopped: start it before it is paused"):
            test.run(app.controller.change_state("a", "PAUSED"))


def test_bindings_can_be_added_while_running(app: StreamApplication) -> None:
    """Inputs with converted listener arguments, and outputs; their settings apply."""
    received: list[int] = []

    async def note(number: int) -> None:
        received.append(number)

    with app.test() as test:
        test.run(app.controller.define_input("a", note))
        test.run(app.controller.define_output("new"))
        test.input("a").send(5)
        app.channel("new").send(Message("x"))
        assert received == [5]
        assert test.output("new").receive().payload == b"x"
        assert app.controller.query_state("a").group == "g"
        with pytest.raises(ApplicationError, match="there is a binding 'a' already"):
            test.run(app.controller.define_input("a", note))
    with app.test():
        assert app.controller.query_states() == []


def test_binding_that_fails_to_be_added_leaves_nothing(make_app: MakeApplication) -> None:
    """The error is raised, and it can be tried again."""
    app = make_app(bindings__a__binder="nonesuch")

    async def note(number: int) -> None:
        """Do nothing."""

    with app.test() as test:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="nonesuch"):
                test.run(app.controller.define_input("a", note))
        assert reported(test) == {}


def test_settings_of_a_new_destination_can_be_customized(app: StreamApplication) -> None:
    """The callback gets name and settings once per new binding, and its changes apply."""
    asked: list[str] = []

    @app.on_new_destination
    def elsewhere(new: NewDestination) -> None:
        asked.append(new.name)
        new.properties = new.properties.model_copy(update={"destination": f"eu.{new.name}"})

    with app.test() as test:
        for text in "xy":
            app.bridge.send("orders", text)
        assert [message.payload for message in test.output("eu.orders").receive_all()] == [b"x", b"y"]
    assert asked == ["orders"]


def test_concurrent_sends_to_many_new_destinations_succeed(make_app: MakeApplication) -> None:
    """With a cache size of one, each send finds its binding bound; the last one stays."""
    app = make_app(**{"dynamic-destination-cache-size": "1"})

    async def send_all() -> list[bool]:
        return await asyncio.gather(*(app.bridge.asend(f"topic-{n % 7}", str(n)) for n in range(50)))

    with app.test() as test:
        assert all(test.run(send_all()))
        assert sum(len(test.output(f"topic-{n}").receive_all()) for n in range(7)) == 50
        assert len([info for info in app.controller.query_states() if info.is_dynamic]) == 1


def test_unlisted_dynamic_destination_is_refused(make_app: MakeApplication) -> None:
    """With dynamic-destinations, only listed and configured ones are allowed; the error has the list."""
    app = make_app(**{"dynamic-destinations": "t, u"})
    with app.test():
        assert app.bridge.send("t", "x")
        assert app.bridge.send("a", "x")
        with pytest.raises(
            ConfigurationError, match=r"'v' may not be bound while the application runs: .* lists only t, u"
        ):
            app.bridge.send("v", "x")
