"""Quotas: the share of a limited table that one client address or one group may fill.

An owner is an address that clients connect from, or a group::

    table (at most 262,144 locks)     owner                   quota
    ├── lock of queue 0               address 203.0.113.7     65,536
    │                                 group billing           65,536
    └── lock of queue 1               group orders            65,536

An entry counts for each of its owners until it is removed. Clients at the broker's own address have no owner
(`Connection.counted_as`): they run beside the broker, and may use the whole table. Entries that were loaded from the
disk have no owners, since their creators are unknown. The table itself checks its bound.
"""

import logging
from collections import Counter
from collections.abc import Callable

from rocket_broker.limits.refusal import Refusal
from rocket_remoting.wire.codes import ResponseCode

__all__ = ["PARTS", "OwnerQuota", "owner_group"]

logger = logging.getLogger(__name__)

PARTS = 4
"""One owner has at most the bound divided by this, a quarter. Of 50,000 topics that is 12,500, more than the
applications of known clusters have, and it takes four malicious addresses to leave nothing to the others."""

_GROUP = "group "


def owner_group(group: str) -> str:
    """Return the owner that stands for a consumer or producer group; its space keeps it apart from addresses."""
    return _GROUP + group


class OwnerQuota:
    """Counts the entries of one table by their owners.

    An owner is an address as in `Connection.counted_as`, or an `owner_group`. Entries of an empty owner are not
    counted.

    Args:
        what: Name of the entries for remarks, such as "topics of this broker".
        bound: Returns the maximum number of entries, or bytes, of the whole table.
        mend: What makes room for further entries, for remarks.
    """

    def __init__(self, what: str, bound: Callable[[], int], mend: str = "") -> None:
        self._what = what
        self._bound = bound
        self._mend = mend
        self._counts: Counter[str] = Counter()
        self._refused: set[str] = set()

    @property
    def quota(self) -> int:
        """Maximum number of entries, or bytes, of one owner."""
        return max(1, self._bound() // PARTS)

    def check(self, number: int, *owners: str, code: ResponseCode = ResponseCode.SYSTEM_ERROR) -> None:
        """Check that each of the owners may have this number of entries more.

        Args:
            number: Number of further entries, or bytes.
            owners: The owners.
            code: The response code of the refusal.

        Raises:
            Refusal: An owner would exceed its quota. Only an owner's first refusal is logged, until the owner has had
                no entries again.
        """
        quota = self.quota
        for owner in owners:
            if owner and self._counts[owner] + number > quota:
                raise self._refusal(owner, number, quota, code)

    @property
    def full(self) -> list[str]:
        """The owners that were refused and may still have no entries more, sorted."""
        return sorted(owner for owner in self._refused if self._counts[owner] >= self.quota)

    def remaining(self, owner: str) -> int:
        """Return how many more entries, or bytes, the owner may have."""
        return max(0, self.quota - self._counts[owner]) if owner else self._bound()

    def count(self, number: int, *owners: str) -> None:
        """Add a number of entries, or bytes, to each owner's; a negative number subtracts."""
        counts = self._counts
        for owner in owners:
            if owner:
                left = counts[owner] + number
                if left > 0:
                    counts[owner] = left
                else:
                    counts.pop(owner, None)
                    self._refused.discard(owner)

    def _refusal(self, owner: str, number: int, quota: int, code: ResponseCode) -> Refusal:
        kind = "group" if owner.startswith(_GROUP) else "address"
        reason = (
            f"{kind} {owner.removeprefix(_GROUP)} has {self._counts[owner]} {self._what} and asks for {number} more: "
            f"one {kind} may have {quota} of {self._bound()}"
        )
        if self._mend:
            reason += f": {self._mend}"
        if owner not in self._refused and self._counts[owner]:
            self._refused.add(owner)
            logger.warning("refused (further refusals of this owner are not logged): %s", reason)
        return Refusal(code, reason)

    def __repr__(self) -> str:
        return f"OwnerQuota({self._what}: {len(self._counts)} owners, quota {self.quota} each)"
