"""Leaves steps out of a sequence for as long as what is left does the same."""

from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["shortest"]

T = TypeVar("T")


def shortest(steps: Sequence[T], does_the_same: Callable[[Sequence[T]], bool], most_tries: int = 300) -> list[T]:
    """Return a part of the steps of which none can be left out.

    Args:
        steps: The sequence.
        does_the_same: Whether a part of it does what the whole sequence does.
        most_tries: How often that is asked; what is left by then is returned.
    """
    left, tries = list(steps), 0
    size = max(1, len(left) // 2)
    while True:
        start, was_shortened = 0, False
        while start < len(left):
            part = left[:start] + left[start + size :]
            tries += 1
            if tries > most_tries:
                return left
            if does_the_same(part):
                left, was_shortened = part, True
            else:
                start += size
        if size == 1 and not was_shortened:
            return left
        size = max(1, size // 2)
