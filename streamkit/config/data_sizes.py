"""Sizes of data in Spring's notation: `512`, `512B`, `16KB`, `4MB`. A kilobyte has 1,024 bytes."""

import re
from typing import Annotated, Final

from streamkit.config.setting_values import Before

_SIZE: Final = re.compile(r"(\d+)\s*(B|KB|MB|GB|TB)?", re.IGNORECASE)
_BYTES: Final = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


def parse_data_size(text: str) -> int:
    """Return the number of bytes that a text describes.

    Args:
        text: The size, such as `16KB`, or a number of bytes.

    Raises:
        ValueError: The text is not a size.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError("expected a size, such as 512B, 16KB, 4MB, or a number of bytes")
    return int(found[1]) * _BYTES[(found[2] or "B").upper()]


def _read(value: object) -> object:
    return parse_data_size(value) if isinstance(value, str) else value


DataSize = Annotated[int, Before(_read)]
"""A number of bytes."""
