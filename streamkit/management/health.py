"""The health of an application: of its binders and its bindings."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streamkit.binder.binder import Binder, Health, HealthStatus
from streamkit.binder.binding import Binding, OutputBinding
from streamkit.management.answers import NoAnswer, answers

__all__ = ["HealthComponent", "application_health"]


@dataclass(frozen=True, slots=True)
class HealthComponent:
    """The health of a component and of its parts.

    Attributes:
        status: The worst status of the parts, or the component's own.
        details: Information for people, by name.
        components: The parts, by name.
    """

    status: HealthStatus
    details: Mapping[str, str] = field(default_factory=dict)
    components: Mapping[str, "HealthComponent"] = field(default_factory=dict)

    def find(self, *path: str) -> "HealthComponent | None":
        """Return the component at this path of names, or None."""
        if not path:
            return self
        part = self.components.get(path[0])
        return None if part is None else part.find(*path[1:])


async def application_health(binders: Iterable[Binder], bindings: Iterable[Binding]) -> HealthComponent:
    """Return the health of an application: of its binders, asked now and all at once, and of its bindings."""
    answered = await answers(binders, lambda binder: binder.health())
    parts = {name: _of_binder(answer) for name, answer in answered.items()}
    return _together({"binders": _together(parts), "bindings": _of_bindings(bindings)})


def _of_binder(answer: Health | NoAnswer) -> HealthComponent:
    if isinstance(answer, NoAnswer):
        return HealthComponent(HealthStatus.DOWN, {"reason": answer.reason})
    return HealthComponent(answer.status, answer.details)


def _of_bindings(bindings: Iterable[Binding]) -> HealthComponent:
    """Return DOWN if a binding that is to be bound is not, or if its feeder is down.

    A binding that was stopped on purpose does not count as down.
    """
    states: dict[str, str] = {}
    is_well = True
    for binding in bindings:
        states[binding.name] = binding.state.value
        for health in _of_feeders(binding):
            if health.status is HealthStatus.DOWN:
                is_well = False
                reason = ", ".join(f"{name}: {value}" for name, value in health.details.items())
                states[binding.name] = f"{binding.state.value}, but what feeds it is down: {reason}"
        if binding.failure is not None:
            is_well = False
            states[binding.name] = f"cannot be bound: {binding.failure}"
        elif binding.is_expected:
            is_well = False
            reason = "" if binding.refusal is None else f": {binding.refusal}"
            states[binding.name] = f"cannot be bound, and is tried again{reason}"
    return HealthComponent(HealthStatus.UP if is_well else HealthStatus.DOWN, states)


def _of_feeders(binding: Binding) -> list[Health]:
    return [feeder.health() for feeder in binding.feeders] if isinstance(binding, OutputBinding) else []


def _together(parts: Mapping[str, HealthComponent]) -> HealthComponent:
    statuses = {part.status for part in parts.values()}
    worst = next((each for each in (HealthStatus.DOWN, HealthStatus.UP) if each in statuses), None)
    return HealthComponent(worst or HealthStatus.UNKNOWN, components=parts)
