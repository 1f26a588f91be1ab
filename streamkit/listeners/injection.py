"""Resolution of dependency-injector's markers, such as ``Provide[Repositories.orders]``, in containers."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from dependency_injector.containers import Container
from dependency_injector.wiring import Provide, Provider, ProvidersMap

__all__ = ["Injection"]


# Type checkers take dependency-injector's markers for functions.
_PROVIDER: Final[Any] = Provider
_MARKERS: Final[Any] = (Provide, Provider)


class Injection:
    """Resolves the markers of dependency-injector."""

    def __init__(self, containers: Sequence[Container]) -> None:
        """Create a resolver that searches these containers in the given order."""
        self._containers = tuple(containers)

    def find(self, marker: object) -> Callable[[], object] | None:
        """Return the provider of the marker's value, or None if ``marker`` is not a marker of dependency-injector.

        Raises:
            LookupError: No container has the provider that the marker names, or the marker names none.
        """
        mark: Any = marker
        if any(mark is kind for kind in _MARKERS):
            raise LookupError(f"{mark.__name__} names no provider: write {mark.__name__}[...] with one of a container")
        if not isinstance(mark, _MARKERS):
            return None
        for container in self._containers:
            known = ProvidersMap(container)
            provider: Any = known.resolve_provider(mark.provider, mark.modifier)
            if provider is not None:
                return partial(_itself, provider) if isinstance(mark, _PROVIDER) else provider
        raise LookupError(f"no container provides {mark.provider!r}")


def _itself(provider: object) -> object:
    return provider
