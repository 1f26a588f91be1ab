"""How Spark reads or writes what a binding is bound to by itself, past the application's process."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamkit.config.secret import shown_text
from streamkit.errors import ConfigurationError

__all__ = ["SparkFormat"]


@dataclass(frozen=True, slots=True)
class SparkFormat:
    """A format that Spark knows, and the options that lead to one binding's destination.

    Attributes:
        name: What stands in ``format(...)``.
        options: What stands in ``options(...)``; no secrets: Spark shows them.
        starting: Options that say where a query begins that has no checkpoint yet, unless the query says so itself:
            by any option whose name begins with ``starting``, as the names of all Spark's sources do.
    """

    name: str
    options: Mapping[str, str]
    starting: Mapping[str, str] = field(default_factory=dict)

    def options_with(self, given: Mapping[str, str], binding: str) -> dict[str, str]:
        """Return the options of a query: those of the binding, and those given for the query.

        Raises:
            ConfigurationError: One is given that the binding's settings decide.
        """
        decided = {name.lower(): name for name in self.options}
        for name in given:
            if name.lower() in decided:
                raise ConfigurationError(
                    f"option {name!r} is given for binding {binding!r}, whose settings say it already: "
                    f"{shown_text(name, self.options[decided[name.lower()]])!r}",
                    key=name,
                    value=shown_text(name, given[name]),
                )
        says_where = any(name.lower().startswith("starting") for name in given)
        return {**self.options, **({} if says_where else self.starting), **given}
