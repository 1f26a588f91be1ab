"""How much of a table one owner may take: a share of the table's bound, so that the others find room.

An owner is an address that clients connect from, or a group::

    table (at most 262,144 locks)     owner                   share
    ├── lock of queue 0               address 203.0.113.7     65,536
    │                                 group billing           65,536
    └── lock of queue 1               group orders            65,536

An entry counts for each of its owners until it goes. Clients at the broker's own address have no address for an owner
(`Connection.counted_as`): they are what runs beside the broker, and may use it up. What was loaded from the disk has
no owners, because nobody knows who made it. The bound of the whole table is checked where the table is.
"""

import logging
from collections import Counter
from collections.abc import Callable

from rocket_broker.limits.refusal import Refusal
from rocket_remoting.wire.codes import ResponseCode

__all__ = ["PARTS", "Shares", "owner_group"]

logger = logging.getLogger(__name__)

PARTS = 4
"""One owner has at most this part of a bound, a quarter. Of 50,000 topics that is 12,500: more than a known cluster's
applications have, and it takes four addresses that mean harm to leave nothing to the others."""

_GROUP = "group "


def owner_group(group: str) -> str:
    """Return a consumer or producer group as an owner; no address has a space."""
    return _GROUP + group


class Shares:
    """Counts the entries of one table by their owners.

    An owner is an address as `Connection.counted_as` has it, or an `owner_group`. An empty one is not counted.

    Args:
        what: The entries, for people: "topics of this broker".
        bound: Returns how many entries, or bytes, the whole table may have.
    """

    def __init__(self, what: str, bound: Callable[[], int]) -> None:
        self._what = what
        self._bound = bound
        self._counts: Counter[str] = Counter()
        self._refused: set[str] = set()

    @property
    def share(self) -> int:
        """How much one owner may have."""
        return max(1, self._bound() // PARTS)

    def check(self, number: int, *owners: str, code: ResponseCode = ResponseCode.SYSTEM_ERROR) -> None:
        """Return if each of the owners may have so many entries more.

        Raises:
            Refusal: One may not. The first refusal of an owner is logged, until it has nothing any more.
        """
        share = self.share
        for owner in owners:
            if owner and self._counts[owner] + number > share:
                raise self._refusal(owner, number, share, code)

    def room(self, owner: str) -> int:
        """Return how many entries more the owner may have."""
        return max(0, self.share - self._counts[owner]) if owner else self._bound()

    def count(self, number: int, *owners: str) -> None:
        """Count so many entries more for each of the owners; fewer if the number is negative."""
        counts = self._counts
        for owner in owners:
            if owner:
                left = counts[owner] + number
                if left > 0:
                    counts[owner] = left
                else:
                    counts.pop(owner, None)
                    self._refused.discard(owner)

    def _refusal(self, owner: str, number: int, share: int, code: ResponseCode) -> Refusal:
        kind = "group" if owner.startswith(_GROUP) else "address"
        reason = (
            f"{kind} {owner.removeprefix(_GROUP)} has {self._counts[owner]} {self._what} and asks for {number} more: "
            f"one {kind} has at most {share} of {self._bound()}"
        )
        if owner not in self._refused and self._counts[owner]:
            self._refused.add(owner)
            logger.warning("refused, and further ones without another line: %s", reason)
        return Refusal(code, reason)

    def __repr__(self) -> str:
        return f"Shares({self._what}: {len(self._counts)} owners, at most {self.share} each)"
