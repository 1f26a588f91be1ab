"""Large batches are taken apart by columns where numpy is installed: the extra ``fast`` brings it."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocket_broker.batch_columns import BatchColumns

__all__ = ["load_columns", "read_batch"]

SMALLEST = 4096
"""Bytes of a batch for which numpy is worth loading."""


def read_batch(body: bytes | memoryview) -> "BatchColumns | None":
    """The batch by columns; None if it has to be stored message by message."""
    read_columns = _read_columns() if len(body) >= SMALLEST else None
    return read_columns(bytes(body)) if read_columns is not None else None


def load_columns() -> None:
    """Load numpy now: that takes so long that the first large batch would hold up everybody."""
    _read_columns()


@cache
def _read_columns() -> "Callable[[bytes], BatchColumns | None] | None":
    try:
        from rocket_broker.batch_columns import read_columns
    except (ImportError, OSError):
        return None
    return read_columns
