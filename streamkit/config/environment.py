"""The environment of an application: all its settings, each with the place it was set.

From the strongest to the weakest source: overrides given in code, arguments (`--key=value`),
SPRING_APPLICATION_JSON, environment variables, settings files (`streamkit.config.config_files`),
defaults given in code.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel

from streamkit.config.config_files import Location, load_files
from streamkit.config.origin import Scalar, Value
from streamkit.config.placeholders import resolve
from streamkit.config.places import located
from streamkit.config.relaxed import uniform_key
from streamkit.config.shape import section_of
from streamkit.config.source import (
    EnvironmentVariables,
    PropertySource,
    RandomSource,
    SubtreeSource,
    arguments_source,
    json_source,
    table_source,
)
from streamkit.config.tree import RawTree, read_tree
from streamkit.config.validation import Bound, SettingWarning, validate, without_effect
from streamkit.errors import ConfigurationError

logger = logging.getLogger(__name__)

IN_CODE: Final = "given in code"
"""The origin of settings that win over all others."""

M = TypeVar("M", bound=BaseModel)


class Environment:
    """Settings by relaxed names, from several sources.

    Attributes:
        sources: The sources, the strongest first.
        active_profiles: The profiles that were active when the files were read.
        warnings: Settings found to have no effect so far, by what is said about them.
        asked: The values somebody has asked for so far, by their places and keys.
    """

    def __init__(self, sources: Sequence[PropertySource] = (), active_profiles: Sequence[str] = ()) -> None:
        self.sources = tuple(sources)
        self.active_profiles = tuple(active_profiles)
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
    ) -> "Environment":
        """Reads all settings there are.

        Args:
            config_location: Files or directories to read instead of those in `directory`, comma-separated.
            arguments: The command line; what does not start with `--` is not ours.
            variables: The environment variables; those of the process unless given.
            overrides: Settings from code that win over everything.
            defaults: Settings from code that everything wins over.
            directory: Where files are looked for; the current one unless given.

        Raises:
            ConfigurationError: A file is missing or malformed.
        """
        directory = Path.cwd() if directory is None else directory
        strong = cls(
            list(_strong_sources(overrides, arguments, os.environ if variables is None else variables))
        )
        files = load_files(
            strong._locations(config_location, directory),
            directory,
            name=strong.text("spring.config.name") or "application",
            lookup=strong.text,
        )
        weak = [] if defaults is None else [table_source("defaults", defaults, "default given in code")]
        environment = cls([*strong.sources, *reversed(files.sources), *weak], files.active_profiles)
        environment.note(files.warnings)
        return environment

    def get(self, key: str) -> Value | None:
        """The value of `key`, its placeholders replaced, or None when nothing sets it.

        Raises:
            ConfigurationError: A placeholder in it cannot be replaced.
        """
        found = self._raw(key)
        return None if found is None else self.resolved(found)

    def text(self, key: str, default: str | None = None) -> str | None:
        """The value of `key` as text, or `default` when nothing sets it."""
        found = self.get(key)
        return default if found is None else str(found)

    def resolved(self, found: Value) -> Value:
        """The value with its placeholders replaced.

        Raises:
            ConfigurationError: One of them cannot be.
        """
        if not isinstance(found.value, str) or "$" not in found.value:
            return found
        try:
            return Value(resolve(found.value, self._raw_text), found.origin, found.key)
        except ConfigurationError as error:
            raise located(found, error) from error

    def bind(self, prefix: str, model: type[M]) -> M:
        """What is set below `prefix`, as `model`; the names of its fields are relaxed.

        Raises:
            ConfigurationErrors: Keys the model does not know, and values it refuses, all of them.
        """
        return self.bound(self.tree(prefix, model), model).value

    def bind_extended(self, type_: str, binding: str, side: str, model: type[M]) -> M:
        """A binder's own settings of one binding: those of its defaults and, stronger, of the binding.

        Args:
            type_: The binder's type, such as `rocketmq`.
            binding: The binding's name, in any case.
            side: `consumer` or `producer`.
            model: What they are.

        Raises:
            ConfigurationErrors: Keys the model does not know, and values it refuses, all of them.
        """
        return self.explain_extended(type_, binding, side, model).value

    def explain_extended(self, type_: str, binding: str, side: str, model: type[M]) -> Bound[M]:
        """As `bind_extended`, with the origin of every value."""
        prefix = f"spring.cloud.stream.{type_}"
        own = self.tree(f"{prefix}.bindings[{binding}].{side}", model)
        return self.bound(own.over(self.tree(f"{prefix}.default.{side}", model)), model)

    def tree(self, prefix: str, model: type[BaseModel], skip: Iterable[str] = ()) -> RawTree:
        """What is set below `prefix`, read by the shape of `model`, but for the first segments in `skip`."""
        return read_tree(self.sources, self.resolved, prefix, section_of(model), skip)

    def bound(self, tree: RawTree, model: type[M]) -> Bound[M]:
        """The validated model of a tree; a setting without effect is warned about, once.

        Raises:
            ConfigurationErrors: Everything that is wrong with it.
        """
        self.note(without_effect(tree))
        for value in tree.origins.values():
            self._ask(value)
        return validate(tree, model)

    def note(self, warnings: Iterable[SettingWarning]) -> None:
        """Logs the warnings that were not logged before, and keeps them in `warnings`."""
        for warning in warnings:
            if str(warning) not in self.warnings:
                self.warnings[str(warning)] = warning
                logger.warning("%s", warning)

    def sets_below(self, prefix: str) -> bool:
        """Whether anything is set below `prefix`."""
        segments = uniform_key(prefix)
        return any(True for source in self.sources for _ in source.entries(segments))

    def below(self, prefix: str, *, inherit: bool = True) -> "Environment":
        """An environment in which what is set below `prefix` wins; nothing else is set unless `inherit`."""
        own = [SubtreeSource(source, uniform_key(prefix)) for source in self.sources]
        inner = Environment([*own, *(self.sources if inherit else ())], self.active_profiles)
        inner.warnings, inner.asked = self.warnings, self.asked
        return inner

    def with_arguments(self, arguments: Sequence[str]) -> "Environment":
        """The same settings, over which those of a command line win."""
        made = Environment([arguments_source(arguments), *self.sources], self.active_profiles)
        made.warnings, made.asked = self.warnings, self.asked
        return made

    def portable(self) -> "Environment":
        """The same settings for another process, which may have other files and variables.

        Of the environment variables it has those that are settings, and those that anybody has asked for so far: the
        others, secrets perhaps, are none of its business.
        """
        asked = {value.key for value in self.asked.values()}
        sources = [
            source.only(asked) if isinstance(source, EnvironmentVariables) else source
            for source in self.sources
        ]
        return Environment(sources, self.active_profiles)

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

    def _locations(self, given: str | Path | None, directory: Path) -> list[Location]:
        listed = str(given) if given is not None else self.text("spring.config.location")
        locations = Location.standard(directory) if listed is None else Location.parse(listed, directory)
        additional = self.text("spring.config.additional-location") or ""
        return [*locations, *Location.parse(additional, directory)]

    def __repr__(self) -> str:
        return f"Environment({[source.name for source in self.sources]})"


def _strong_sources(
    overrides: Mapping[str, Scalar] | None, arguments: Sequence[str], variables: Mapping[str, str]
) -> Iterator[PropertySource]:
    """The sources stronger than files, the strongest first."""
    if overrides is not None:
        yield table_source("overrides", overrides, IN_CODE)
    from_arguments = arguments_source(arguments)
    yield from_arguments
    from_variables = EnvironmentVariables(variables)
    inline = from_arguments.get("spring.application.json") or from_variables.get("spring.application.json")
    if inline is not None:
        yield json_source(str(inline), inline.origin)
    yield from_variables
    yield RandomSource()
