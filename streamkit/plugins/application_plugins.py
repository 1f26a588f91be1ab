"""The plugins of one application: loaded, registered in order, and called.

The order is: plugins given to the application, in the given order; then those installed under ``streamkit.plugins``,
sorted by the names of their entry points. A plugin that is both given and installed takes its place among the given
ones. Plugins installed under ``streamkit.binders`` are loaded when their binder type is used, and may only provide
binder types. Every error names the plugin and its package.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import pluggy

from streamkit.binder.binder_type import BinderType, BinderTypes
from streamkit.binder.keeping import KeptOutput, MessageKeeper
from streamkit.binder.tracing import MessageTracer, TracedBinding
from streamkit.config.environment import Environment
from streamkit.config.source import PropertySource
from streamkit.entry_points import BINDERS, PLUGINS, EntryPoint, claim_conflict, described, offers_of
from streamkit.errors import ConfigurationError
from streamkit.messaging.cause import kind_and_text
from streamkit.messaging.message_converter import MessageConverter
from streamkit.plugins.hooks import PluginHooks

if TYPE_CHECKING:  # commands that read settings load plugins, and need neither listeners nor endpoints
    from streamkit.listeners.advice import AdvisedListener, ListenerAdvice
    from streamkit.management.endpoint import ManagedApplication, ManagementEndpoint

__all__ = ["ApplicationPlugins"]

_BINDER_TYPES: Final = "streamkit_binder_types"
# The attributes that the objects returned by hooks must have.
_CONVERTER: Final = ("reader", "writer")
_SOURCE: Final = ("name", "get", "entries")
_ENDPOINT: Final = ("name", "routes")
_ADVICE: Final = ("find", "around", "results")
_KEEPER: Final = ("producer", "keep", "start", "stop", "health")
_TRACER: Final = ("sending", "calling")

_Claim: TypeAlias = "tuple[str, Callable[[], BinderType]]"
"""A plugin that offers a binder type, as errors describe it, and a function that returns the type."""


class ApplicationPlugins:
    """The plugins given to one application, and the installed ones."""

    def __init__(self, given: Sequence[object] = ()) -> None:
        """Load the installed plugins, and register them behind the given ones.

        Args:
            given: Modules or objects with hooks.

        Raises:
            ConfigurationError: A plugin cannot be loaded, or implements an unknown hook.
        """
        self._manager = pluggy.PluginManager("streamkit")
        self._manager.add_hookspecs(PluginHooks)
        self._given = tuple(given)
        found = [(plugin, f"{_name_of(plugin)}, given to the application") for plugin in given]
        for entries in offers_of(PLUGINS).values():
            found.extend((_loaded(entry, f"plugin {entry.name!r}"), described(entry)) for entry in entries)
        # pluggy calls the plugin that was registered last first.
        for plugin, description in reversed(_without_repetitions(found)):
            self._register(plugin, description)

    def binder_types(self) -> BinderTypes:
        """Return the available binder types; those of other packages are imported on first use.

        A type of a given plugin replaces an installed one of the same name.

        Raises:
            ConfigurationError: A hook fails, or returns an object that is not a `BinderType`.
        """
        given: dict[str, list[_Claim]] = {}
        installed: dict[str, list[_Claim]] = {}
        for plugin, description, types in self._answers(_BINDER_TYPES):
            claims = given if any(plugin is each for each in self._given) else installed
            for name, type_ in _checked_types(types, description).items():
                claims.setdefault(name, []).append((description, partial(_itself, type_)))
        for name, entries in offers_of(BINDERS).items():
            known = {description for description, _ in installed.get(name, ())}
            for entry in entries:
                if described(entry) not in known:
                    claim = (described(entry), partial(self._loaded_type, name, entry))
                    installed.setdefault(name, []).append(claim)
        return BinderTypes({name: partial(_only, name, claimed) for name, claimed in (installed | given).items()})

    def message_converters(self) -> tuple[MessageConverter, ...]:
        """Return the plugins' message converters, in the order in which they are tried."""
        return tuple(converter for _, converter in self._items("streamkit_message_converters", _CONVERTER))

    def settings_sources(self, environment: Environment) -> tuple[PropertySource, ...]:
        """Return the plugins' sources of settings; the first one has the highest precedence.

        Args:
            environment: The settings of all other sources.
        """
        sources = self._items("streamkit_settings_sources", _SOURCE, environment=environment)
        return tuple(source for _, source in sources)

    def management_endpoints(
        self, application: "ManagedApplication", own: Iterable[str] = ()
    ) -> "tuple[ManagementEndpoint, ...]":
        """Return the plugins' management endpoints.

        Args:
            application: The application of the endpoints.
            own: The names of streamkit's own endpoints.

        Raises:
            ConfigurationError: Two plugins have an endpoint of the same name, or one uses the name of streamkit's own.
        """
        owners = dict.fromkeys(own, "streamkit")
        endpoints: list[ManagementEndpoint] = []
        offered = self._items("streamkit_management_endpoints", _ENDPOINT, application=application)
        for description, endpoint in offered:
            owner = owners.setdefault(endpoint.name, description)
            if owner != description or endpoint.name in (each.name for each in endpoints):
                raise ConfigurationError(claim_conflict(f"management endpoint {endpoint.name!r}", [owner, description]))
            endpoints.append(endpoint)
        return tuple(endpoints)

    def listener_advice(
        self, application: "ManagedApplication", listener: "AdvisedListener"
    ) -> "ListenerAdvice | None":
        """Return the advice of a plugin for a listener, or None.

        Raises:
            ConfigurationError: Two plugins have an advice for the listener, or the listener cannot have it, or its
                declaration needs one and no plugin has it.
        """
        arguments = {"application": application, "listener": listener}
        offered = list(self._items("streamkit_listener_advice", _ADVICE, **arguments))
        if len(offered) > 1:
            raise ConfigurationError(claim_conflict(f"listener {listener.description}", [who for who, _ in offered]))
        if not offered and listener.declaration.idempotent_by not in (None, False):
            raise ConfigurationError(
                f"listener {listener.description} is declared with idempotent_by, but no plugin does that: the plugin "
                "'inbox' of streamkit-messaging is missing among the installed entry points; install the package again"
            )
        return offered[0][1] if offered else None

    def message_keeper(self, application: "ManagedApplication", output: KeptOutput) -> MessageKeeper | None:
        """Return the keeper of a plugin for an output binding, or None.

        Raises:
            ConfigurationError: Two plugins have a keeper for the binding, or the settings are wrong.
        """
        offered = list(self._items("streamkit_message_keeper", _KEEPER, application=application, output=output))
        if len(offered) > 1:
            raise ConfigurationError(claim_conflict(f"output {output.binding!r}", [who for who, _ in offered]))
        return offered[0][1] if offered else None

    def message_tracer(self, application: "ManagedApplication", binding: TracedBinding) -> MessageTracer | None:
        """Return the tracer of the first plugin that has one for the binding, or None."""
        offered = self._items("streamkit_message_tracer", _TRACER, application=application, binding=binding)
        return next((tracer for _, tracer in offered), None)

    def _register(self, plugin: object, description: str) -> None:
        """Register a plugin and check its hooks.

        Raises:
            ConfigurationError: The hooks are invalid; the plugin is not registered.
        """
        if isinstance(plugin, type):
            raise ConfigurationError(
                f"the plugin {description} is a class: an instance of it, or a module, can be a plugin"
            )
        try:
            self._manager.register(plugin, description)
            self._check_hooks(plugin, description)
        except ConfigurationError:
            self._manager.unregister(plugin)
            raise
        except pluggy.PluginValidationError as error:
            if self._manager.is_registered(plugin):  # newer versions of pluggy have unregistered it
                self._manager.unregister(plugin)
            raise ConfigurationError(
                f"the plugin {description} is not made for this version of streamkit: {error}"
            ) from error

    def _check_hooks(self, plugin: object, description: str) -> None:
        hooks = self._hooks_of(plugin)
        if not hooks:
            raise ConfigurationError(
                f"the plugin {description} has no hooks: decorate them with streamkit.plugins.hookimpl"
            )
        for name in hooks:
            if not hasattr(PluginHooks, name):
                near = get_close_matches(name, vars(PluginHooks), n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise ConfigurationError(f"the plugin {description} implements {name}, which is not a hook{hint}")

    def _hooks_of(self, plugin: object) -> list[str]:
        return sorted(caller.name for caller in self._manager.get_hookcallers(plugin) or ())

    def _items(self, hook: str, wanted: Sequence[str], **arguments: object) -> Iterator[tuple[str, Any]]:
        """Yield each object that the plugins return for a hook, with the plugin's description.

        Args:
            hook: The hook's name.
            wanted: The attributes that each object must have.
            arguments: The hook's arguments.

        Raises:
            ConfigurationError: An object lacks an attribute.
        """
        for _, description, answer in self._answers(hook, **arguments):
            for item in answer:
                missing = [name for name in wanted if not hasattr(item, name)]
                if missing:
                    raise ConfigurationError(
                        f"{hook} of the plugin {description} returned {item!r}, which has no {' and no '.join(missing)}"
                    )
                yield description, item

    def _answers(self, hook: str, **arguments: object) -> Iterator[tuple[object, str, Any]]:
        """Yield each plugin with its description and its result of a hook, if it has one, in the plugins' order."""
        implementations = getattr(self._manager.hook, hook).get_hookimpls()
        for implementation in reversed([each for each in implementations if not _wraps(each)]):
            plugin, description = implementation.plugin, implementation.plugin_name
            answer = self._answer(hook, plugin, description, arguments)
            if answer:
                yield plugin, description, answer

    def _answer(self, hook: str, plugin: object, description: str, arguments: Mapping[str, object]) -> Any:
        """Return the result of one plugin, a mapping or a list; hook wrappers of all plugins wrap the call.

        Raises:
            ConfigurationError: The hook raised an exception.
        """
        others = [
            each.plugin
            for each in getattr(self._manager.hook, hook).get_hookimpls()
            if each.plugin is not plugin and not _wraps(each)
        ]
        try:
            answers = self._manager.subset_hook_caller(hook, others)(**arguments)
            answer = answers[0] if answers else ()
            return answer if isinstance(answer, Mapping) else list(answer)
        except ConfigurationError:
            raise
        except Exception as error:  # a plugin may raise anything
            raise ConfigurationError(f"{hook} of the plugin {description} failed: {kind_and_text(error)}") from error

    def _loaded_type(self, name: str, entry: EntryPoint) -> BinderType:
        description = described(entry)
        plugin = _loaded(entry, f"binder type {name!r},")
        if not self._manager.is_registered(plugin):
            self._register(plugin, description)
            others = [hook for hook in self._hooks_of(plugin) if hook != _BINDER_TYPES]
            if others:
                self._manager.unregister(plugin)
                raise ConfigurationError(
                    f"the plugin {description} is an entry point of {BINDERS}, which is asked for binder types alone, "
                    f"and implements {', '.join(others)}: make it an entry point of {PLUGINS} too"
                )
        types = _checked_types(self._answer(_BINDER_TYPES, plugin, description, {}), description)
        if name not in types:
            offered = ", ".join(sorted(types)) or "none"
            raise ConfigurationError(
                f"the plugin {description} is the entry point of binder type {name!r}, but its "
                f"{_BINDER_TYPES} returns other types: {offered}"
            )
        return types[name]

    def __repr__(self) -> str:
        return f"<ApplicationPlugins {[name for name, _ in self._manager.list_name_plugin()]}>"


def _loaded(entry: EntryPoint, what: str) -> object:
    try:
        return entry.load()
    except Exception as error:  # a plugin's module may raise anything
        raise ConfigurationError(f"{what} {described(entry)}, cannot be loaded: {kind_and_text(error)}") from error


def _name_of(plugin: object) -> str:
    if isinstance(plugin, ModuleType):
        return plugin.__name__
    kind = plugin if isinstance(plugin, type) else type(plugin)
    return f"{kind.__module__}.{kind.__qualname__}"


def _without_repetitions(found: Iterable[tuple[object, str]]) -> list[tuple[object, str]]:
    """Return each plugin once, at its first place; number the descriptions that occur several times."""
    names: dict[str, int] = {}
    kept: dict[int, tuple[object, str]] = {}
    for plugin, description in found:
        if id(plugin) in kept:
            continue
        names[description] = number = names.get(description, 0) + 1
        kept[id(plugin)] = (plugin, description if number == 1 else f"{description} ({number})")
    return list(kept.values())


def _checked_types(answer: object, description: str) -> dict[str, BinderType]:
    types = answer if isinstance(answer, Mapping) else dict.fromkeys(cast("list[str]", answer))
    checked: dict[str, BinderType] = {}
    for name, type_ in types.items():
        if not isinstance(type_, BinderType):
            raise ConfigurationError(
                f"{_BINDER_TYPES} of the plugin {description} returned {type_!r} for {name!r}, which is not a "
                "BinderType"
            )
        checked[name] = type_
    return checked


def _only(name: str, claims: Sequence[_Claim]) -> BinderType:
    if len(claims) > 1:
        raise ConfigurationError(claim_conflict(f"binder type {name!r}", [who for who, _ in claims]))
    return claims[0][1]()


def _itself(type_: BinderType) -> BinderType:
    return type_


def _wraps(implementation: pluggy.HookImpl) -> bool:
    return implementation.wrapper or implementation.hookwrapper
