"""The verdicts on settings, and the warnings about settings that do not have the effect that they ask for."""

from enum import Enum

import msgspec

from streamkit.config.origin import Value

__all__ = ["SettingWarning", "Verdict"]


class Verdict(Enum):
    """The effect of a setting."""

    WRONG = "wrong"
    """Unknown, of the wrong kind, not supported, or for a binding that does not exist: the application does not
    start."""
    NAMES_NOTHING = "names nothing"
    """The setting is for a binding that nothing makes."""
    ANOTHER_BINDER = "another binder's"
    """The setting is for a binder type that the binding, or the whole application, does not use."""
    NO_EFFECT = "no effect"
    """The setting is ignored."""
    OVERRIDDEN = "overridden"
    """A stronger source sets the same key."""
    HONOURED = "honoured"
    """The setting has its effect."""
    FOREIGN = "not ours"
    """The key is below none of streamkit's prefixes."""


class SettingWarning(msgspec.Struct, frozen=True):
    """A setting that does not have the effect that it asks for; the application starts all the same.

    Attributes:
        value: The value, with its origin.
        reason: Why the setting does not have its effect.
        verdict: What is the matter with the setting.
    """

    value: Value
    reason: str
    verdict: Verdict = Verdict.NO_EFFECT

    def __str__(self) -> str:
        what = "names nothing" if self.verdict is Verdict.NAMES_NOTHING else "has no effect"
        return f"{self.value.origin}: {self.value.key} {what}: {self.reason}"
