"""Whether an application can do its work: its binders, and its bindings."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from streamkit.binder.binder import Binder, Health, HealthStatus
from streamkit.binder.binding import Binding

__all__ = ["HealthComponent", "application_health"]

_PATIENCE: Final = 5.0
"""Seconds a binder gets to say how it is."""


@dataclass(frozen=True, slots=True)
class HealthComponent:
    """The health of something, and of its parts.

    Attributes:
        status: The worst of its parts', or its own.
        details: What people may want to know.
        components: Its parts.
    """

    status: HealthStatus
    details: Mapping[str, str] = field(default_factory=dict)
    components: Mapping[str, "HealthComponent"] = field(default_factory=dict)

    def find(self, *path: str) -> "HealthComponent | None":
        """Return the part of that path, or None."""
        if not path:
            return self
        part = self.components.get(path[0])
        return None if part is None else part.find(*path[1:])


async def application_health(binders: Iterable[Binder], bindings: Iterable[Binding]) -> HealthComponent:
    """Return the health of an application: of its binders, asked now and all at once, and of its bindings."""
    asked = list(binders)
    answers = await asyncio.gather(*map(_ask, asked))
    parts = {
        binder.name: HealthComponent(health.status, health.details)
        for binder, health in zip(asked, answers, strict=True)
    }
    return _together({"binders": _together(parts), "bindings": _of_bindings(bindings)})


async def _ask(binder: Binder) -> Health:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await binder.health()
    except TimeoutError:
        return Health(HealthStatus.DOWN, {"reason": f"no answer within {_PATIENCE:g} s"})
    except Exception as error:  # a binder that breaks its promise is not well
        return Health(HealthStatus.DOWN, {"reason": str(error)})


def _of_bindings(bindings: Iterable[Binding]) -> HealthComponent:
    """DOWN while one that is to be bound is not; one that was stopped by hand is as it should be."""
    states: dict[str, str] = {}
    is_well = True
    for binding in bindings:
        states[binding.name] = binding.state.value
        if binding.is_expected or binding.failure is not None:
            is_well = False
            reason = "is tried again" if binding.failure is None else str(binding.failure)
            states[binding.name] = f"cannot be bound: {reason}"
    return HealthComponent(HealthStatus.UP if is_well else HealthStatus.DOWN, states)


def _together(parts: Mapping[str, HealthComponent]) -> HealthComponent:
    statuses = {part.status for part in parts.values()}
    worst = next((each for each in (HealthStatus.DOWN, HealthStatus.UP) if each in statuses), None)
    return HealthComponent(worst or HealthStatus.UNKNOWN, components=parts)
