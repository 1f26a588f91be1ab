"""Which binders there are, and the one behind each binding.

Types are entry points (:mod:`streamkit.binder.plugin`), imported when a setting first needs them. Without
``spring.cloud.stream.binders.*`` each installed type is a binder of that name; any entry there turns the
implicit ones off.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Final

import pluggy
from pydantic import BaseModel

from streamkit.binder.binder import Binder, BinderContext
from streamkit.binder.customizers import Customizers
from streamkit.binder.delivery import ConsumerModel, ProducerModel
from streamkit.binder.plugin import PROJECT, BinderHooks
from streamkit.clock import Clock
from streamkit.config.environment import Environment
from streamkit.config.settings import PREFIX, BinderConfiguration, StreamSettings
from streamkit.errors import ConfigurationError
from streamkit.messaging.cause import kind_and_text

__all__ = ["ENTRY_POINTS", "BinderRegistry", "BinderTypes", "installed_types"]

ENTRY_POINTS: Final = "streamkit.binders"


def installed_types() -> dict[str, EntryPoint]:
    """Return the installed binder types by name; nothing is imported."""
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}


class BinderTypes:
    """The kinds of binders that are installed, and those given by the application.

    Attributes:
        names: All of them, sorted.
        plugins: Those given by the application.
    """

    def __init__(self, plugins: Mapping[str, object] | None = None) -> None:
        """Look for entry points.

        Args:
            plugins: Objects with the hooks of :mod:`streamkit.binder.plugin`, by type; they win.
        """
        self.plugins = dict(plugins or {})
        self._entries = installed_types()
        self._loaded: dict[str, pluggy.PluginManager] = {}
        self.names = sorted({*self.plugins, *self._entries})

    def create(self, type_: str, name: str, context: BinderContext) -> Binder:
        """Return a binder of that type, not started yet.

        Raises:
            ConfigurationError: There is no such type, or its settings are wrong.
        """
        hooks = self._hooks(type_)
        binder: Binder | None = hooks.hook.streamkit_create_binder(type=type_, name=name, context=context)
        if binder is None:
            raise ConfigurationError(f"the plugin of binder type {type_!r} creates no such binder")
        return binder

    def extended_models(self, type_: str) -> tuple[ConsumerModel, ProducerModel]:
        """Return the models of the type's extended properties of bindings."""
        models: tuple[ConsumerModel, ProducerModel] | None
        models = self._hooks(type_).hook.streamkit_extended_models(type=type_)
        if models is None:
            raise ConfigurationError(f"binder type {type_!r} has no extended properties of bindings")
        return models

    def settings_models(self, type_: str) -> Mapping[str, type[BaseModel]]:
        """Return the models of the type's own settings, by their prefix."""
        models: Mapping[str, type[BaseModel]] | None
        models = self._hooks(type_).hook.streamkit_settings_models(type=type_)
        return models or {}

    def shared_system(
        self, type_: str, name: str, context: BinderContext
    ) -> AbstractAsyncContextManager[Mapping[str, str]] | None:
        """Return what the processes of one application share, if the type has such a thing."""
        shared: AbstractAsyncContextManager[Mapping[str, str]] | None
        shared = self._hooks(type_).hook.streamkit_shared_system(type=type_, name=name, context=context)
        return shared

    def is_default_candidate(self, type_: str) -> bool:
        """Return whether the type serves an application that names no binder."""
        answer: bool | None = self._hooks(type_).hook.streamkit_is_default_candidate(type=type_)
        return answer is not False

    def _hooks(self, type_: str) -> pluggy.PluginManager:
        found = self._loaded.get(type_)
        if found is None:
            found = pluggy.PluginManager(PROJECT)
            found.add_hookspecs(BinderHooks)
            plugin = self._plugin(type_)
            try:
                found.register(plugin)
            except pluggy.PluginValidationError as error:
                raise ConfigurationError(
                    f"the plugin of binder type {type_!r} is not made for this version of streamkit: {error}"
                ) from error
            self._loaded[type_] = found
        return found

    def _plugin(self, type_: str) -> object:
        given = self.plugins.get(type_)
        if given is not None:
            return given
        entry = self._entries.get(type_)
        if entry is None:
            near = get_close_matches(type_, self.names, n=1)
            raise ConfigurationError(
                f"there is no binder type {type_!r}; installed: {', '.join(self.names) or 'none'}"
                + (f". Did you mean {near[0]!r}?" if near else ""),
                value=type_,
                suggestion=near[0] if near else None,
            )
        try:
            return entry.load()
        except Exception as error:  # somebody else's module may raise anything
            package = "" if entry.dist is None else f" of package {entry.dist.name}"
            raise ConfigurationError(
                f"binder type {type_!r}, {entry.value}{package}, cannot be loaded: {kind_and_text(error)}"
            ) from error


class BinderRegistry:
    """The configured binders by name; each is made and started when a binding first needs it."""

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
        self._types = types
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
        """The binders that settings define, or one for each installed type."""
        if self._settings.binders:
            return self._settings.binders
        return {name: BinderConfiguration(type=name) for name in self._types.names}

    @property
    def made(self) -> Mapping[str, Binder]:
        """The binders that bindings use, by name."""
        return self._made

    def get(self, name: str | None) -> Binder:
        """Return the binder of that name, or the default one; it may not be started yet.

        Raises:
            ConfigurationError: There is no such binder, or no telling which is the default.
        """
        name = name or self._default()
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = self._make(name)
        return found

    def used(self) -> list[str]:
        """Return the names of the binders that the settings' bindings use; of the default one, where one names none.

        Raises:
            ConfigurationError: There is no telling which is the default.
        """
        bindings = self._settings.bindings.values()
        names = [binding.binder for binding in bindings if binding.binder]
        if len(names) < len(bindings) or not names:
            names.insert(0, self._default())
        return [name for name in dict.fromkeys(names) if name in self.configurations]

    def shared_system(self, name: str) -> AbstractAsyncContextManager[Mapping[str, str]] | None:
        """Return what several processes with this binder share, if one of them is to start it; see the plugin's hook.

        Raises:
            ConfigurationError: Its settings are wrong.
        """
        configuration = self.configurations[name]
        return self._types.shared_system(configuration.type or name, name, self._context(name, configuration))

    def key_for(self, name: str, key: str) -> str:
        """Return the key by which the settings of the application set ``key`` for that binder."""
        return f"{PREFIX}.binders[{name}].environment.{key}" if self._settings.binders else key

    async def started(self, binder: Binder) -> Binder:
        """Return ``binder`` once it is started.

        Raises:
            BinderUnavailable: Its system is away; another call tries again.
        """
        lock = self._starting.setdefault(binder.name, asyncio.Lock())
        async with lock:
            if binder.name not in self._started:
                try:
                    await binder.start()
                except BaseException:
                    await binder.stop()
                    raise
                self._started.add(binder.name)
        return binder

    async def stop(self) -> None:
        """Stop every binder that was started; the first error is raised when all are stopped."""
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
        configuration = self.configurations.get(name)
        if configuration is None:
            known = ", ".join(sorted(self.configurations)) or "none"
            near = get_close_matches(name, self.configurations, n=1)
            raise ConfigurationError(
                f"there is no binder {name!r} under {PREFIX}.binders; known: {known}"
                + (f". Did you mean {near[0]!r}?" if near else ""),
                value=name,
                suggestion=near[0] if near else None,
            )
        context = self._context(name, configuration)
        binder = self._types.create(configuration.type or name, name, context)
        self._customizers.binder(binder)
        return binder

    def _context(self, name: str, configuration: BinderConfiguration) -> BinderContext:
        environment = self._environment_of(name, configuration)
        return BinderContext(environment, self._clock, self._application, self._types.extended_models)

    def _environment_of(self, name: str, configuration: BinderConfiguration) -> Environment:
        if not configuration.environment and configuration.inherit_environment:
            return self._environment
        prefix = f"{PREFIX}.binders[{name}].environment"
        return self._environment.below(prefix, inherit=configuration.inherit_environment)

    def _default(self) -> str:
        if self._settings.default_binder:
            return self._settings.default_binder
        candidates = self._candidates()
        if len(candidates) == 1:
            return candidates[0]
        if not candidates:
            raise ConfigurationError(f"no binder can be the default: set {PREFIX}.default-binder")
        raise ConfigurationError(
            f"there are several binders, {', '.join(candidates)}: say which one with {PREFIX}.default-binder, or "
            f"for each binding with {PREFIX}.bindings.<name>.binder",
            key=f"{PREFIX}.default-binder",
        )

    def _candidates(self) -> list[str]:
        """The binders that may be the default; of several implicit ones, those that have settings."""
        if self._settings.binders:
            return [name for name, each in self._settings.binders.items() if each.default_candidate]
        implicit = [name for name in self._types.names if self._types.is_default_candidate(name)]
        if len(implicit) > 1:
            configured = [name for name in implicit if self._environment.sets_below(f"{PREFIX}.{name}")]
            return configured or implicit
        return implicit
