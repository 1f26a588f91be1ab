"""A source for pydantic-settings that reads streamkit's settings.

::

    class ShopSettings(BaseSettings):
        tax_rate: Decimal                                      # shop.tax-rate, shop.taxRate, SHOP_TAX_RATE

        @classmethod
        def settings_customise_sources(cls, settings_cls, init_settings, *others, **more):
            return init_settings, StreamSettingsSource(settings_cls, "shop", init_settings)

    ShopSettings()                                             # reads the files of the current directory
    app.environment.bind("shop", ShopSettings)                 # reads the settings of the application
"""

from typing import Any, Final

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource

from streamkit.config.environment import Environment
from streamkit.config.tree import RawTree
from streamkit.config.validation import ENVIRONMENT, Reading

__all__ = ["StreamSettingsSource"]

_NO_ENVIRONMENT: Final = f"{ENVIRONMENT} is an Environment, such as app.environment, not "


class StreamSettingsSource(PydanticBaseSettingsSource):
    """The settings below a prefix, from all sources of an environment, found by relaxed names."""

    def __init__(
        self, settings_cls: type[BaseSettings], prefix: str, init_settings: PydanticBaseSettingsSource
    ) -> None:
        """Make a source; settings are read when pydantic-settings calls it.

        Args:
            settings_cls: The settings class, as pydantic-settings passes it.
            prefix: The key below which the settings are, such as ``shop``.
            init_settings: The source of the constructor's arguments, as pydantic-settings passes it. The argument
                ``_environment``, the environment to read, is removed from that source. Without the argument, the
                settings are read from the current directory, the environment variables and no arguments.
        """
        super().__init__(settings_cls)
        self.prefix = prefix
        given = init_settings.init_kwargs if isinstance(init_settings, InitSettingsSource) else {}
        self._environment: object = given.pop(ENVIRONMENT, None)

    def read(self, environment: Environment) -> RawTree:
        """Return the raw values that the environment sets below the prefix."""
        return environment.tree(self.prefix, self.settings_cls)

    def __call__(self) -> dict[str, Any]:
        """Return the raw values of all fields that are set.

        Raises:
            ConfigurationErrors: All keys that the class does not know and all values that it refuses, each with its
                file and line.
            TypeError: The argument ``_environment`` is not an environment.
        """
        given = self._environment
        if isinstance(given, Reading):
            return given.values()
        environment = Environment.load() if given is None else given
        if not isinstance(environment, Environment):
            raise TypeError(f"{_NO_ENVIRONMENT}{environment!r}")
        tree = self.read(environment)
        # The errors of pydantic would not name the place of a value. So an object of the class is validated here first,
        # from this tree and the values of stronger sources, with errors that name the place.
        environment.bound(tree, self.settings_cls, self.current_state)
        return tree.values

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return the raw value of a field, its key, and False: the value needs no decoding."""
        return self().get(field_name), field_name, False

    def __repr__(self) -> str:
        return f"StreamSettingsSource({self.prefix!r})"
