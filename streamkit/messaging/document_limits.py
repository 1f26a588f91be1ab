"""Limits of the documents that converters read: small documents from outside can become large objects.

::

    up to 4 MiB         read, however many values the document holds
    up to `max_size`    read, if it has no more values than fit into 4 MiB
    beyond              refused

4 MiB is RocketMQ's largest body by default, and Kafka's is 1 MiB. An empty list takes three bytes of JSON and some 80
bytes of memory, so the memory of a document is bounded by its values, not by its bytes.
"""

from typing import Final

__all__ = ["MAX_DOCUMENT_SIZE", "MAX_VALUES", "UNCOUNTED_SIZE", "require_readable_json", "require_size"]

UNCOUNTED_SIZE: Final = 4 << 20
"""Bytes of a document whose values are not counted: RocketMQ's default ``maxMessageSize``."""

MAX_DOCUMENT_SIZE: Final = 16 << 20
"""Bytes of the largest document that is read, unless a converter has another limit: four times RocketMQ's largest
body by default."""

MAX_VALUES: Final = UNCOUNTED_SIZE
"""Values of the largest document: a document of 4 MiB cannot hold more."""


def require_size(data: bytes, max_size: int = MAX_DOCUMENT_SIZE) -> None:
    """Refuse a document that is too large.

    Args:
        data: The document.
        max_size: The limit, in bytes.

    Raises:
        ValueError: The document is larger.
    """
    if len(data) > max_size:
        raise ValueError(f"the document has {len(data)} bytes, more than the limit of {max_size}")


def require_readable_json(data: bytes, max_size: int = MAX_DOCUMENT_SIZE) -> None:
    """Refuse a JSON document that is too large, or holds too many values.

    Commas and opening brackets are counted, also inside texts: there cannot be more values than these.

    Args:
        data: The document.
        max_size: The limit, in bytes.

    Raises:
        ValueError: The document is larger, or holds more than `MAX_VALUES`.
    """
    if len(data) <= min(UNCOUNTED_SIZE, max_size):
        return
    require_size(data, max_size)
    if data.count(b",") + data.count(b"[") + data.count(b"{") > MAX_VALUES:
        raise ValueError(f"the document has {len(data)} bytes and holds more than {MAX_VALUES} values")
