"""The environment of an application: all settings, each with the place that sets it.

The sources, from the strongest to the weakest: overrides given in code, arguments (`--key=value`),
SPRING_APPLICATION_JSON, system properties, environment variables, random values, sources of plugins, settings files
(`streamkit.config.config_files`), defaults given in code.
"""

import logging
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar, cast

from streamkit.config.config_files import NO_FILES, Location, LocationGroup, SettingsFiles, load_files
from streamkit.config.located_errors import located
from streamkit.config.origin import Scalar, Value
from streamkit.config.placeholders import resolve
from streamkit.config.relaxed import uniform_key
from streamkit.config.source import (
    EnvironmentVariables,
    FilteredSource,
    PropertySource,
    RandomSource,
    SubtreeSource,
    SystemProperties,
    arguments_source,
    json_source,
    table_source,
)
from streamkit.config.verdict import SettingWarning
from streamkit.errors import ConfigurationError, ConfigurationErrors

if TYPE_CHECKING:
    from pydantic import BaseModel

    from streamkit.config.settings_model import SettingsModel
    from streamkit.config.shape import AnyModel
    from streamkit.config.tree import RawTree
    from streamkit.config.validation import Bound

# Models and their validation are imported when they are used: commands only look a key up, and should start fast.

logger = logging.getLogger(__name__)

IN_CODE: Final = "given in code"
"""The origin of overrides given in code, which win over all other settings."""

M = TypeVar("M", bound="SettingsModel | BaseModel")


class Environment:
    """The settings of several sources, found by relaxed names.

    Attributes:
        sources: The sources, the strongest first.
        active_profiles: The profiles with which the files were read.
        files: The files that settings were read from.
        warnings: The settings without effect that were found so far, by the text of the warning.
        asked: The values that were read so far, by place and key.
    """

    def __init__(
        self,
        sources: Sequence[PropertySource] = (),
        active_profiles: Sequence[str] = (),
        files: SettingsFiles = NO_FILES,
    ) -> None:
        self.sources = tuple(sources)
        self.active_profiles = tuple(active_profiles)
        self.files = files
        self.warnings: dict[str, SettingWarning] = {}
        self.asked: dict[tuple[str, str], Value] = {}

    @classmethod
    def load(
        cls,
        *,
        config_location: str | Path | None = None,
        arguments: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        overrides: Mapping[str, Scalar] | None = None,
        defaults: Mapping[str, Scalar] | None = None,
        directory: Path | None = None,
        more_sources: "Callable[[Environment], Iterable[PropertySource]] | None" = None,
    ) -> "Environment":
        """Read the settings of all sources.

        Args:
            config_location: Files or directories to read instead of those in `directory`, as for
                `spring.config.location`.
            arguments: The command line; arguments that do not start with `--` are ignored.
            variables: The environment variables; by default those of the process.
            overrides: Settings from code, stronger than all others.
            defaults: Settings from code, weaker than all others.
            directory: The directory that is searched for files; by default the current one.
            more_sources: A function that is called with the environment of all other sources and returns further ones,
                such as those of plugins. They are stronger than files and weaker than environment variables; the first
                is the strongest.

        Raises:
            ConfigurationError: A file is missing or malformed, or a further source cannot be read.
        """
        directory = Path.cwd() if directory is None else directory
        # First, because these sources say where the files are and which profiles are active.
        strong = cls(list(_strong_sources(overrides, arguments, os.environ if variables is None else variables)))
        files = load_files(
            strong._locations(config_location, directory),
            directory,
            name=strong.text("spring.config.name") or "application",
            lookup=strong.text,
        )
        weak = [] if defaults is None else [table_source("defaults", defaults, "default given in code")]
        weaker = [*reversed(files.sources), *weak]
        environment = cls([*strong.sources, *weaker], files.active_profiles, files.files)
        environment.note(files.warnings)
        for text in files.unused_profiles:
            logger.warning("%s", text)
        more = () if more_sources is None else tuple(more_sources(environment))
        if not more:
            return environment
        return environment._with_sources([*strong.sources, *more, *weaker])

    def get(self, key: str) -> Value | None:
        """Return the value of `key` with its placeholders replaced; None if no source sets it.

        Raises:
            ConfigurationError: A placeholder in the value cannot be replaced.
        """
        found = self._raw(key)
        return None if found is None else self.resolved(found)

    def text(self, key: str, default: str | None = None) -> str | None:
        """Return the value of `key` as text; `default` if no source sets it.

        Raises:
            ConfigurationError: A placeholder in the value cannot be replaced.
        """
        found = self.get(key)
        return default if found is None else str(found)

    def resolved(self, found: Value) -> Value:
        """Return a value with its placeholders replaced.

        Raises:
            ConfigurationError: A placeholder cannot be replaced.
        """
        if not isinstance(found.value, str) or "$" not in found.value:
            return found
        try:
            return Value(resolve(found.value, self._raw_text), found.origin, found.key)
        except ConfigurationError as error:
            raise located(found, error) from error

    def bind(self, prefix: str, model: type[M]) -> M:
        """Return the settings below `prefix` as a `model`; keys may spell its fields in any relaxed form.

        Raises:
            ConfigurationErrors: All keys that the model does not know and all values that it refuses.
        """
        return self.bound(self.tree(prefix, cast("AnyModel", model)), model).value

    def bind_extended(self, type_: str, binding: str, side: str, model: type[M]) -> M:
        """Return the settings that a binder type has for one binding; the binding's own win over the type's defaults.

        Args:
            type_: The binder's type, such as `rocketmq`.
            binding: The binding's name, in any case.
            side: `consumer` or `producer`.
            model: The model of the settings.

        Raises:
            ConfigurationErrors: All keys that the model does not know and all values that it refuses.
        """
        return self.explain_extended(type_, binding, side, model).value

    def explain_extended(self, type_: str, binding: str, side: str, model: type[M]) -> "Bound[M]":
        """Do the same as `bind_extended`, and return the origin of every value too."""
        prefix = f"spring.cloud.stream.{type_}"
        shape = cast("AnyModel", model)
        own = self.tree(f"{prefix}.bindings[{binding}].{side}", shape)
        return self.bound(own.over(self.tree(f"{prefix}.default.{side}", shape)), model)

    def tree(self, prefix: str, model: "AnyModel", skip: Iterable[str] = ()) -> "RawTree":
        """Return the raw values below `prefix`, placed by the shape of `model`.

        Args:
            prefix: The key below which the settings are.
            model: The model whose fields the keys name.
            skip: First segments below the prefix that are left out.
        """
        from streamkit.config.shape import section_of
        from streamkit.config.tree import read_tree

        return read_tree(self.sources, self.resolved, prefix, section_of(model), skip)

    def bound(self, tree: "RawTree", model: type[M], given: Mapping[str, object] = MappingProxyType({})) -> "Bound[M]":
        """Return the validated model of raw values, and log a warning for each setting without effect, once.

        Args:
            tree: The raw values.
            model: The model.
            given: Values of a `BaseSettings` that win over those of the tree.

        Raises:
            ConfigurationErrors: All problems of the values.
        """
        from streamkit.config.validation import validate, without_effect

        self.note(without_effect(tree))
        for value in tree.origins.values():
            self._ask(value)
        return validate(tree, model, given)

    def problems_of(self, prefix: str, model: "AnyModel", skip: Iterable[str] = ()) -> Sequence[ConfigurationError]:
        """Return the problems of the settings below `prefix`; the settings do not count as read.

        Args:
            prefix: The key below which the settings are.
            model: The model of the settings.
            skip: First segments below the prefix that are left out.
        """
        from streamkit.config.validation import validate, without_effect

        tree = self.tree(prefix, model, skip)
        self.note(without_effect(tree))
        try:
            validate(tree, model)
        except ConfigurationErrors as found:
            return found.errors
        return ()

    def note(self, warnings: Iterable[SettingWarning]) -> None:
        """Log the warnings that were not logged before, and add them to `warnings`."""
        for warning in warnings:
            if str(warning) not in self.warnings:
                self.warnings[str(warning)] = warning
                logger.warning("%s", warning)

    def count_as_read(self, values: Iterable[Value]) -> None:
        """Add values to `asked` that will be read later."""
        for value in values:
            self._ask(value)

    def sets_below(self, prefix: str) -> bool:
        """Return whether any source sets a key below `prefix`."""
        segments = uniform_key(prefix)
        return any(True for source in self.sources for _ in source.entries(segments))

    def below(self, prefix: str, *, inherit: bool = True) -> "Environment":
        """Return an environment in which the settings below `prefix` stand at the top and win over all others.

        Args:
            prefix: The key below which the settings are.
            inherit: Whether the settings of this environment are part of the new one too.
        """
        own = [SubtreeSource(source, uniform_key(prefix)) for source in self.sources]
        return self._with_sources([*own, *(self.sources if inherit else ())])

    def without(self, left_out: Container[tuple[str, str]]) -> "Environment":
        """Return an environment without some settings, given by place and key."""
        return self._with_sources([FilteredSource(source, left_out) for source in self.sources])

    def with_arguments(self, arguments: Sequence[str]) -> "Environment":
        """Return an environment in which the settings of a command line win over these."""
        return self._with_sources([arguments_source(arguments), *self.sources])

    def portable(self) -> "Environment":
        """Return the same settings for another process, which may have other files and variables.

        Of the environment variables, only those that begin with `SPRING_` or `SPRING.` and those that were read so far
        are passed on: other variables may hold secrets that the process does not need.
        """
        asked = {value.key for value in self.asked.values()}
        sources = [
            source.only(asked) if isinstance(source, EnvironmentVariables) else source for source in self.sources
        ]
        return Environment(sources, self.active_profiles, self.files)

    def _with_sources(self, sources: Sequence[PropertySource]) -> "Environment":
        """Return an environment of other sources that shares `warnings` and `asked` with this one."""
        made = Environment(sources, self.active_profiles, self.files)
        made.warnings, made.asked = self.warnings, self.asked
        return made

    def _raw(self, key: str) -> Value | None:
        for source in self.sources:
            found = source.get(key)
            if found is not None:
                self._ask(found)
                return found
        return None

    def _ask(self, value: Value) -> None:
        self.asked.setdefault((str(value.origin), value.key), value)

    def _raw_text(self, key: str) -> str | None:
        found = self._raw(key)
        return None if found is None else str(found)

    def _locations(self, given: str | Path | None, directory: Path) -> list[LocationGroup]:
        listed = str(given) if given is not None else self.text("spring.config.location")
        groups = [Location.standard(directory)] if listed is None else Location.parse(listed, directory)
        additional = self.text("spring.config.additional-location") or ""
        return [*groups, *Location.parse(additional, directory)]

    def __repr__(self) -> str:
        return f"Environment({[source.name for source in self.sources]})"


def _strong_sources(
    overrides: Mapping[str, Scalar] | None, arguments: Sequence[str], variables: Mapping[str, str]
) -> Iterator[PropertySource]:
    """Yield the sources that are stronger than files, the strongest first."""
    if overrides is not None:
        yield table_source("overrides", overrides, IN_CODE)
    from_arguments = arguments_source(arguments)
    yield from_arguments
    from_variables = EnvironmentVariables(variables)
    inline = from_arguments.get("spring.application.json") or from_variables.get("spring.application.json")
    # Weaker than arguments and stronger than all variables, even if a variable holds the JSON: Spring Boot's order.
    if inline is not None:
        yield json_source(str(inline), inline.origin)
    yield SystemProperties()
    yield from_variables
    yield RandomSource()
