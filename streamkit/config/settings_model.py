"""The base classes of all models of settings.

A validator is built when its model first validates something: no process reads all settings, and a validator takes
longer to build than its class. So a field whose default is a model has the factory `Model.model_construct`, which needs
no validator.
"""

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict

from streamkit.config.secret import shown

__all__ = ["SettingsModel", "SharedSettingsModel", "ShownWithoutSecrets"]


class ShownWithoutSecrets(BaseModel):
    """A pydantic model whose `repr` and `str` hide secrets."""

    def __repr_args__(self) -> Iterable[tuple[str | None, object]]:
        """Yield the names and values that `repr` shows, with secrets hidden."""
        for name, value in super().__repr_args__():
            yield name, shown(name or "", value)


class SettingsModel(ShownWithoutSecrets):
    """A group of settings. Unknown keys are errors; values are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class SharedSettingsModel(ShownWithoutSecrets):
    """Settings below a prefix that other software uses too. Unknown keys are ignored: they may belong to that."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)
