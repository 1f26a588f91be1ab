"""The bindings of a running application: what they are doing, told and changed from outside.

::

    for binding in app.controller.query_states():
        print(binding.name, binding.state)
    await app.controller.change_state("orders", StateChange.PAUSED)
    await app.controller.define_input("audit", note)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from streamkit.binder.binder import BindingState
from streamkit.binder.binding import Binding, InputBinding, OutputBinding
from streamkit.binder.binding_service import BindingService
from streamkit.binder.capabilities import Capability
from streamkit.config.explain import explain_model
from streamkit.errors import ApplicationError, UnknownBinding

__all__ = ["BindingInfo", "BindingsController", "StateChange"]


class StateChange(Enum):
    """What can be done with a binding."""

    STARTED = "STARTED"
    STOPPED = "STOPPED"
    PAUSED = "PAUSED"
    RESUMED = "RESUMED"


@dataclass(frozen=True, slots=True)
class BindingInfo:
    """A binding, as it is now.

    Attributes:
        name: Its name.
        kind: `consumer` or `producer`.
        destinations: What it is bound to.
        group: Its group; None of a producer, and of an anonymous consumer.
        binder: The name of its binder.
        state: Running, paused or stopped.
        is_pausable: Whether it can be paused.
        is_dynamic: Whether it was made when it was first sent to.
        settings: Its settings, its binder's own among them, by their names; secrets are hidden.
    """

    name: str
    kind: str
    destinations: Sequence[str]
    group: str | None
    binder: str
    state: BindingState
    is_pausable: bool
    is_dynamic: bool
    settings: Mapping[str, str]


class RunningApplication(Protocol):
    """What the controller needs of its application while that runs."""

    @property
    def service(self) -> BindingService:
        """What has the bindings."""
        ...

    async def define_input(self, name: str, listeners: Sequence[Callable[..., object]]) -> InputBinding:
        """Return a new input binding."""
        ...

    async def define_output(self, name: str) -> OutputBinding:
        """Return a new output binding."""
        ...


class BindingsController:
    """Tells and changes what the bindings of an application do; all of it on the application's loop.

    Other threads use the portal: ``app.portal.run(app.controller.change_state("orders", StateChange.STOPPED))``.
    """

    def __init__(self, application: Callable[[], RunningApplication]) -> None:
        self._application = application

    def query_states(self) -> list[BindingInfo]:
        """Return all bindings, those made by sending to a new name last."""
        service = self._application().service
        known = [_info(binding, is_dynamic=False) for binding in service.bindings.values()]
        return known + [_info(binding, is_dynamic=True) for binding in service.dynamic]

    def query_state(self, name: str) -> BindingInfo:
        """Return one binding, by its name in any case.

        Raises:
            UnknownBinding: There is no such binding.
        """
        binding = self._find(name)
        return _info(binding, is_dynamic=binding in self._application().service.dynamic)

    async def change_state(self, name: str, change: StateChange | str) -> BindingInfo:
        """Start, stop, pause or resume a binding; return it as it is then.

        Asked for what it already does, it goes on doing it. Stopping waits for calls in flight.

        Raises:
            UnknownBinding: There is no such binding.
            ApplicationError: There is no such change, or it is none for this binding as it is.
            UnsupportedCapability: Its binder cannot pause.
            BinderUnavailable: Its binder's system is away, so that it cannot be started.
        """
        binding, wanted = self._find(name), _change(change)
        if wanted in (StateChange.PAUSED, StateChange.RESUMED) and isinstance(binding, OutputBinding):
            raise ApplicationError(f"binding {binding.name!r} is an output: only inputs can be paused")
        match wanted:
            case StateChange.STARTED:
                await binding.start()
            case StateChange.STOPPED:
                await binding.stop()
            case StateChange.PAUSED:
                if binding.state is BindingState.STOPPED:
                    raise ApplicationError(
                        f"binding {binding.name!r} is stopped: start it before it is paused"
                    )
                await binding.pause()
            case StateChange.RESUMED:
                await binding.resume()
        return self.query_state(name)

    async def define_input(self, name: str, *listeners: Callable[..., object]) -> InputBinding:
        """Return a new input binding, bound unless its settings say otherwise.

        Args:
            name: Its name; settings below it count, else its destination is its name.
            listeners: Functions that are called as those decorated with `stream_listener` are. Without one, what
                comes goes to who subscribes to the binding's channel.

        Raises:
            ApplicationError: There is a binding of that name.
            ConfigurationError: Its settings or listeners are wrong.
        """
        self._refuse_known(name)
        return await self._application().define_input(name, listeners)

    async def define_output(self, name: str) -> OutputBinding:
        """Return a new output binding, bound unless its settings say otherwise.

        Raises:
            ApplicationError: There is a binding of that name.
            ConfigurationError: Its settings are wrong.
        """
        self._refuse_known(name)
        return await self._application().define_output(name)

    def _find(self, name: str) -> Binding:
        service = self._application().service
        found = service.find(name) or next((each for each in service.dynamic if each.name == name), None)
        if found is None:
            known = ", ".join(sorted(service.bindings)) or "none"
            raise UnknownBinding(f"there is no binding {name!r}; there are: {known}")
        return found

    def _refuse_known(self, name: str) -> None:
        if self._application().service.find(name) is not None:
            raise ApplicationError(f"there is a binding {name!r} already: change_state starts and stops it")


def _change(text: StateChange | str) -> StateChange:
    try:
        return text if isinstance(text, StateChange) else StateChange(text.upper())
    except ValueError:
        known = ", ".join(change.value for change in StateChange)
        raise ApplicationError(f"unknown state change {text!r}: expected one of {known}") from None


def _info(binding: Binding, *, is_dynamic: bool) -> BindingInfo:
    binder = binding.binder.binder
    is_input = isinstance(binding, InputBinding)
    return BindingInfo(
        binding.name,
        "consumer" if is_input else "producer",
        binding.destinations,
        binding.group if isinstance(binding, InputBinding) else None,
        binder.name,
        binding.state,
        is_input and Capability.PAUSE in binder.capabilities(),
        is_dynamic,
        {row.key: row.value for model in binding.settings for row in explain_model(model, {})},
    )
