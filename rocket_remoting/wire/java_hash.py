"""Java's ``String.hashCode``, by which brokers filter tags and index keys.

::

    h(s) = s[0]·31^(n-1) + s[1]·31^(n-2) + … + s[n-1]     over UTF-16 code units, wrapped to 32 bits, signed
"""

from collections.abc import Sequence
from operator import mul

# With 128 products below 2^48 each, the sum of a chunk stays below 2^55, within the 64 bits that sum() adds in C.
_CHUNK = 128
_POWERS = tuple(pow(31, exponent, 1 << 32) for exponent in range(_CHUNK - 1, -1, -1))  # 31^127 … 31^0
_CHUNK_POWER = pow(31, _CHUNK, 1 << 32)


def java_hash(text: str) -> int:
    """Return the value of Java's ``text.hashCode()``, from -2**31 to 2**31 - 1."""
    units: Sequence[int] = text.encode("ascii") if text.isascii() else _utf16(text)
    head = len(units) % _CHUNK
    value: int = sum(map(mul, units[:head], _POWERS[_CHUNK - head :]))
    for start in range(head, len(units), _CHUNK):
        value = (value * _CHUNK_POWER + sum(map(mul, units[start : start + _CHUNK], _POWERS))) & 0xFFFFFFFF
    value &= 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def _utf16(text: str) -> Sequence[int]:
    return memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
