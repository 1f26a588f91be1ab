"""What the log says of a start: the profiles and settings files at its beginning, the bindings at its end."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from streamkit.binder.binder import BindingState
from streamkit.binder.binding import Binding, InputBinding
from streamkit.config.environment import Environment

__all__ = ["bindings_text", "settings_text", "start_fields"]


def settings_text(environment: Environment) -> str:
    """Return which profiles are active and which files were read: `Profile prod, settings from application.yml`."""
    profiles = environment.active_profiles
    active = f"Profile{'s' if len(profiles) > 1 else ''} {', '.join(profiles)}" if profiles else "No profiles"
    return f"{active}, {environment.files}"


def bindings_text(application: str, profiles: Sequence[str], bindings: Iterable[Binding]) -> str:
    """Return the application and its bindings by binder, each with its group and any state other than `running`.

    `shop (prod); rocketmq at 127.0.0.1:9876: input orders (group kitchen), output receipts (stopped)`
    """
    ordered = sorted(bindings, key=lambda binding: (_binder_name(binding), not isinstance(binding, InputBinding)))
    parts = [_of_binder(list(group)) for _, group in groupby(ordered, _binder_name)]
    active = f" ({', '.join(profiles)})" if profiles else ""
    return "; ".join([f"{application}{active}", *(parts or ["no bindings"])])


def start_fields(application: str, profiles: Sequence[str], bindings: Iterable[Binding]) -> Mapping[str, object]:
    """Return the same as structured fields of the line."""
    return {"application": application, "profiles": list(profiles), "bindings": [*map(_binding_fields, bindings)]}


def _binding_fields(binding: Binding) -> Mapping[str, object]:
    binder = binding.binder.binder
    return {
        "binding": binding.name,
        "kind": "input" if isinstance(binding, InputBinding) else "output",
        "destination": ",".join(binding.destinations),
        "group": binding.group if isinstance(binding, InputBinding) else None,
        "binder": binder.name,
        "address": binder.address,
        "state": binding.state.value,
    }


def _binder_name(binding: Binding) -> str:
    return binding.binder.binder.name


def _of_binder(bindings: list[Binding]) -> str:
    binder = bindings[0].binder.binder
    where = f"{binder.name} at {binder.address}" if binder.address else binder.name
    return f"{where}: {', '.join(map(_binding_text, bindings))}"


def _binding_text(binding: Binding) -> str:
    kind = "input" if isinstance(binding, InputBinding) else "output"
    notes = ", ".join(_notes(binding))
    return f"{kind} {binding.name}" + (f" ({notes})" if notes else "")


def _notes(binding: Binding) -> Iterator[str]:
    if binding.destinations != (binding.name,):
        yield f"{'from' if isinstance(binding, InputBinding) else 'to'} {', '.join(binding.destinations)}"
    if isinstance(binding, InputBinding):
        yield f"group {binding.group}" if binding.group else "no group"
    if binding.state is not BindingState.RUNNING:
        yield binding.state.value
