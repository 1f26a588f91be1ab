"""The error of a broken promise."""

from typing import Any

__all__ = ["Broken"]


class Broken(Exception):  # noqa: N818 - a finding about the broker, not a mistake of the test
    """The broker broke a promise.

    Attributes:
        kind: Which promise, in a few words; the same for every time that this promise is broken.
        flush: The broker's `flushDiskType`.
        steps: The rules that were called until then, with their arguments.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.flush = ""
        self.steps: list[tuple[str, dict[str, Any]]] = []
