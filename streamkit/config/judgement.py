"""The judgement of an application's settings, by which it starts and by which reports tell what its start would do.

    read_settings    before anything is made: unknown keys, misspelt prefixes, values that a model refuses
    judge_bindings   when all bindings are made, and none is bound: settings of bindings that do not exist, of the other
                     direction, of another binder type, and those that the binding's binder ignores

A setting that is wrong is an error, and the application does not start. A setting without effect is a warning.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Final, Protocol

import msgspec

from streamkit.config.application_properties import GROUPS, MANAGEMENT_SERVER, SECURITY_USER
from streamkit.config.environment import Environment
from streamkit.config.extended import ExtendedModels, extended_tree
from streamkit.config.located_errors import located
from streamkit.config.misspelt_names import misspelt_management_keys, misspelt_prefixes
from streamkit.config.origin import Value
from streamkit.config.relaxed import kebab, uniform, uniform_key
from streamkit.config.settings import PREFIX, BindingProperties, StreamSettings
from streamkit.config.settings_model import SettingsModel
from streamkit.config.shape import AnyModel, Location
from streamkit.config.validation import Bound, in_order
from streamkit.config.verdict import SettingWarning, Verdict
from streamkit.errors import ConfigurationError, ConfigurationErrors

__all__ = [
    "ExistingBindings",
    "JudgedBinding",
    "KnownTypes",
    "judge_bindings",
    "near_name",
    "read_settings",
    "unknown_binder",
]

_NEAR: Final = 0.8
"""The least likeness of two names of bindings that are taken for spellings of one name: that of `in` and `inn`."""
_GIVEN_BY_PLATFORMS: Final = ("INSTANCE_INDEX", "CF_INSTANCE_INDEX")
_DEFAULTS: Final = BindingProperties()


class KnownTypes(Protocol):
    """The installed binder types."""

    names: list[str]

    @property
    def extended_models(self) -> ExtendedModels:
        """A function that returns the models of a type's `consumer.*` and `producer.*`."""
        ...

    @property
    def settings_models(self) -> Callable[[str], Mapping[str, AnyModel]]:
        """A function that returns the models of a type's other settings, by prefix."""
        ...


class JudgedBinding(msgspec.Struct, frozen=True):
    """A binding that has been made.

    Attributes:
        name: Its name.
        is_input: Whether it is an input.
        is_output: Whether it is an output. Both are true if the direction is in code that a report does not see.
        type: The binder type whose settings `spring.cloud.stream.<type>.bindings.<name>` it reads.
        binder_type: The type of its binder, another one if that stands in for `type`.
        ignored: The settings that it ignores, each with the reason: `consumer.instance-count` for one of the stream
            settings, `rocketmq.consumer.pull` for one of the binder type's, or for all below it.
    """

    name: str
    is_input: bool
    is_output: bool
    type: str
    binder_type: str
    ignored: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides that the binding has: `consumer`, `producer`, or both."""
        return ("consumer",) * self.is_input + ("producer",) * self.is_output

    def why_ignored(self, key: str) -> str | None:
        """Return the reason why the binding ignores a setting; None if it does not."""
        parts = key.split(".")
        found = (self.ignored.get(".".join(parts[:length])) for length in range(len(parts), 0, -1))
        return next(filter(None, found), None)


class ExistingBindings(msgspec.Struct):
    """The bindings that an application makes.

    Attributes:
        names: The names of all bindings, also of those that could not be made because of an error.
        judged: The bindings that could be made.
        of_functions: The names that the bindings of functions have before `function.bindings` renames them; None if
            the functions are in code that a report does not see.
        functions: The names of all functions, also of those that are not bound.
        is_complete: Whether all names are known; else they may be in code that a report does not see.
    """

    names: list[str] = msgspec.field(default_factory=list)
    judged: list[JudgedBinding] = msgspec.field(default_factory=list)
    of_functions: list[str] | None = None
    functions: list[str] = msgspec.field(default_factory=list)
    is_complete: bool = True


def read_settings(environment: Environment, types: KnownTypes) -> Bound[StreamSettings]:
    """Return `spring.cloud.stream.*`, after the settings of all prefixes have been checked.

    Args:
        environment: All settings.
        types: The installed binder types.

    Raises:
        ConfigurationErrors: All problems of all settings.
    """
    problems = list(_problems(environment, types))
    try:
        settings = StreamSettings.explain(environment, types.names, types.extended_models)
    except ConfigurationErrors as found:
        raise ConfigurationErrors(in_order([*problems, *found.errors])) from None
    problems.extend(_problems_of_binders(environment, settings, types))
    if problems:
        raise ConfigurationErrors(in_order(problems))
    return settings


def _problems(environment: Environment, types: KnownTypes) -> Iterator[ConfigurationError]:
    """Yield the problems of all settings but `spring.cloud.stream.*` itself."""
    yield from misspelt_prefixes(environment)
    yield from misspelt_management_keys(environment)
    for group in GROUPS:
        if environment.sets_below(group.prefix):
            try:
                environment.bind(group.prefix, group.model)
            except ConfigurationErrors as found:
                yield from found.errors
    yield from _problems_of_login(environment)
    for type_ in types.names:
        if any(map(environment.sets_below, (f"{PREFIX}.{type_}", type_, f"spring.{type_}"))):
            for prefix, model in types.settings_models(type_).items():
                yield from environment.problems_of(prefix, model)


def _problems_of_login(environment: Environment) -> Iterator[ConfigurationError]:
    """Yield the problem of management endpoints that other machines reach and that have no login.

    A user without a password, who cannot log in, is noted in the environment as a warning.
    """
    if not any(map(environment.sets_below, (MANAGEMENT_SERVER, SECURITY_USER))):
        return
    from streamkit.config.management_properties import ManagementServerProperties, SecurityUserProperties

    try:
        server = environment.bind(MANAGEMENT_SERVER, ManagementServerProperties)
        user = environment.bind(SECURITY_USER, SecurityUserProperties)
    except ConfigurationErrors:  # yielded already
        return
    if not user.plain_password:
        reason = f"there is no {SECURITY_USER}.password: nobody can log in by a name"
        values = filter(None, (environment.get(f"{SECURITY_USER}.{key}") for key in ("name", "roles")))
        environment.note(SettingWarning(value, reason, Verdict.NO_EFFECT) for value in values)
    if not (server.is_local or server.token or user.plain_password):
        yield located(
            environment.get(f"{MANAGEMENT_SERVER}.address"),
            "other machines could use the management endpoints without a login: set "
            f"{MANAGEMENT_SERVER}.token for programs, or {SECURITY_USER}.password (and .name) for people, or "
            f"{MANAGEMENT_SERVER}.address=127.0.0.1",
        )


def _problems_of_binders(
    environment: Environment, settings: Bound[StreamSettings], types: KnownTypes
) -> Iterator[ConfigurationError]:
    """Yield the problems of the default binder, and of the settings in the environments of single binders."""
    binders, default = settings.value.binders, settings.value.default_binder
    known = list(binders) or types.names
    if default and default not in known:
        yield unknown_binder(default, known, settings.origins.get(("default_binder",)))
    for name, binder in binders.items():
        type_ = binder.type or name
        if binder.environment and type_ in types.names:
            own = environment.below(f"{PREFIX}.binders[{name}].environment", inherit=binder.inherit_environment)
            for prefix, model in types.settings_models(type_).items():
                yield from own.problems_of(prefix, model)


def unknown_binder(name: str, known: Iterable[str], at: Value | None = None) -> ConfigurationError:
    """Return the error for a binder that does not exist.

    Args:
        name: The binder's name.
        known: The names of the binders that exist.
        at: The setting that names it, if a setting does.
    """
    known = sorted(known)
    near = next(iter(get_close_matches(name, known, n=1)), None)
    reason = f"there is no binder {name!r} under {PREFIX}.binders; known: {', '.join(known) or 'none'}" + (
        f". Did you mean {near!r}?" if near else ""
    )
    if at is not None:
        return located(at, reason, suggestion=near)
    return ConfigurationError(reason, value=name, suggestion=near)


def judge_bindings(
    environment: Environment, settings: Bound[StreamSettings], types: KnownTypes, existing: ExistingBindings
) -> list[ConfigurationError]:
    """Judge the settings of bindings against the bindings that exist; note warnings in the environment.

    Args:
        environment: All settings.
        settings: `spring.cloud.stream.*`.
        types: The installed binder types.
        existing: The bindings that the application makes.

    Returns:
        The errors of settings for bindings and functions that do not exist.
    """
    judgement = _Judgement(settings, existing)
    judgement.judge_stream_settings()
    judgement.judge_instances()
    judgement.judge_function_bindings()
    for type_ in types.names:
        if environment.sets_below(f"{PREFIX}.{type_}"):
            origins = extended_tree(environment, type_, types.extended_models).origins
            judgement.judge_extended_settings(type_, origins)
            judgement.judge_binder_settings(type_, environment)
    environment.note(judgement.warnings())
    environment.count_as_read(judgement.read_later)
    return judgement.problems


class _Judgement:
    """One judgement of the settings of bindings.

    Attributes:
        problems: The errors found so far.
        read_later: The values that are read when a binding is made for a message that is sent to its name.
    """

    def __init__(self, settings: Bound[StreamSettings], existing: ExistingBindings) -> None:
        self.problems: list[ConfigurationError] = []
        self.read_later: list[Value] = []
        self._settings = settings
        self._existing = existing
        self._by_name = {uniform(binding.name): binding for binding in existing.judged}
        self._names = {uniform(name): name for name in existing.names}
        self._defaults = {
            at[1:]: value for at, value in settings.origins.items() if at[0] == "default" and at[1:] != ("destination",)
        }
        self._configured: dict[str, dict[Location, Value]] = {}
        for at, value in settings.origins.items():
            if at[0] == "bindings":
                self._configured.setdefault(str(at[1]), {})[at[2:]] = value
        # For each value a warning for each binding that ignores it, None for each binding that honours it.
        self._effects: dict[tuple[str, str], list[SettingWarning | None]] = {}

    def warnings(self) -> Iterator[SettingWarning]:
        """Yield a warning for each value that no binding honours."""
        for effects in self._effects.values():
            if None not in effects:
                yield next(filter(None, effects))

    def _note(self, value: Value, reason: str | None, verdict: Verdict = Verdict.NO_EFFECT) -> None:
        effect = None if reason is None else SettingWarning(value, reason, verdict)
        self._effects.setdefault((str(value.origin), value.key), []).append(effect)

    # Settings of every binder type

    def judge_stream_settings(self) -> None:
        """Judge `spring.cloud.stream.bindings.*` and `spring.cloud.stream.default.*`."""
        configured = {uniform(name): own for name, own in self._configured.items()}
        for name, binding in self._by_name.items():
            for at, value in configured.get(name, self._defaults).items():
                self._note(value, self._why_ignored(binding, at))
        if self._by_name:
            for at, value in self._defaults.items():
                if at[0] == "consumer" and not any(each.is_input for each in self._by_name.values()):
                    self._note(value, "there is no input")
        for name, own in self._configured.items():
            if uniform(name) not in self._names:
                self._judge_unmade(
                    name, {at: value for at, value in own.items() if value not in self._defaults.values()}
                )

    def _why_ignored(self, binding: JudgedBinding, at: Location) -> str | None:
        side = "consumer" if at[0] == "group" else at[0]
        if side in ("consumer", "producer") and side not in binding.sides:
            return _wrong_side(binding)
        if self._is_default(binding.name, at):
            return None
        return binding.why_ignored(_key(at))

    def _is_default(self, name: str, at: Location) -> bool:
        found: object = self._settings.value.binding(name)
        default: object = _DEFAULTS
        for step in at:
            if not isinstance(found, SettingsModel):
                return False
            found, default = getattr(found, str(step), None), getattr(default, str(step), None)
        return found == default

    def _judge_unmade(self, name: str, own: Mapping[Location, Value]) -> None:
        """Judge the settings of a binding that nothing makes.

        It is wrong if it is nearly the name of a binding that has no settings, or if it has no destination of its own:
        then the other one is meant. Else the application may send to it by name, or is one of several applications that
        share their settings. An application without any binding only sends by name: nothing is noted.
        """
        near = near_name(name, self._names)
        if near is not None and (("destination",) not in own or near not in map(uniform, self._configured)):
            meant = self._names[near]
            for at, value in own.items():
                self.problems.append(
                    located(
                        value, f"there is no binding {name!r}; did you mean {meant!r}?", suggestion=_named(meant, at)
                    )
                )
            return
        if self._existing.is_complete and self._names:
            for value in own.values():
                self._note(value, self._unmade(name), Verdict.NAMES_NOTHING)

    def _unmade(self, name: str) -> str:
        return (
            f"no listener, function or setting makes a binding {name!r}; if the application sends to it by name, list "
            f"it in {PREFIX}.output-bindings"
        )

    def judge_instances(self) -> None:
        """Judge `instance-count` and `instance-index`, which the inputs of some binders read."""
        inputs = [binding for binding in self._by_name.values() if binding.is_input]
        for at in ("instance_count", "instance_index"):
            value = self._settings.origins.get((at,))
            if value is None or not self._by_name or value.key in _GIVEN_BY_PLATFORMS:
                continue
            for binding in inputs:
                self._note(value, binding.why_ignored(f"consumer.{kebab(at)}"))
            if not inputs:
                self._note(value, "there is no input")

    # Functions

    def judge_function_bindings(self) -> None:
        """Judge `spring.cloud.stream.function.bindings.*`: names of functions' bindings that do not exist."""
        known = self._existing.of_functions
        if known is None:
            return
        forms = {uniform(name): name for name in known}
        for at, value in self._settings.origins.items():
            if at[:2] != ("function", "bindings") or uniform(str(at[2])) in forms:
                continue
            name = str(at[2])
            if name.rpartition("-")[0].rpartition("-")[0] in self._existing.functions:
                self._note(value, f"no definition binds the function of {name!r}", Verdict.NAMES_NOTHING)
                continue
            near = get_close_matches(uniform(name), forms, n=1)
            meant = f"; did you mean {forms[near[0]]!r}?" if near else f". There are: {', '.join(known) or 'none'}"
            self.problems.append(
                located(
                    value,
                    f"there is no function with a binding {name!r}{meant}",
                    suggestion=f"{PREFIX}.function.bindings.{forms[near[0]]}" if near else None,
                )
            )

    # Settings of one binder type

    def judge_extended_settings(self, type_: str, origins: Mapping[Location, Value]) -> None:
        """Judge `spring.cloud.stream.<type>.bindings.*` and `spring.cloud.stream.<type>.default.*`.

        Args:
            type_: The binder type.
            origins: The values that are set below `spring.cloud.stream.<type>`, by location.
        """
        for at, value in origins.items():
            if at[0] == "bindings":
                self._judge_extended(type_, str(at[1]), str(at[2]), at[3:], value)
        if not self._by_name:
            return
        own = {(uniform(str(at[1])), *at[2:]) for at in origins if at[0] == "bindings"}
        of_type = [binding for binding in self._by_name.values() if binding.type == type_]
        for at, value in origins.items():
            if at[0] != "default":
                continue
            readers = [each for each in of_type if at[1] in each.sides]
            for each in readers:
                if (uniform(each.name), *at[1:]) not in own:
                    self._note(value, each.why_ignored(f"{type_}.{_key(at[1:])}"))
            if of_type and not readers and at[1] == "consumer":
                self._note(value, f"no input is on a binder of type {type_!r}")

    def _judge_extended(self, type_: str, name: str, side: str, rest: Location, value: Value) -> None:
        binding = self._by_name.get(uniform(name))
        if binding is None:
            if uniform(name) in self._names:
                self.read_later.append(value)
            else:
                self._judge_extended_of_unmade(type_, name, (side, *rest), value)
        elif side not in binding.sides:
            self._note(value, _wrong_side(binding))
        elif binding.type == type_:  # `streamkit.binder.unread_settings` judges the settings of other types
            self._note(value, binding.why_ignored(f"{type_}.{side}.{_key(rest)}"))

    def _judge_extended_of_unmade(self, type_: str, name: str, at: Location, value: Value) -> None:
        if uniform(name) in map(uniform, self._configured):
            if self._existing.is_complete and self._names:
                self._note(value, self._unmade(name), Verdict.NAMES_NOTHING)
            return
        near = near_name(name, self._names)
        if near is None and not self._existing.is_complete:
            return
        meant = None if near is None else self._names[near]
        hint = "" if meant is None else f"; did you mean {meant!r}?"
        self.problems.append(
            located(
                value,
                f"there is no binding {name!r}{hint or f'. {self._known()}'}",
                suggestion=None if meant is None else _named(meant, at, f"{PREFIX}.{type_}.bindings"),
            )
        )

    def _known(self) -> str:
        return (
            f"Bindings: {', '.join(sorted(self._names.values())) or 'none'}. If the application sends to it by name, "
            f"list it in {PREFIX}.output-bindings"
        )

    def judge_binder_settings(self, type_: str, environment: Environment) -> None:
        """Judge `spring.cloud.stream.<type>.binder.*`: whether any binding is on a binder of the type."""
        used = {type_ for binding in self._by_name.values() for type_ in (binding.type, binding.binder_type)}
        if not used or type_ in used:
            return
        for source in environment.sources:
            for entry in source.entries(uniform_key(f"{PREFIX}.{type_}.binder")):
                self._note(entry.value, f"no binding is on a binder of type {type_!r}", Verdict.ANOTHER_BINDER)


def near_name(name: str, uniform_names: Iterable[str]) -> str | None:
    """Return the name of a binding that may be meant by a name; None if no name is near.

    Args:
        name: The name.
        uniform_names: The uniform forms of the names of bindings.
    """
    near = get_close_matches(uniform(name), list(uniform_names), n=1, cutoff=_NEAR)
    # orders-in-0 and orders-in-1 are two names.
    return near[0] if near and _letters(near[0]) != _letters(uniform(name)) else None


def _wrong_side(binding: JudgedBinding) -> str:
    if binding.is_input:
        return f"binding {binding.name!r} is an input, which has no producer"
    return f"binding {binding.name!r} is an output, which has no group and no consumer"


def _named(binding: str, at: Location, prefix: str = f"{PREFIX}.bindings") -> str:
    return f"{prefix}.{binding}.{_key(at)}"


def _key(at: Location) -> str:
    return ".".join(kebab(str(step)) for step in at)


def _letters(name: str) -> str:
    return "".join(character for character in name if not character.isdigit())
