"""How marks are claimed in a database: by INSERTs, again when transactions of other runs have interfered.

::

    INSERT all marks that are wanted      a mark is there, or another run is about to insert it
        inserted: claimed                     ROLLBACK; SELECT those that are there
                                              some are done, or have expired and are deleted: INSERT the rest
                                              none: the marks are busy
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from streamkit.patterns.inbox.marks import Mark
from streamkit.patterns.inbox.refusals import interfered, is_locked

__all__ = ["WITHOUT_WAITING", "Claimed", "claim_in_rounds", "claimed_or_abandoned"]

E = TypeVar("E", bound=Exception)

_ROUNDS: Final = 10
"""How often a claim is made when transactions of other runs have interfered; then its marks are busy."""
WITHOUT_WAITING: Final = "SET STATEMENT innodb_lock_wait_timeout=0 FOR "
"""What makes a statement fail on MariaDB where it would wait for a lock."""


class Claimed(NamedTuple):
    """What has become of the marks that a run wanted.

    Attributes:
        claimed: The marks that are inserted, in a transaction that is open.
        done: The marks that were done before.
        busy: The marks that another run has claimed.
    """

    claimed: Collection[Mark]
    done: Collection[Mark]
    busy: Collection[Mark]


async def claimed_or_abandoned(
    marks: Sequence[Mark],
    claim: Callable[[dict[str, Mark]], Awaitable[Collection[Mark] | None]],
    abandon: Callable[[], Awaitable[None]],
) -> Claimed:
    """Claim marks; the transaction stays open only if marks are claimed.

    Args:
        marks: The marks.
        claim: Claims the marks by their digests, as `claim_in_rounds` does.
        abandon: Rolls the transaction back.
    """
    # In one order for all runs: two batches with the same marks do not wait for each other.
    wanted = {mark.digest: mark for mark in sorted(marks, key=lambda mark: mark.digest)}
    try:
        done = await claim(wanted)
    except BaseException:
        await abandon()
        raise
    claimed = [] if done is None else [mark for mark in wanted.values() if mark not in done]
    if not claimed:
        await abandon()
    return Claimed(claimed, done or (), marks if done is None else ())


def claim_in_rounds(
    wanted: dict[str, Mark],
    *,
    insert: Callable[[dict[str, Mark]], bool],
    known: Callable[[Iterable[str]], tuple[set[str], set[str]]],
    roll_back: Callable[[], object],
    errors: type[E],
    reason: Callable[[E], BaseException | None],
) -> Collection[Mark] | None:
    """Insert marks in a transaction that stays open.

    Args:
        wanted: The marks by their digests.
        insert: Inserts marks; returns False if one is there, or another run is about to insert it.
        known: Returns the marks that are there, and those that were, but had expired and are deleted now.
        roll_back: Ends the transaction.
        errors: The errors of the database.
        reason: Returns the driver's error of one of them.

    Returns:
        The marks that were done before and are not inserted; None if the marks are busy.
    """
    done: set[str] = set()
    for _ in range(_ROUNDS):
        rest = {digest: mark for digest, mark in wanted.items() if digest not in done}
        try:
            if not rest or insert(rest):
                return [wanted[digest] for digest in done]
            roll_back()
            there, expired = known(rest)
            if not there and not expired:
                return None
            done |= there
        except errors as error:
            roll_back()
            if is_locked(reason(error)):
                return None
            if not interfered(reason(error)):
                raise
    return None
