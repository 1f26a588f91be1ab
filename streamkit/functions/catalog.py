"""The functions of an application by name, and those that settings bind."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from typing import Final

from streamkit.config.application_properties import FUNCTION
from streamkit.config.origin import Value
from streamkit.errors import ConfigurationError
from streamkit.functions.definition import Definition, parse_definitions
from streamkit.functions.settings import FunctionSettings
from streamkit.functions.signature import Signature, read_signature
from streamkit.listeners.arguments import ProviderLookup, describe
from streamkit.listeners.function_declaration import FunctionDeclaration

__all__ = ["ROUTER", "BoundFunction", "FunctionCatalog", "RegisteredFunction"]

ROUTER: Final = Definition(("functionRouter",))
"""The routing function, which `streamkit.functions.routing` creates."""


@dataclass(frozen=True, slots=True)
class RegisteredFunction:
    """A function that settings can bind, with its declaration and its signature."""

    function: Callable[..., object]
    declaration: FunctionDeclaration
    signature: Signature


@dataclass(frozen=True, slots=True)
class BoundFunction:
    """A definition with its functions and its bindings.

    Attributes:
        definition: The definition.
        functions: The functions that the definition is composed of.
        inputs: The names of its input bindings.
        outputs: The names of its output bindings.
    """

    definition: Definition
    functions: tuple[RegisteredFunction, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """The names of its bindings before settings rename them."""
        inputs = map(self.definition.input, range(len(self.inputs)))
        return [*inputs, *map(self.definition.output, range(len(self.outputs)))]


class FunctionCatalog:
    """The functions of an application by name."""

    def __init__(self, settings: FunctionSettings, providers: ProviderLookup) -> None:
        """Create an empty catalog.

        Args:
            settings: The settings of functions.
            providers: Resolves the markers of a container.
        """
        self._settings = settings
        self._providers = providers
        self._functions: dict[str, tuple[Callable[..., object], FunctionDeclaration]] = {}

    @property
    def names(self) -> list[str]:
        """The names of all functions, sorted."""
        return sorted(self._functions)

    def add(self, function: Callable[..., object], declaration: FunctionDeclaration) -> None:
        """Register a function.

        Raises:
            ConfigurationError: Another function has the same name.
        """
        known, _ = self._functions.setdefault(declaration.name, (function, declaration))
        if known != function:
            raise ConfigurationError(
                f"functions {describe(known)} and {describe(function)} are both called {declaration.name!r}: "
                'give one another name with @function("...")'
            )

    def find(self, name: str) -> RegisteredFunction | None:
        """Return the function of this name, or None.

        Raises:
            ConfigurationError: The function's annotations do not tell its inputs and outputs.
        """
        found = self._functions.get(name)
        if found is None:
            return None
        return RegisteredFunction(*found, read_signature(found[0], self._providers))

    def nearest(self, name: str) -> str | None:
        """Return the function name most similar to ``name``, or None if none is similar."""
        return next(iter(get_close_matches(name, self.names, n=1)), None)

    def definitions(self) -> list[Definition]:
        """Return the definitions that the settings bind; without such a setting, the only function.

        With `autodetect=false`, no function is bound without a definition.

        Raises:
            ConfigurationError: The setting is malformed, or there are several functions and no setting selects one.
        """
        settings = self._settings
        if settings.definition is not None:
            try:
                found = parse_definitions(settings.definition)
            except ValueError as error:
                raise settings.wrong(settings.definition_value, str(error)) from error
            return [*found, ROUTER] if settings.routing and ROUTER not in found else found
        eligible = [name for name in self.names if name not in settings.ineligible]
        if settings.routing or settings.routing_expression is not None:
            return [ROUTER]
        if not eligible or not settings.autodetect:
            return []
        if len(eligible) == 1:
            return [Definition((eligible[0],))]
        raise ConfigurationError(
            "there are several functions and no definition says which are bound: set "
            f"{FUNCTION}.definition={';'.join(eligible)}, with '|' in "
            "place of ';' between those that are composed",
            key=f"{FUNCTION}.definition",
        )

    def plan(self, definition: Definition, at: Value | None = None) -> BoundFunction:
        """Return the functions and the bindings of a definition.

        Args:
            definition: The definition.
            at: The setting that contains the definition, for errors.

        Raises:
            ConfigurationError: A function is unknown, an annotation is missing, or the functions cannot be composed.
        """
        functions = tuple(self._known(name, at) for name in definition.parts)
        for before, after in pairwise(functions):
            self._check_composable(definition, before, after, at)
        named = self._settings.binding
        inputs = (named(definition.input(index)) for index in range(functions[0].signature.inputs))
        outputs = (named(definition.output(index)) for index in range(functions[-1].signature.outputs))
        return BoundFunction(definition, functions, tuple(inputs), tuple(outputs))

    def _known(self, name: str, at: Value | None) -> RegisteredFunction:
        found = self.find(name)
        if found is not None:
            return found
        near = self.nearest(name)
        raise self._settings.wrong(
            at,
            f"there is no function {name!r}"
            + (f"; did you mean {near!r}?" if near else ".")
            + f" Known functions: {', '.join(self.names) or 'none'}",
            near,
        )

    def _check_composable(
        self, definition: Definition, before: RegisteredFunction, after: RegisteredFunction, at: Value | None
    ) -> None:
        if before.signature.outputs == after.signature.inputs == 1:
            return
        raise self._settings.wrong(
            at,
            f"{str(definition)!r} cannot be composed: {describe(before.function)} has {before.signature.outputs} "
            f"output(s), {describe(after.function)} {after.signature.inputs} input(s); each needs one",
        )

    def __repr__(self) -> str:
        return f"<FunctionCatalog {self.names}>"
