"""How Spark reads or writes what a binding is bound to by itself, past the application's process."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["SparkFormat"]


@dataclass(frozen=True, slots=True)
class SparkFormat:
    """A format that Spark knows, and the options that lead to one binding's destination.

    Attributes:
        name: What stands in ``format(...)``.
        options: What stands in ``options(...)``; no secrets: Spark shows them.
    """

    name: str
    options: Mapping[str, str]
