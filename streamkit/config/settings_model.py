"""The base classes of all models of settings."""

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict

from streamkit.config.secret import shown

__all__ = ["SettingsModel", "ShownWithoutSecrets"]


class ShownWithoutSecrets(BaseModel):
    """A pydantic model whose `repr` and `str` hide secrets."""

    def __repr_args__(self) -> Iterable[tuple[str | None, object]]:
        """Yield the names and values that `repr` shows, with secrets hidden."""
        for name, value in super().__repr_args__():
            yield name, shown(name or "", value)


class SettingsModel(ShownWithoutSecrets):
    """A group of settings. Unknown keys are errors; values are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)
