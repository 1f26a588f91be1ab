"""The formats by which Spark's executors read or write a binding's destination without the application's process."""

from collections.abc import Mapping

import msgspec

from streamkit.config.secret import shown_text
from streamkit.errors import ConfigurationError

__all__ = ["SparkFormat"]


class SparkFormat(msgspec.Struct, frozen=True):
    """A Spark format, with the options for one binding's destination.

    Attributes:
        name: The argument of ``format(...)``.
        options: The arguments of ``options(...)``. Spark shows them, except those whose names match its
            ``spark.redaction.regex``, such as ``secretKey``; a secret must have such a name.
        starting: Options with the start position of a query without a checkpoint. They are used unless the query has an
            option of its own whose name begins with ``starting``, as in all of Spark's sources.
    """

    name: str
    options: Mapping[str, str]
    starting: Mapping[str, str] = msgspec.field(default_factory=dict)

    def options_with(self, given: Mapping[str, str], binding: str) -> dict[str, str]:
        """Return the options of a query: those of the binding, and those given for the query.

        Args:
            given: The options of the query.
            binding: The binding's name, for errors.

        Raises:
            ConfigurationError: The query has an option that the binding's settings decide.
        """
        decided = {name.lower(): name for name in self.options}
        for name in given:
            if name.lower() in decided:
                raise ConfigurationError(
                    f"option {name!r} is given for binding {binding!r}, whose settings already have it: "
                    f"{shown_text(name, self.options[decided[name.lower()]])!r}",
                    key=name,
                    value=shown_text(name, given[name]),
                )
        says_where = any(name.lower().startswith("starting") for name in given)
        return {**self.options, **({} if says_where else self.starting), **given}
