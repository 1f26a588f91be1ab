"""What settings name: functions and objects that an application was given under a name.

::

    app.register("slow", RetryPolicy(max_attempts=10))       consumer.retry-template-name=slow

    @app.named("by-customer")                                producer.partition-key-extractor-name=by-customer
    def customer(message): ...

A dependency-injector container given to the application is looked into by the names of its providers.
"""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Protocol, TypeVar

__all__ = ["NamedObjects"]

T = TypeVar("T")


class NamedProviders(Protocol):
    """A container whose providers have names."""

    @property
    def providers(self) -> Mapping[str, Callable[[], object]]:
        """The providers by name."""
        ...


class NamedObjects:
    """Objects by name: those registered, then those a container provides."""

    def __init__(self, containers: Iterable[NamedProviders] = ()) -> None:
        self._containers = tuple(containers)
        self._objects: dict[str, object] = {}

    def add(self, name: str, value: object) -> None:
        """After the call settings may name ``value``.

        Raises:
            ValueError: Another object has that name.
        """
        if self._objects.setdefault(name, value) is not value:
            raise ValueError(f"{name!r} is the name of {self._objects[name]!r} already")

    def find(self, name: str, kind: str, narrow: Callable[[object], T | None]) -> T:
        """Return the object of that name.

        Args:
            name: What a setting says.
            kind: What the setting asks for, such as ``a retry policy``.
            narrow: Returns the object if it is of that kind, else None.

        Raises:
            LookupError: There is none, or it is of another kind.
        """
        found = self._lookup(name)
        if found is None:
            near = get_close_matches(name, self.names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(self.names) or 'none'}."
            raise LookupError(
                f"nothing is registered as {name!r}; {hint} Register {kind} with app.register({name!r}, ...)"
            )
        narrowed = narrow(found)
        if narrowed is None:
            raise LookupError(f"{name!r} is {found!r}, not {kind}")
        return narrowed

    @property
    def names(self) -> list[str]:
        """Every name, sorted."""
        return sorted({*self._objects, *(name for each in self._containers for name in each.providers)})

    def _lookup(self, name: str) -> object | None:
        found = self._objects.get(name)
        if found is not None:
            return found
        provided = (each.providers[name] for each in self._containers if name in each.providers)
        return next((provider() for provider in provided), None)

    def __repr__(self) -> str:
        return f"<NamedObjects {self.names}>"
