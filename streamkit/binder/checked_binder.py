"""The binder of one binding, which is started and checked for the capabilities that the binding's settings require."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from streamkit.binder.binder import Binder
from streamkit.binder.binding import ReadyBinder
from streamkit.binder.capabilities import Capability, Requirement, describe, missing
from streamkit.binder.registry import BinderRegistry
from streamkit.config.located_errors import located, setting_of
from streamkit.config.origin import Value
from streamkit.config.shape import Location
from streamkit.errors import ConfigurationError, UnsupportedCapability

__all__ = ["CheckedBinder", "LocatedRequirement"]


class LocatedRequirement(msgspec.Struct, frozen=True):
    """A required capability with the settings that may require it.

    Attributes:
        requirement: The capability, and the names of the settings that require it.
        origins: The settings that are set, with their origins.
    """

    requirement: Requirement
    origins: Mapping[Location, Value]

    def refused(self, binding: str, binder: Binder, offered: Collection[Capability]) -> UnsupportedCapability:
        """Return the error for a binder that lacks the capability; it names the setting, with file and line.

        Args:
            binding: The binding's name.
            binder: The binder.
            offered: The binder's capabilities.
        """
        setting = setting_of(self.origins, self.requirement.properties)
        capability = self.requirement.capability.value
        where = f"{setting.origin}: {setting.key}={setting.shown}" if setting else f"binding {binding!r}"
        return UnsupportedCapability(
            f"{where} asks for {capability}, which binder {binder.name!r} of type {binder.type!r} cannot do; "
            f"it can: {describe(offered)}",
            key=setting.key if setting else None,
            value=setting.shown if setting else None,
            origin=str(setting.origin) if setting else None,
        )


class CheckedBinder(ReadyBinder):
    """Starts the binder of one binding and checks that it has the capabilities that the settings require."""

    def __init__(
        self, registry: BinderRegistry, binder: Binder, binding: str, asked: Sequence[LocatedRequirement]
    ) -> None:
        self.binder = binder
        self._registry = registry
        self._binding = binding
        self._asked = asked

    def refuse_impossible(self) -> None:
        """Refuse settings that require a capability that no system of the binder's type has, without connecting.

        Raises:
            UnsupportedCapability: A setting requires such a capability.
        """
        self._check(self.binder.possible_capabilities)

    async def get(self) -> Binder:
        binder = await self._registry.started(self.binder)
        self._check(binder.capabilities())
        return binder

    def _check(self, offered: frozenset[Capability]) -> None:
        lacking = missing((each.requirement for each in self._asked), offered)
        for each in self._asked:
            if each.requirement in lacking:
                raise each.refused(self._binding, self.binder, offered)

    def located(self, error: ConfigurationError) -> ConfigurationError:
        if error.key is None or error.origin is not None:
            return error
        for each in self._asked:
            setting = setting_of(each.origins, [error.key])
            if setting is not None:
                return located(setting, error)
        return error
