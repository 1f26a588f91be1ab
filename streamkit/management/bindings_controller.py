"""The controller of a running application's bindings: it lists and changes their states.

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
    """A change of a binding's state."""

    STARTED = "STARTED"
    STOPPED = "STOPPED"
    PAUSED = "PAUSED"
    RESUMED = "RESUMED"


@dataclass(frozen=True, slots=True)
class BindingInfo:
    """The present state of a binding.

    Attributes:
        name: The binding's name.
        kind: `consumer` or `producer`.
        destinations: The destinations that it is bound to.
        group: The consumer group; None for a producer and for an anonymous consumer.
        binder: The binder's name.
        state: Running, paused or stopped.
        is_pausable: Whether the binding can be paused.
        is_dynamic: Whether the binding was created by sending to a new name.
        settings: The binding's settings by name, including those of its binder; secrets are hidden.
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
    """The part of a running application that the controller uses."""

    @property
    def service(self) -> BindingService:
        """The service that manages the bindings."""
        ...

    async def define_input(self, name: str, listeners: Sequence[Callable[..., object]]) -> InputBinding:
        """Create an input binding and return it."""
        ...

    async def define_output(self, name: str) -> OutputBinding:
        """Create an output binding and return it."""
        ...


class BindingsController:
    """Lists, changes and creates the bindings of an application; call its methods on the application's loop.

    Other threads use the portal: ``app.portal.run(app.controller.change_state("orders", StateChange.STOPPED))``.
    """

    def __init__(self, application: Callable[[], RunningApplication]) -> None:
        self._application = application

    def query_states(self) -> list[BindingInfo]:
        """Return the states of all bindings; those created by sending to a new name come last.

        Raises:
            ApplicationError: The application is not running.
        """
        service = self._application().service
        known = [_info(binding, is_dynamic=False) for binding in service.bindings.values()]
        return known + [_info(binding, is_dynamic=True) for binding in service.dynamic]

    def query_state(self, name: str) -> BindingInfo:
        """Return the state of one binding, by its name in any spelling of case and dashes.

        Raises:
            ApplicationError: The application is not running.
            UnknownBinding: There is no such binding.
        """
        binding = self._find(name)
        return _info(binding, is_dynamic=binding in self._application().service.dynamic)

    async def change_state(self, name: str, change: StateChange | str) -> BindingInfo:
        """Start, stop, pause or resume a binding; return its new state.

        A binding that is in the wanted state already is left unchanged. Stopping waits for calls in flight.

        Args:
            name: The binding's name.
            change: The change, or its name in any case.

        Raises:
            UnknownBinding: There is no such binding.
            ApplicationError: There is no such change, or the binding does not allow the change in its present state.
            UnsupportedCapability: The binder cannot pause.
            BinderUnavailable: The binding cannot be started, because the messaging system is unavailable.
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
                    raise ApplicationError(f"binding {binding.name!r} is stopped: start it before it is paused")
                await binding.pause()
            case StateChange.RESUMED:
                await binding.resume()
        return self.query_state(name)

    async def define_input(self, name: str, *listeners: Callable[..., object]) -> InputBinding:
        """Create an input binding and return it, bound unless its settings disable automatic startup.

        Args:
            name: The binding's name, under which its settings are looked up; also its destination if no setting gives
                another.
            listeners: Functions that are called like those decorated with `stream_listener`. Without any, messages go
                to the subscribers of the binding's channel.

        Raises:
            ApplicationError: There is a binding of this name already.
            ConfigurationError: The settings or listeners are invalid.
        """
        self._refuse_known(name)
        return await self._application().define_input(name, listeners)

    async def define_output(self, name: str) -> OutputBinding:
        """Create an output binding and return it, bound unless its settings disable automatic startup.

        Args:
            name: The binding's name, under which its settings are looked up; also its destination if no setting gives
                another.

        Raises:
            ApplicationError: There is a binding of this name already.
            ConfigurationError: The settings are invalid.
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
            raise ApplicationError(f"there is a binding {name!r} already: start or stop it with change_state")


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
