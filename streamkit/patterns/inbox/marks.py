"""Marks of handled messages, and the stores that keep them.

A run of a listener claims the mark of its message, and commits or abandons the claim::

                     claim                    commit
    no mark ──────────────────▶ claimed ───────────────▶ done, until the mark expires
       ▲                           │ abandon, or the process ends
       └───────────────────────────┘

Of several claims of one mark at a time, one gets the mark. To the others the mark is busy, and they may ask again. This
module does no I/O.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from hashlib import sha256
from typing import ClassVar, Final

__all__ = ["INBOX_TABLE", "SHOWN", "Claim", "Mark", "MarkStore", "lock_number"]

INBOX_TABLE: Final = "streamkit_inbox"
"""The name of the table of marks, if no other one is given."""
SHOWN: Final = 200
"""How many characters of scope and key the table shows."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of one message for one listener.

    Attributes:
        scope: The listener: the names of its group and its binding.
        key: The message's key.
    """

    scope: str
    key: str

    @property
    def digest(self) -> str:
        """The mark in 64 hexadecimal digits, for stores that limit lengths or compare text by a collation."""
        return sha256(f"{self.scope}\0{self.key}".encode(errors="surrogatepass")).hexdigest()


def lock_number(digest: str) -> int:
    """Return the number of PostgreSQL's advisory lock for the mark with a digest."""
    return int.from_bytes(bytes.fromhex(digest[:16]), signed=True)


class Claim(ABC):
    """The claim of a run. It ends with one call of `commit` or `abandon`.

    Attributes:
        claimed: The marks that the run has got.
        done: The marks of messages that were handled before.
        busy: The marks that other runs have claimed at this moment.
        session: The session of the database transaction that commits the marks, or None if the store has none.
        executor: Runs calls on the thread that has the transaction, where the listener must run; None if the listener
            may run on any thread.
    """

    def __init__(
        self,
        claimed: Collection[Mark],
        done: Collection[Mark],
        busy: Collection[Mark],
        session: object = None,
        executor: Executor | None = None,
    ) -> None:
        self.claimed = frozenset(claimed)
        self.done = frozenset(done)
        self.busy = frozenset(busy)
        self.session = session
        self.executor = executor

    @abstractmethod
    async def commit(self, done: Collection[Mark]) -> None:
        """Make the claimed marks that are in ``done`` final, and drop the others."""

    @abstractmethod
    async def abandon(self) -> None:
        """Drop the claimed marks. Errors of the store are logged: a mark that is not committed has no effect."""


class MarkStore(ABC):
    """Keeps marks.

    Attributes:
        has_sessions: Whether a run may work in the transaction that commits its marks.
        is_async: Whether the sessions of these transactions are for coroutines.
        has_threads: Whether each transaction belongs to a thread, so that the listeners must be `def`.
    """

    has_sessions: ClassVar[bool] = False
    has_threads: ClassVar[bool] = False
    is_async: bool = True

    @abstractmethod
    async def claim(
        self, marks: Sequence[Mark], *, now_ms: int, expired_ms: int, threads: Callable[[], Executor]
    ) -> Claim:
        """Claim marks, without waiting for other runs.

        Args:
            marks: The marks, each once.
            now_ms: The time, in milliseconds since 1970.
            expired_ms: Marks made before this time do not count any more.
            threads: Returns the threads for calls that block.
        """

    async def clean_up(self, *, expired_ms: int, limit: int, threads: Callable[[], Executor]) -> int:
        """Delete up to ``limit`` marks made before ``expired_ms``; return their number."""
        return 0
