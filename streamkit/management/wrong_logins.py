"""Counts wrong passwords and tokens, so that nobody can try many.

In a minute an address may be wrong `MOST_OF_ADDRESS` times, and all addresses together `MOST` times; further logins are
refused until the minute is over, right ones too. An address is an IPv4 address, or the /64 network of an IPv6 address.
"""

import asyncio
import logging
from collections import Counter
from ipaddress import IPv6Address, ip_address
from typing import Final

__all__ = ["MINUTE", "MOST", "MOST_OF_ADDRESS", "WrongLogins"]

logger = logging.getLogger(__name__)

MINUTE: Final = 60.0
"""Seconds."""
MOST_OF_ADDRESS: Final = 10
MOST: Final = 1000
"""It also bounds the number of addresses that are known, and of lines in the log."""


class WrongLogins:
    """The wrong logins of the present minute."""

    def __init__(self, where: str) -> None:
        """Count from 0.

        Args:
            where: What the logins are to, for the log: `the management endpoints`.
        """
        self._where = where
        self._of: Counter[str] = Counter()
        self._ends_at = 0.0

    def seconds_to_wait(self, host: str | None) -> int:
        """Return the seconds for which logins from a host are refused; 0 if they are checked.

        Args:
            host: The client's address; None if it is not known, which counts as one address.
        """
        now = asyncio.get_running_loop().time()
        if now >= self._ends_at:
            self._of.clear()
        if self._of[_counted(host)] < MOST_OF_ADDRESS and self._of.total() < MOST:
            return 0
        return max(1, round(self._ends_at - now))

    def note(self, host: str | None) -> None:
        """Count a wrong login of a host, and log the first and the last one that it may make."""
        address = _counted(host)
        if not self._of.total():
            self._ends_at = asyncio.get_running_loop().time() + MINUTE
        self._of[address] += 1
        if self._of[address] == 1:
            logger.warning("wrong password or token at %s, from %s", self._where, address)
        if self._of[address] == MOST_OF_ADDRESS:
            logger.warning(
                "%d wrong passwords or tokens at %s from %s within a minute: logins from there "
                "are refused for the rest of it",
                MOST_OF_ADDRESS,
                self._where,
                address,
            )

    def __repr__(self) -> str:
        return f"<WrongLogins: {self._of.total()} of {len(self._of)} addresses>"


def _counted(host: str | None) -> str:
    try:
        address = ip_address((host or "").partition("%")[0])
    except ValueError:
        return "an unknown address"
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"
