"""Claim marks in a database by INSERT, and try again if other transactions interfered.

::

    INSERT all wanted marks
        inserted: claimed
        otherwise: ROLLBACK, SELECT the marks that exist and DELETE those that have expired
            some existed: INSERT the marks that are not done
            none existed: another run is about to insert them, so they are busy
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from streamkit.patterns.inbox.marks import Mark
from streamkit.patterns.inbox.refusals import interfered, is_locked

__all__ = ["WITHOUT_WAITING", "Claimed", "claim_in_rounds", "claimed_or_abandoned"]

E = TypeVar("E", bound=Exception)

_ROUNDS: Final = 10
"""Maximum number of attempts; after them the marks count as busy."""
WITHOUT_WAITING: Final = "SET STATEMENT innodb_lock_wait_timeout=0 FOR "
"""The option with which a statement on MariaDB fails instead of waiting for a lock."""


class Claimed(NamedTuple):
    """The result of claiming the marks that a run wanted.

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
    """Claim marks; roll back unless at least one was claimed.

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
