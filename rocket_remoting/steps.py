"""Work in steps: generators that yield where other work of the event loop may run, and return their result."""

from collections.abc import Generator
from typing import TypeVar

__all__ = ["run_all"]

T = TypeVar("T")


def run_all(steps: Generator[None, None, T]) -> T:
    """Run all steps without a pause, where no event loop has to be kept free; return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
