"""What all groups of settings share."""

from pydantic import BaseModel, ConfigDict

__all__ = ["SettingsModel"]


class SettingsModel(BaseModel):
    """A group of settings: unknown keys are errors, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
