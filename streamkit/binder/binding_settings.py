"""The settings of bindings, each with its origin, so that errors name file and line."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches

from streamkit.config.config_files import SettingsFiles
from streamkit.config.located_errors import located
from streamkit.config.origin import Value
from streamkit.config.relaxed import uniform
from streamkit.config.settings import PREFIX, BindingProperties, StreamSettings
from streamkit.config.shape import Location
from streamkit.config.validation import Bound
from streamkit.errors import ConfigurationError

__all__ = ["BindingSettings", "topics_of"]


class BindingSettings:
    """The settings of an application's bindings.

    Attributes:
        stream: The settings `spring.cloud.stream.*`.
        origins: The values that settings set, with their origins, by their location below `spring.cloud.stream`.
    """

    def __init__(self, bound: Bound[StreamSettings], files: SettingsFiles) -> None:
        """Make the settings of bindings.

        Args:
            bound: `spring.cloud.stream.*`.
            files: The files that settings were read from, for errors.
        """
        self.stream = bound.value
        self._files = files
        self.origins: Mapping[Location, Value] = bound.origins

    @property
    def configured(self) -> Iterable[str]:
        """The names of the bindings that settings configure."""
        listed = self.stream.source_bindings, self.stream.output_bindings, self.stream.input_bindings
        return [*self.stream.bindings, *(name for names in listed for name in names)]

    def is_configured(self, name: str) -> bool:
        """Return whether settings configure a binding of that name, in any case."""
        return any(uniform(known) == uniform(name) for known in self.configured)

    def properties(self, name: str) -> BindingProperties:
        """Return the settings of a binding; if they name no destination, it is the binding's name."""
        return self.stream.binding(name)

    def unknown(self, name: str, who: str, declared: Iterable[str]) -> ConfigurationError:
        """Return the error for a binding that is neither configured nor declared.

        Args:
            name: The binding's name.
            who: The listener or function that names the binding.
            declared: The names of the declared bindings.
        """
        known = sorted({*self.configured, *declared})
        where = "" if known or self._files.read else f" ({self._files})"
        near = get_close_matches(name, known, n=1)
        return ConfigurationError(
            f"{who} names binding {name!r}, which does not exist"
            + (f"; did you mean {near[0]!r}?" if near else ".")
            + f" Known bindings: {', '.join(known) or 'none'}{where}. "
            f"Configure it with {PREFIX}.bindings.{name}.destination=<topic>, or declare it with enable_binding.",
            value=name,
            suggestion=near[0] if near else None,
        )

    @contextmanager
    def located(self, name: str) -> Iterator[None]:
        """Add the origin of the setting to a ConfigurationError about a binding that the block raises.

        Args:
            name: The binding's name.

        Raises:
            ConfigurationError: The block raised one; its ``key`` names the setting below the binding.
        """
        try:
            yield
        except ConfigurationError as error:
            value = self.origin(name, *error.key.split(".")) if error.key else None
            if value is None:
                raise ConfigurationError(f"binding {name!r}: {error}", key=error.key) from error
            raise located(value, error) from error

    def origins_of(self, name: str) -> dict[Location, Value]:
        """Return the values that settings set for one binding, by their location below the binding."""
        return {
            at[2:]: value
            for at, value in self.origins.items()
            if at[0] == "bindings" and uniform(str(at[1])) == uniform(name)
        }

    def origin(self, name: str, *rest: str) -> Value | None:
        """Return the value of one setting of a binding with its origin, or None if it is not set.

        Args:
            name: The binding's name.
            rest: The location of the setting below the binding.
        """
        return self.origins_of(name).get(rest)


def topics_of(destination: str) -> list[str]:
    """Return the destinations of the setting ``destination``, which are separated by commas."""
    return [topic for topic in map(str.strip, destination.split(",")) if topic]
