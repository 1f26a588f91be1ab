"""How many entries every table of a server has, found by following its attributes.

No table is named here, so that one which is added later is counted as well.
"""

from collections import deque
from collections.abc import Iterator, Sized
from weakref import WeakSet

__all__ = ["table_sizes"]

PACKAGES = ("rocket_broker.", "rocket_remoting.")
COUNTERS = frozenset({"_count", "_size", "_total", "_routes", "used"})
"""Attributes that count what is kept."""
LISTINGS = (dict, list, set, deque, WeakSet)


def table_sizes(server: object, name: str) -> dict[str, int]:
    """Return the number of entries by the path of attributes that leads to the table.

    Args:
        server: The object that has the tables, directly or through other objects.
        name: What the paths begin with.
    """
    sizes: dict[str, int] = {}
    seen = {id(server)}
    waiting = deque([(name, server)])
    while waiting:
        path, owner = waiting.popleft()
        for attribute, value in _attributes(owner):
            place = f"{path}.{attribute}"
            if isinstance(value, LISTINGS):
                sizes[place] = len(value)
                inner = value.values() if isinstance(value, dict) else value
                sizes[f"{place}[]"] = sum(len(item) for item in inner if isinstance(item, Sized) and _is_listing(item))
            elif attribute in COUNTERS and isinstance(value, int):
                sizes[place] = value
            elif type(value).__module__.startswith(PACKAGES) and id(value) not in seen:
                seen.add(id(value))
                waiting.append((place, value))
    return sizes


def _is_listing(value: object) -> bool:
    return isinstance(value, LISTINGS)


def _attributes(owner: object) -> Iterator[tuple[str, object]]:
    yield from getattr(owner, "__dict__", {}).items()
    for kind in type(owner).__mro__:
        slots = getattr(kind, "__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if hasattr(owner, slot) and not slot.startswith("__"):
                yield slot, getattr(owner, slot)
