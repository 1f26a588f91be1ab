"""The Bloom filter bits of each group with a filter, which Apache's brokers expect in ``consumerFilter.json``.

In Apache's extended consume queues (``enableConsumeQueueExt``) these bits mark the groups that want a message. There
are no such queues here, but without the bits Apache's broker would drop the whole file. The hash is the first half of
MurmurHash3 (x64, 128 bits, seed 0). The size is that of Apache's default settings: 20 percent of false positives with
32 groups.
"""

import msgspec

from rocket_remoting.wire.bodies import Body

__all__ = ["BIT_COUNT", "BloomFilterData", "bits_of"]

BIT_COUNT = 112
_HASHES = 3
_MASK = (1 << 64) - 1
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F


class BloomFilterData(Body):
    """The bits of one group.

    Attributes:
        bit_num: Number of bits of the whole filter.
        bit_pos: Positions of the group's bits.
    """

    bit_num: int = 0
    bit_pos: list[int] = msgspec.field(default_factory=list)


def bits_of(group: str, topic: str) -> BloomFilterData:
    """Return the bits of a group for its filter of a topic."""
    number = murmur3(f"{group}#{topic}".encode())
    low, high = number & 0xFFFFFFFF, number >> 32
    positions = []
    for index in range(1, _HASHES + 1):
        combined = (low + index * high) & 0xFFFFFFFF
        if combined >> 31:
            combined ^= 0xFFFFFFFF
        positions.append(combined % BIT_COUNT)
    return BloomFilterData(bit_num=BIT_COUNT, bit_pos=positions)


def murmur3(data: bytes) -> int:
    """Return the first 64 bits of the hash of the data."""
    h1 = h2 = 0
    whole = len(data) - len(data) % 16
    for start in range(0, whole, 16):
        k1 = int.from_bytes(data[start : start + 8], "little")
        k2 = int.from_bytes(data[start + 8 : start + 16], "little")
        h1 = ((_rotated(h1 ^ _first(k1), 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 = ((_rotated(h2 ^ _second(k2), 31) + h1) * 5 + 0x38495AB5) & _MASK
    rest = data[whole:]
    h2 ^= _second(int.from_bytes(rest[8:], "little"))
    h1 ^= _first(int.from_bytes(rest[:8], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return (_mixed(h1) + _mixed(h2)) & _MASK


def _first(k: int) -> int:
    return _rotated(k * _C1 & _MASK, 31) * _C2 & _MASK


def _second(k: int) -> int:
    return _rotated(k * _C2 & _MASK, 33) * _C1 & _MASK


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> (64 - bits)) & _MASK


def _mixed(h: int) -> int:
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & _MASK
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return h ^ h >> 33
