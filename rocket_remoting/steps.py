"""Work in steps: generators that yield wherever others may have their turn, and return their result."""

from collections.abc import Generator
from typing import TypeVar

__all__ = ["run_all"]

T = TypeVar("T")


def run_all(steps: Generator[None, None, T]) -> T:
    """Run the steps at once, where nobody waits for the loop, and return what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
