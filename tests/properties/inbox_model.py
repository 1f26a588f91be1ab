"""A model of a store of marks: what each claim must return, whatever came before it.

The same state machine runs on every store. A run that commits has an effect: in the transaction of its claim if the
store has sessions, else in a list. At each step, the effects are those of the runs that have committed, each once.
"""

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from streamkit.patterns.inbox import Claim, Mark, MarkStore

KEYS: Final = st.lists(st.sampled_from(["", "a", "A", "a ", "ä", "x" * 300]), min_size=1, max_size=3, unique=True)
EXPIRY_MS: Final = 1000


@dataclass(eq=False)
class Run:
    """A run that has claimed marks."""

    claim: Claim
    began_ms: int


class InboxModel(RuleBasedStateMachine):
    """A store of marks, and what it should know.

    Attributes:
        locks_others: Whether marks that no run has may be busy while a run is open: SQLite has one writer, and MariaDB
            locks gaps between marks.
    """

    locks_others: ClassVar[bool] = False
    runs = Bundle("runs")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.threads = ThreadPoolExecutor(1)
        self.store = self.make_store()
        self.now_ms = 1_000_000
        self.open: set[Run] = set()
        self.done: dict[Mark, int] = {}
        self.wanted: Counter[str] = Counter()
        self.listed: Counter[str] = Counter()

    def make_store(self) -> MarkStore:
        """Return an empty store."""
        raise NotImplementedError

    async def add_effect(self, session: Any, key: str) -> None:
        """Add an effect to the transaction of a claim, if the store has sessions."""
        self.listed[key] += 1

    async def effects(self) -> Counter[str]:
        """Return how often each key has had its effect."""
        return self.listed

    def teardown(self) -> None:
        """End every run, and close what the machine has opened."""
        for run in list(self.open):
            self.runner.run(run.claim.abandon())
        self.close()
        self.runner.close()
        self.threads.shutdown()

    def close(self) -> None:
        """Close what `make_store` has opened."""

    @rule(target=runs, keys=KEYS)
    def begin(self, keys: list[str]) -> Run:
        """Claim marks: each is busy, done or claimed."""
        marks = [Mark("g/a", key) for key in keys]
        expired_ms = self.now_ms - EXPIRY_MS
        claim = self.runner.run(
            self.store.claim(marks, now_ms=self.now_ms, expired_ms=expired_ms, threads=lambda: self.threads)
        )
        run = Run(claim, self.now_ms)
        busy = {mark for other in self.open for mark in other.claim.claimed}
        done = {mark for mark in marks if self.done.get(mark, expired_ms - 1) >= expired_ms}
        if claim.claimed:
            self.open.add(run)
        assert claim.claimed.isdisjoint(claim.done | claim.busy)
        assert claim.done.isdisjoint(claim.busy)
        assert claim.claimed | claim.done | claim.busy == set(marks)
        if claim.busy:  # a store may answer for all marks that one of them is busy
            assert busy if self.locks_others else busy & set(marks)
            assert claim.claimed.isdisjoint(busy | done)
            assert claim.done <= done
        else:
            assert claim.done == done
            assert claim.claimed == set(marks) - done - busy
        return run

    @rule(run=consumes(runs), share=st.integers(0, 3))
    def commit(self, run: Run, share: int) -> None:
        """Commit some marks of a run, usually all of them."""
        if run not in self.open:
            return
        self.open.remove(run)
        marks = sorted(run.claim.claimed, key=lambda mark: mark.key)
        final = marks[:1] if share == 0 else marks

        async def commit() -> None:
            for mark in final:
                await self.add_effect(run.claim.session, mark.key)
            await run.claim.commit(final)

        self.runner.run(commit())
        for mark in final:
            self.done[mark] = run.began_ms
            self.wanted[mark.key] += 1

    @rule(run=consumes(runs))
    def fail(self, run: Run) -> None:
        """Abandon a run after its effect: neither effect nor mark stays."""
        if run not in self.open:
            return
        self.open.remove(run)

        async def fail() -> None:
            if run.claim.session is not None:
                for mark in run.claim.claimed:
                    await self.add_effect(run.claim.session, mark.key)
            await run.claim.abandon()

        self.runner.run(fail())

    @rule(milliseconds=st.sampled_from([1, EXPIRY_MS // 2, EXPIRY_MS + 1]))
    def let_time_pass(self, milliseconds: int) -> None:
        """Marks expire."""
        self.now_ms += milliseconds

    @rule(limit=st.integers(1, 2))
    def clean_up(self, limit: int) -> None:
        """Delete expired marks, and no others."""
        if self.locks_others and self.open:
            return
        expired_ms = self.now_ms - EXPIRY_MS
        deleted = self.runner.run(self.store.clean_up(expired_ms=expired_ms, limit=limit, threads=lambda: self.threads))
        expired = [mark for mark, made_ms in self.done.items() if made_ms < expired_ms]
        assert deleted <= min(limit, len(expired))

    @invariant()
    def each_effect_is_there_once(self) -> None:
        """For each run that has committed."""
        assert self.runner.run(self.effects()) == self.wanted
