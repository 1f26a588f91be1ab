"""IP addresses and networks in settings and policies."""

import ipaddress
from collections.abc import Iterable

__all__ = ["Networks"]


class Networks:
    """IP addresses and networks."""

    __slots__ = ("_networks", "_texts")

    def __init__(self, texts: Iterable[str]) -> None:
        """Read addresses such as ``192.168.0.7``, and networks such as ``192.168.0.0/24``.

        Raises:
            ValueError: A text is neither.
        """
        self._texts: set[str] = set()
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        for text in texts:
            address, slash, length = text.partition("/")
            if not slash:
                self._texts.add(_canonical(text))
                continue
            if not (length.isascii() and length.isdecimal()):  # Python would also read a netmask
                raise ValueError(text)
            self._networks.append(ipaddress.ip_network(f"{address}/{length}", strict=False))

    def have(self, host: str) -> bool:
        """Return whether a host is one of the addresses, or in one of the networks."""
        try:
            canonical = _canonical(host)
        except ValueError:  # a peer without an address
            return False
        if canonical in self._texts:
            return True
        address = ipaddress.ip_address(canonical)
        return any(address in network for network in self._networks)


def _canonical(text: str) -> str:
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):  # as a socket for IPv6 reports a client with an IPv4 address
        address = address.ipv4_mapped or address
    return str(address)
