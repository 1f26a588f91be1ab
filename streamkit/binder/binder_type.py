"""Binder types: each makes the binders of one messaging system and names the models of their settings."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from difflib import get_close_matches

from streamkit.binder.binder import Binder, BinderContext
from streamkit.binder.delivery import ConsumerModel, ProducerModel
from streamkit.binder.stand_in import StandIn
from streamkit.config.environment import Environment
from streamkit.config.shape import AnyModel
from streamkit.errors import ConfigurationError

__all__ = ["BinderType", "BinderTypes"]


class BinderType(ABC):
    """A type of binder, such as ``rocketmq``; its methods import the messaging system's client when they are called.

    Attributes:
        is_default_candidate: Whether binders of this type serve applications that name no binder.
        is_in_process: Whether messages exist in the application's process only, so that no command can see them.
    """

    is_default_candidate: bool = True
    is_in_process: bool = False

    @abstractmethod
    def create_binder(self, name: str, context: BinderContext) -> Binder:
        """Return a binder that is not started yet.

        Args:
            name: The binder's name in the settings.
            context: Its settings, its clock and the application's name.

        Raises:
            ConfigurationError: Its settings are wrong.
        """

    @abstractmethod
    def extended_models(self) -> tuple[ConsumerModel, ProducerModel]:
        """Return the models of the extended consumer and producer properties of bindings."""

    def settings_models(self) -> Mapping[str, AnyModel]:
        """Return the models of the binders' own settings by prefix, for reports and the reference page."""
        return {}

    def stand_in(self, environment: Environment) -> StandIn:
        """Return the terms that a binder in memory keeps when it stands in for a binder of this type.

        Args:
            environment: The settings of the binder.

        Raises:
            ConfigurationError: The binder's settings are wrong.
        """
        return StandIn(*self.extended_models())

    def shared_system(self, name: str, context: BinderContext) -> AbstractAsyncContextManager[Mapping[str, str]] | None:
        """Return a context manager that runs the shared system of an application's worker processes, or None.

        The supervisor of the workers enters it, for example to start a broker. Its value is the settings by which the
        binders of this type in the workers connect to the system.

        Args:
            name: The binder's name in the settings.
            context: Its settings, its clock and the application's name.
        """
        return None


class BinderTypes:
    """The binder types of an application; each is loaded when it is first used.

    Attributes:
        names: The names of all types, sorted.
    """

    def __init__(self, loaders: Mapping[str, Callable[[], BinderType]]) -> None:
        """Make a table of types.

        Args:
            loaders: By the type's name, functions that return the type or raise a ConfigurationError.
        """
        self.loaders = dict(loaders)
        self._loaded: dict[str, BinderType] = {}
        self.names = sorted(self.loaders)

    def create(self, type_: str, name: str, context: BinderContext) -> Binder:
        """Return a binder of a type; the binder is not started yet.

        Args:
            type_: The name of the type.
            name: The binder's name in the settings.
            context: Its settings, its clock and the application's name.

        Raises:
            ConfigurationError: There is no such type, it cannot be loaded, or the binder's settings are wrong.
        """
        return self.get(type_).create_binder(name, context)

    def extended_models(self, type_: str) -> tuple[ConsumerModel, ProducerModel]:
        """Return the models of the type's extended consumer and producer properties of bindings.

        Raises:
            ConfigurationError: There is no such type, or it cannot be loaded.
        """
        return self.get(type_).extended_models()

    def settings_models(self, type_: str) -> Mapping[str, AnyModel]:
        """Return the models of the type's own settings by prefix.

        Raises:
            ConfigurationError: There is no such type, or it cannot be loaded.
        """
        return self.get(type_).settings_models()

    def get(self, type_: str) -> BinderType:
        """Return the type of that name.

        Raises:
            ConfigurationError: There is no such type, it cannot be loaded, or several plugins claim its name.
        """
        found = self._loaded.get(type_)
        if found is None:
            found = self._loaded[type_] = self._load(type_)
        return found

    def _load(self, type_: str) -> BinderType:
        load = self.loaders.get(type_)
        if load is None:
            near = get_close_matches(type_, self.names, n=1)
            raise ConfigurationError(
                f"there is no binder type {type_!r}; installed: {', '.join(self.names) or 'none'}"
                + (f". Did you mean {near[0]!r}?" if near else ""),
                value=type_,
                suggestion=near[0] if near else None,
            )
        return load()

    def __repr__(self) -> str:
        return f"<BinderTypes {self.names}>"
