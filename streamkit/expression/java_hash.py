"""Java's hash codes, by which Spring chooses partitions and which expressions may ask for."""

from typing import Final

__all__ = ["java_hash"]

_INT_MIN: Final = -(2**31)
_LONG: Final = 2**64 - 1


def java_hash(key: object) -> int:
    """Return ``key.hashCode()`` as Java computes it for text, integers and booleans; other keys hash as their text.

    An integer beyond 32 bits hashes as a Java `Long`.
    """
    if isinstance(key, bool):
        return 1231 if key else 1237
    if isinstance(key, int):
        return key if _INT_MIN <= key < 2**31 else _signed((key & _LONG) ^ ((key & _LONG) >> 32))
    value = 0
    for unit in memoryview(str(key).encode("utf-16-le", "surrogatepass")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return _signed(value)


def _signed(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value
