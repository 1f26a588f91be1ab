"""The binders of an application by name, and the default binder.

Binder types come from plugins, which are imported when a setting first needs a type. Without any setting
``spring.cloud.stream.binders.*`` each installed type is a binder with the type's name. With such a setting only the
binders of the settings exist.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

from streamkit.binder.binder import Binder, BinderContext
from streamkit.binder.binder_type import BinderTypes
from streamkit.binder.customizers import Customizers
from streamkit.clock import Clock
from streamkit.config.environment import Environment
from streamkit.config.judgement import unknown_binder
from streamkit.config.settings import PREFIX, BinderConfiguration, StreamSettings
from streamkit.errors import ConfigurationError

__all__ = ["BinderRegistry"]


class BinderRegistry:
    """The configured binders by name; each is made and started when a binding first needs it.

    Attributes:
        types: The installed binder types.
    """

    def __init__(
        self,
        types: BinderTypes,
        environment: Environment,
        settings: StreamSettings,
        clock: Clock,
        application: str,
        *,
        customizers: Customizers | None = None,
    ) -> None:
        self.types = types
        self._environment = environment
        self._settings = settings
        self._clock = clock
        self._application = application
        self._customizers = customizers or Customizers()
        self._made: dict[str, Binder] = {}
        self._started: set[str] = set()
        self._starting: dict[str, asyncio.Lock] = {}

    @property
    def configurations(self) -> Mapping[str, BinderConfiguration]:
        """The binders of the settings by name, or one for each installed type."""
        if self._settings.binders:
            return self._settings.binders
        return {name: BinderConfiguration(type=name) for name in self.types.names}

    @property
    def made(self) -> Mapping[str, Binder]:
        """The binders that have been made for bindings, by name."""
        return self._made

    def get(self, name: str | None) -> Binder:
        """Return a binder, which may not be started yet; make it if it is new.

        Args:
            name: The binder's name, or None for the default binder.

        Raises:
            ConfigurationError: There is no such binder, its settings are wrong, or no default can be chosen.
        """
        name = name or self.default_name()
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = self._make(name)
        return found

    def type_of(self, name: str) -> str:
        """Return the name of a binder's type; the binder is not made.

        Raises:
            ConfigurationError: There is no such binder.
        """
        configuration = self.configurations.get(name)
        if configuration is None:
            raise unknown_binder(name, self.configurations)
        return configuration.type or name

    def default_name(self) -> str:
        """Return the name of the default binder; the binder is not made.

        Raises:
            ConfigurationError: No default binder can be chosen.
        """
        if self._settings.default_binder:
            return self._settings.default_binder
        candidates = self._candidates()
        if len(candidates) == 1:
            return candidates[0]
        if not candidates:
            raise ConfigurationError(f"no binder can be the default: set {PREFIX}.default-binder")
        raise ConfigurationError(
            f"there are several binders, {', '.join(candidates)}: choose one with {PREFIX}.default-binder, or "
            f"for each binding with {PREFIX}.bindings.<name>.binder",
            key=f"{PREFIX}.default-binder",
        )

    def used(self) -> list[str]:
        """Return the names of the binders that the bindings of the settings use.

        The default binder is included if a binding names no binder, or if there are no bindings.

        Raises:
            ConfigurationError: No default binder can be chosen.
        """
        bindings = self._settings.bindings.values()
        names = [binding.binder for binding in bindings if binding.binder]
        if len(names) < len(bindings) or not names:
            names.insert(0, self.default_name())
        return [name for name in dict.fromkeys(names) if name in self.configurations]

    def shared_system(self, name: str) -> AbstractAsyncContextManager[Mapping[str, str]] | None:
        """Return the context manager of :meth:`BinderType.shared_system` for a binder, or None.

        Raises:
            ConfigurationError: The binder's settings are wrong.
        """
        configuration = self.configurations[name]
        type_ = self.types.get(self.type_of(name))
        return type_.shared_system(name, self._context(name, configuration))

    def key_for(self, name: str, key: str) -> str:
        """Return the key in the application's settings that sets ``key`` in the environment of binder ``name``."""
        return f"{PREFIX}.binders[{name}].environment.{key}" if self._settings.binders else key

    async def started(self, binder: Binder) -> Binder:
        """Start ``binder`` if it is not started, and return it.

        Raises:
            BinderUnavailable: The binder's system cannot be reached; another call tries again.
            BinderError: The binder's system refused.
        """
        lock = self._starting.setdefault(binder.name, asyncio.Lock())
        async with lock:
            if binder.name not in self._started:
                try:
                    await binder.start()
                except BaseException:
                    # A start that fails or is cancelled in the middle leaves connections open.
                    await binder.stop()
                    raise
                self._started.add(binder.name)
        return binder

    async def stop(self) -> None:
        """Stop every binder that was started, the newest first.

        Raises:
            Exception: The first error of a binder, raised after all binders have been stopped.
        """
        errors: list[Exception] = []
        for name in reversed([name for name in self._made if name in self._started]):
            try:
                await self._made[name].stop()
            except Exception as error:
                errors.append(error)
        self._made.clear()
        self._started.clear()
        if errors:
            raise errors[0]

    def _make(self, name: str) -> Binder:
        type_ = self.type_of(name)
        context = self._context(name, self.configurations[name])
        binder = self.types.create(type_, name, context)
        self._customizers.binder(binder)
        return binder

    def _context(self, name: str, configuration: BinderConfiguration) -> BinderContext:
        environment = self._environment_of(name, configuration)
        return BinderContext(
            environment,
            self._clock,
            self._application,
            lambda type_: self.types.get(type_).stand_in(environment),
        )

    def _environment_of(self, name: str, configuration: BinderConfiguration) -> Environment:
        if not configuration.environment and configuration.inherit_environment:
            return self._environment
        prefix = f"{PREFIX}.binders[{name}].environment"
        return self._environment.below(prefix, inherit=configuration.inherit_environment)

    def _candidates(self) -> list[str]:
        """Return the names of the binders that may be the default; of several implicit binders, those with settings."""
        if self._settings.binders:
            return [name for name, each in self._settings.binders.items() if each.default_candidate]
        implicit = [name for name in self.types.names if self.types.get(name).is_default_candidate]
        if len(implicit) > 1:
            configured = [name for name in implicit if self._environment.sets_below(f"{PREFIX}.{name}")]
            return configured or implicit
        return implicit
