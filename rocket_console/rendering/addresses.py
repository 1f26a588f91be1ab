"""Addresses of pages: paths with names as one step each, and queries."""

from collections.abc import Iterable, Mapping
from urllib.parse import quote, urlencode

__all__ = ["address", "is_local", "path_of", "with_query"]


def address(*steps: str, **query: object) -> str:
    """Return the address of a page.

    Args:
        steps: The steps of the path, such as `topics` and a topic's name; any text is one step.
        query: The parameters; those that are None are left out.
    """
    return with_query("/" + "/".join(quote(step, safe="") for step in steps), query.items())


def with_query(path: str, pairs: Iterable[tuple[str, object]] | Mapping[str, object]) -> str:
    """Return a path with parameters; those that are None or empty are left out."""
    given = pairs.items() if isinstance(pairs, Mapping) else pairs
    kept = [(name, str(value)) for name, value in given if value is not None and value != ""]
    return f"{path}?{urlencode(kept)}" if kept else path


def path_of(path: str) -> str:
    """Return a decoded path as it is written in an address: `/topics/%25DLQ%25shop` for `/topics/%DLQ%shop`."""
    return quote(path)


def is_local(address: str) -> bool:
    """Return whether an address is one of this console, so that it is safe to go there."""
    return address.startswith("/") and not address.startswith("//") and "\\" not in address and address.isprintable()
