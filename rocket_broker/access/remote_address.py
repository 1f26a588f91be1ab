"""White lists: the addresses whose requests need no signature, in the notation of Apache's ``plain_acl.yml``.

::

    192.168.0.7                 one address
    192.168.0.7,192.168.0.9     several
    192.168.0.{7,9}             several that differ in the last part
    192.168.0.*                 any last part
    192.168.1-9.*               a range, then any last part
    2001:db8::1-ff              the same for IPv6, in hexadecimal digits
    *                           every address
    (nothing)                   no address

An IPv4 address that a socket for IPv6 reports, as ``::ffff:192.168.0.7``, counts as an IPv4 address.
"""

import ipaddress
from collections.abc import Iterable

__all__ = ["AddressPattern", "NoAddress", "parse_patterns"]

_EVERY = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
_PARTS_OF = {4: 4, 6: 8}
"""Parts of an address, by the version of IP."""


class NoAddress(ValueError):  # noqa: N818 - a state, not a mistake
    """The text is neither an address nor a pattern of addresses."""


class AddressPattern:
    """The addresses of which each part lies in a range."""

    __slots__ = ("_ranges", "text")

    def __init__(self, text: str) -> None:
        """Read a pattern of the forms in the module's docstring, but without commas and braces.

        Raises:
            NoAddress: The text has none of these forms.
        """
        self.text = text
        self._ranges = () if text in _EVERY else tuple(_ranges(text))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AddressPattern) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def matches(self, host: str) -> bool:
        """Return whether an address, or any text that stands for a peer without one, is among those of the pattern."""
        if not self._ranges:
            return True
        parts = _parts_of(host)
        return len(parts) == len(self._ranges) and all(
            low <= part <= high for part, (low, high) in zip(parts, self._ranges, strict=True)
        )

    def __repr__(self) -> str:
        return f"AddressPattern({self.text!r})"


def parse_patterns(text: str | None) -> tuple[AddressPattern, ...]:
    """Return the patterns of an entry of a white list; none for an empty one.

    Raises:
        NoAddress: The entry, or one of the addresses in it, has none of the forms.
    """
    text = (text or "").strip()
    if not text:
        return ()
    if text.endswith("}"):
        head, brace, listed = text[:-1].rpartition("{")
        if not brace or not head.endswith((".", ":")):
            raise NoAddress(f"{text!r}: braces may stand for the last part of an address only, as in 192.168.0.{{7,9}}")
        return tuple(AddressPattern(head + part.strip()) for part in _listed(listed, text))
    if "," in text:
        return tuple(AddressPattern(part.strip()) for part in _listed(text, text))
    return (AddressPattern(text),)


def _listed(text: str, whole: str) -> list[str]:
    parts = [part for part in text.split(",") if part.strip()]
    if not parts:
        raise NoAddress(f"{whole!r} lists no address")
    return parts


def _parts_of(host: str) -> tuple[int, ...]:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ()
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    packed = address.packed
    if address.version == 4:
        return tuple(packed)
    return tuple(int.from_bytes(packed[at : at + 2], "big") for at in range(0, 16, 2))


def _ranges(text: str) -> Iterable[tuple[int, int]]:
    """Return the lowest and the highest value of each part."""
    if "*" not in text and "-" not in text:
        parts = _parts_of(text)
        if not parts:
            raise NoAddress(f"{text!r} is not an IP address: expected, say, 192.168.0.7 or 192.168.0.*")
        return [(part, part) for part in parts]
    if ":" in text:
        groups, base, highest = _expanded(text), 16, 0xFFFF
    else:
        groups, base, highest = text.split("."), 10, 255
        if len(groups) != 4:
            raise NoAddress(f"{text!r}: an IPv4 address has four parts, as 192.168.0.*")
    return [_range(group.strip(), base, highest, text) for group in groups]


def _expanded(text: str) -> list[str]:
    """Return the eight groups of an IPv6 address, with zeros for ``::``."""
    before, gap, after = text.partition("::")
    left, right = (part.split(":") if part else [] for part in (before, after))
    missing = 8 - len(left) - len(right)
    if (missing < 1) if gap else (missing != 0):
        raise NoAddress(f"{text!r}: an IPv6 address has eight parts, of which `::` replaces one or more")
    return [*left, *["0"] * missing, *right]


def _range(part: str, base: int, highest: int, text: str) -> tuple[int, int]:
    if part == "*":
        return 0, highest
    first, dash, last = part.partition("-")
    try:
        low = int(first, base)
        high = int(last, base) if dash else low
    except ValueError:
        raise NoAddress(f"{text!r}: {part!r} is neither a number, nor a range as 1-9, nor *") from None
    if not 0 <= low <= high <= highest:
        raise NoAddress(
            f"{text!r}: {part!r} must lie between 0 and {highest:x}"
            if base == 16
            else f"{text!r}: {part!r} must lie between 0 and {highest}"
        )
    return low, high
