"""Rehearse the start of an application: everything is made as at a start, and nothing is connected.

    rehearse            an application with its code: its listeners and functions say which bindings there are
    rehearse_settings   settings alone: their bindings, in the directions that names and keys tell

Both return what the start would refuse. Settings without effect are in `Environment.warnings`.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar, cast

import msgspec
from msgspec.structs import replace

from streamkit.binder.attempts import RetryPolicy
from streamkit.binder.binding import Binding
from streamkit.binder.ignored_settings import judged
from streamkit.binder.keeping import MakeKeeper
from streamkit.binder.local_transactions import LocalTransactions, TransactionHandlers
from streamkit.binder.named_objects import NamedObjects
from streamkit.binder.registry import BinderRegistry
from streamkit.binder.tracing import MakeTracer
from streamkit.config.environment import Environment
from streamkit.config.extended import extended_tree
from streamkit.config.judgement import (
    ExistingBindings,
    JudgedBinding,
    KnownTypes,
    judge_bindings,
    near_name,
    read_settings,
)
from streamkit.config.relaxed import uniform
from streamkit.config.settings import PREFIX, StreamSettings
from streamkit.config.validation import Bound, in_order
from streamkit.errors import ApplicationError, ConfigurationError, ConfigurationErrors
from streamkit.functions.definition import parse_definitions
from streamkit.functions.settings import FunctionSettings
from streamkit.messaging.message import Message
from streamkit.messaging.transaction import TransactionState
from streamkit.plugins.application_plugins import ApplicationPlugins
from streamkit.running.settings_alone import SettingsAlone

if TYPE_CHECKING:  # an application has imported it, and settings alone do not need it
    from streamkit.container import ApplicationContainer

__all__ = ["Rehearsed", "rehearse", "rehearse_settings"]

T = TypeVar("T")

_OF_FUNCTION: Final = re.compile(r".+-(in|out)-\d+")
_CONVENTIONAL: Final = {"input": "in", "output": "out"}
_INPUT, _OUTPUT = "in", "out"
_EITHER: Final = frozenset({_INPUT, _OUTPUT})


class Rehearsed(msgspec.Struct, frozen=True):
    """The outcome of a rehearsal.

    Attributes:
        problems: Everything because of which the application would not start, in the order of files and lines.
        types: By the uniform names of configured bindings, the binder type whose settings each of them reads.
        default_type: The same for all other bindings; None if there is no default binder.
        bindings: The bindings that the settings name, none of them bound, if settings alone were rehearsed. A binding
            whose direction the settings do not tell is there as an input and as an output.
    """

    problems: Sequence[ConfigurationError]
    types: Mapping[str, str] = msgspec.field(default_factory=dict)
    default_type: str | None = None
    bindings: Sequence[Binding] = ()

    def type_of(self, binding: str) -> str | None:
        """Return the binder type whose settings a binding reads; None if its settings do not determine the binder."""
        return self.types.get(uniform(binding), self.default_type)


def rehearse(container: "ApplicationContainer") -> Rehearsed:
    """Return everything because of which an application would not start, as far as that shows without connections.

    The classes of its listeners are instantiated, as at its start.

    Args:
        container: The container of an application that is not running.
    """
    from streamkit.container import forget_run

    problems, read = _readable(container.environment(), container.binder_types())
    if read is None:
        return Rehearsed(in_order(problems))
    with _settings_of(container, read[0]):
        try:
            with _collected(problems):
                assembly = container.assembly()
                try:
                    assembly.assemble()
                finally:
                    assembly.disassemble()
            return _rehearsed(problems, container.settings().value, container.binders())
        finally:
            forget_run(container)


def rehearse_settings(environment: Environment, plugins: ApplicationPlugins) -> Rehearsed:
    """Return everything because of which an application with these settings would not start, whatever its code is.

    Objects that settings name (partition key extractors, retry policies …) are in the code, so they are taken to exist.

    Args:
        environment: All settings.
        plugins: The plugins, which have the binder types.
    """
    problems, read = _readable(environment, plugins.binder_types())
    if read is None:
        return Rehearsed(in_order(problems))
    alone = SettingsAlone(
        *read,
        plugins,
        named=_UnseenObjects(),
        make_keeper=cast("MakeKeeper", plugins.message_keeper),
        make_tracer=cast("MakeTracer", plugins.message_tracer),
    )
    rehearsal = _Rehearsal(alone)
    with _collected(problems):
        problems.extend(rehearsal.problems())
    return replace(_rehearsed(problems, alone.settings.value, alone.binders), bindings=rehearsal.bindings)


def _rehearsed(problems: list[ConfigurationError], stream: StreamSettings, binders: BinderRegistry) -> Rehearsed:
    def type_of(binder: str | None) -> str | None:
        try:
            return binders.get(binder).extended_type
        except ConfigurationError:  # it is among the problems if a binding needs the binder
            return None

    types = {uniform(name): type_of(binding.binder) for name, binding in stream.bindings.items()}
    known = {name: type_ for name, type_ in types.items() if type_ is not None}
    return Rehearsed(in_order(problems), known, type_of(None))


def _readable(
    environment: Environment, types: KnownTypes
) -> tuple[list[ConfigurationError], tuple[Environment, Bound[StreamSettings]] | None]:
    """Return the problems of the settings, and the environment and settings without the wrong ones.

    Instead of these, None is returned if settings are missing.
    """
    problems: list[ConfigurationError] = []
    left_out: set[tuple[str, str]] = set()
    while True:
        readable = environment.without(left_out) if left_out else environment
        try:
            return problems, (readable, read_settings(readable, types))
        except ConfigurationErrors as found:
            problems.extend(found.errors)
            wrong = {(each.origin, each.key) for each in found.errors if each.origin and each.key}
            if wrong <= left_out:
                return problems, None
            left_out |= wrong


@contextmanager
def _settings_of(container: "ApplicationContainer", environment: Environment) -> Iterator[None]:
    from dependency_injector import providers

    container.environment.override(providers.Object(environment))
    container.settings.reset()
    try:
        yield
    finally:
        container.environment.reset_last_overriding()
        container.settings.reset()


@contextmanager
def _collected(problems: list[ConfigurationError]) -> Iterator[None]:
    try:
        yield
    except ConfigurationErrors as found:
        problems.extend(found.errors)
    except ConfigurationError as error:
        problems.append(error)


class _Unseen(RetryPolicy):
    """An object that is in the code; it is taken for one of the kind that its setting needs."""

    def __call__(self, *arguments: object) -> None:
        """Do nothing: a rehearsal calls nothing."""


class _UnseenObjects(NamedObjects):
    """Objects that are in the code: each name has one."""

    def find(self, name: str, kind: str, narrow: Callable[[object], T | None]) -> T:
        found = narrow(_Unseen())
        return super().find(name, kind, narrow) if found is None else found


class _UnseenTransactions(LocalTransactions):
    """Transaction listeners that are in the code: each group has one."""

    def find(self, group: str, name: str | None) -> TransactionHandlers:
        async def check(message: Message[bytes]) -> TransactionState:
            raise ApplicationError("a rehearsal sends nothing")

        return TransactionHandlers(check)


class _Rehearsal:
    """One rehearsal of settings without code.

    Attributes:
        bindings: The bindings that it has made, without those that a function has only if it is of another kind.
    """

    def __init__(self, alone: SettingsAlone) -> None:
        self.bindings: list[Binding] = []
        self._alone = alone
        self._types = alone.binders.types
        self._settings = alone.settings
        self._factory = alone.factory
        self._factory.transactions = _UnseenTransactions(NamedObjects())
        self._found: list[ConfigurationError] = []
        self._directions: dict[str, set[str]] = {}
        self._guessed: set[str] = set()
        self._names: dict[str, str] = {}

    def problems(self) -> list[ConfigurationError]:
        """Return the problems of the bindings that the settings have."""
        self._collect_names()
        existing = ExistingBindings(list(self._names.values()), is_complete=False)
        for name in self._names.values():
            # A function may be a consumer or a supplier: its other binding then does not exist, and may lack a binder.
            with _collected([] if uniform(name) in self._guessed else self._found):
                existing.judged.append(self._made(name))
        with _collected(self._found):
            self._factory.check_defaults()
        environment, types = self._alone.environment, self._types
        return [*self._found, *judge_bindings(environment, self._settings, types, existing)]

    def _collect_names(self) -> None:
        """Collect the names of bindings, with the directions that the settings tell."""
        stream = self._settings.value
        for name in stream.input_bindings:
            self._add(name, _INPUT)
        for name in stream.output_bindings:
            self._add(name, _OUTPUT)
        for name in stream.pollable_source:
            self._add(f"{name}-in-0", _INPUT)
        self._collect_functions()
        for at in self._settings.origins:
            if at[0] == "bindings":
                self._add(str(at[1]), *_direction(str(at[1]), str(at[2])))
        for type_ in self._types.names:
            self._collect_extended(type_)

    def _collect_functions(self) -> None:
        with _collected(self._found):
            functions = FunctionSettings.load(self._alone.environment, self._settings)
            try:
                definitions = parse_definitions(functions.definition or "")
            except ValueError as error:
                raise functions.wrong(functions.definition_value, str(error)) from error
            for name in self._settings.value.source_bindings:
                self._add(functions.binding(name), _OUTPUT)
            for definition in definitions:
                for name, direction in ((definition.input(0), _INPUT), (definition.output(0), _OUTPUT)):
                    binding = functions.binding(name)
                    self._add(binding, direction)
                    if self._settings.value.configured_name(binding) is None:
                        self._guessed.add(uniform(binding))
            for name, renamed in self._settings.value.function.bindings.items():
                self._add(renamed, *_direction(name))

    def _collect_extended(self, type_: str) -> None:
        """Add what the settings of a binder type tell of the directions of bindings, and the names only they have."""
        environment, types = self._alone.environment, self._types
        if not environment.sets_below(f"{PREFIX}.{type_}"):
            return
        for at in extended_tree(environment, type_, types.extended_models).origins:
            # A name that is nearly another one is left to the judgement, which says so.
            if at[0] == "bindings" and (
                uniform(str(at[1])) in self._names or near_name(str(at[1]), self._names) is None
            ):
                self._add(str(at[1]), *_direction(str(at[1]), str(at[2])))

    def _add(self, name: str, *directions: str) -> None:
        self._names.setdefault(uniform(name), name)
        self._directions.setdefault(uniform(name), set()).update(directions)

    def _made(self, name: str) -> JudgedBinding:
        """Return the binding, made as at a start; in both directions if nothing tells its direction.

        Raises:
            ConfigurationError: The binding's settings are wrong.
        """
        directions: Collection[str] = self._directions[uniform(name)] or _EITHER
        channel = self._alone.channels[name]
        properties = self._factory.settings.properties(name)
        if directions == _EITHER and "," in (properties.destination or ""):
            directions = {_INPUT}
        polled = [f"{source}-in-0" for source in self._settings.value.pollable_source]
        made: list[Binding] = []
        if _INPUT in directions:
            made.append(self._factory.input(name, channel, polled=name in polled))
        if _OUTPUT in directions:
            made.append(self._factory.output(name, channel))
        if uniform(name) not in self._guessed:
            self.bindings.extend(made)
        sides = [judged(each, properties, has_policy=False, is_polled_supplier=True) for each in made]
        return replace(
            sides[0],
            is_input=_INPUT in directions,
            is_output=_OUTPUT in directions,
            ignored={key: reason for side in sides for key, reason in side.ignored.items()},
        )


def _direction(name: str, key: str = "") -> Iterable[str]:
    """Return the direction of a binding as its name tells it, or the key of a setting; nothing if neither does.

    Args:
        name: The name of the binding.
        key: The first segment of the setting below the binding.
    """
    found = _OF_FUNCTION.fullmatch(name)
    if found is not None:
        return (found[1],)
    if name in _CONVENTIONAL:
        return (_CONVENTIONAL[name],)
    if key in ("consumer", "group"):
        return (_INPUT,)
    return (_OUTPUT,) if key == "producer" else ()
