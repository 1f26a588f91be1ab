"""The functions and objects that settings name, registered under these names at the application.

::

    app.register("slow", RetryPolicy(max_attempts=10))       consumer.retry-template-name=slow

    @app.named("by-customer")                                producer.partition-key-extractor-name=by-customer
    def customer(message): ...

The providers of a dependency-injector container that is given to the application can be named, too.
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
    """Objects by name: first the registered objects, then those of the containers."""

    def __init__(self, containers: Iterable[NamedProviders] = ()) -> None:
        self._containers = tuple(containers)
        self._objects: dict[str, object] = {}

    def add(self, name: str, value: object) -> None:
        """Register ``value`` under a name that settings may use.

        Raises:
            ValueError: Another object has that name.
        """
        if self._objects.setdefault(name, value) is not value:
            raise ValueError(f"{name!r} is the name of {self._objects[name]!r} already")

    def find(self, name: str, kind: str, narrow: Callable[[object], T | None]) -> T:
        """Return the object of that name.

        Args:
            name: The name in the setting.
            kind: The kind of object, such as ``a retry policy``, for errors.
            narrow: Returns its argument if that is of the kind, else None.

        Raises:
            LookupError: There is no object of that name, or it is of another kind.
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
        """All names, sorted."""
        return sorted({*self._objects, *(name for each in self._containers for name in each.providers)})

    def _lookup(self, name: str) -> object | None:
        found = self._objects.get(name)
        if found is not None:
            return found
        provided = (each.providers[name] for each in self._containers if name in each.providers)
        return next((provider() for provider in provided), None)

    def __repr__(self) -> str:
        return f"<NamedObjects {self.names}>"
