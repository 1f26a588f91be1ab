"""Replays of dead letters that run on their own, one for each group at a time, with an account of what was sent.

The account is the one of `streamkit dlq replay`: a replay that has failed or was cancelled goes on after what it names.
"""

import asyncio
import logging
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import quote

from rocket_admin.replay_account import ReplayAccount
from rocket_admin.replays import Replay, replay_dead_letters
from rocket_client import Admin, UnreadableBodyError

__all__ = ["JobState", "ReplayJob", "ReplayJobs"]

logger = logging.getLogger(__name__)

_MOST: Final = 200
"""Ended jobs that are kept, so that their results can be shown."""


class JobState(StrEnum):
    """The state of a replay job."""

    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(kw_only=True)
class ReplayJob:
    """A replay, and how far it is.

    Attributes:
        replay: What is sent, and where to.
        account: The file that names what was sent.
        before: The letters that the account has from earlier replays, which are not sent again.
        sent: The letters that this replay has sent.
        unreadable: The letters that were passed over, because their bodies are damaged or too large.
        state: The state of the job.
        error: Why it has failed; empty if it has not.
        begun_at: When it began.
        ended_at: When it ended; None as long as it runs.
    """

    replay: Replay
    account: Path
    before: int = 0
    sent: int = 0
    unreadable: int = 0
    state: JobState = JobState.RUNNING
    error: str = ""
    begun_at: datetime
    ended_at: datetime | None = None

    @property
    def is_running(self) -> bool:
        """Whether letters may still be sent."""
        return self.ended_at is None


class ReplayJobs:
    """The replays of a console."""

    def __init__(self, admin: Admin, directory: Path) -> None:
        """Make an empty list of replays.

        Args:
            admin: Asks the cluster.
            directory: Where the accounts are; it is made with the first one.
        """
        self._admin = admin
        self._directory = directory
        self._jobs: dict[str, ReplayJob] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def of(self, group: str) -> ReplayJob | None:
        """Return the last replay of a group since the console started; None if there was none."""
        return self._jobs.get(group)

    def account_of(self, group: str) -> Path:
        """Return the file of a group's account."""
        return self._directory / f"dead-letters-{quote(group, safe='%')}.jsonl"

    def is_running(self, group: str) -> bool:
        """Return whether a replay of the group runs."""
        return group in self._tasks

    async def start(self, replay: Replay, *, again: bool = False, patience: float) -> ReplayJob:
        """Start a replay, and wait a moment for its end.

        Args:
            replay: What to send, and where to.
            again: Whether to begin a new account, so that letters that were sent before are sent again. The account
                that there was is kept under another name.
            patience: The seconds to wait for the end.

        Raises:
            ValueError: A replay of the group is running, here or elsewhere with the same account.
            OSError: The account cannot be written.
        """
        group, begun_at = replay.group, datetime.now(UTC)
        if self.is_running(group):
            raise ValueError(f"a replay of group {group} is running: cancel it, or wait for its end")
        path = self.account_of(group)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if again and path.exists():
            path.rename(path.with_suffix(f".{begun_at:%Y%m%dT%H%M%S%f}.jsonl"))
        opened = ExitStack()
        account = opened.enter_context(ReplayAccount(path, group))
        job = ReplayJob(replay=replay, account=path, before=len(account), begun_at=begun_at)
        self._jobs.pop(group, None)
        self._jobs[group] = job
        self._forget()
        task = asyncio.create_task(self._run(job, account), name=f"replay of {group}")
        self._tasks[group] = task

        def end(_: asyncio.Task[None]) -> None:
            opened.close()
            del self._tasks[group]
            job.ended_at = datetime.now(UTC)

        task.add_done_callback(end)
        await asyncio.wait([task], timeout=patience)
        return job

    async def cancel(self, group: str) -> None:
        """Cancel the replay of a group, if one runs; the letter that is being sent may arrive all the same."""
        task = self._tasks.get(group)
        if task is not None:
            self._jobs[group].state = JobState.CANCELLED
            task.cancel()
            await asyncio.wait([task])

    async def stop(self) -> None:
        """Cancel all replays."""
        for group in list(self._tasks):
            await self.cancel(group)

    async def _run(self, job: ReplayJob, account: ReplayAccount) -> None:
        def pass_over(error: UnreadableBodyError) -> None:
            job.unreadable += 1

        try:
            letters = replay_dead_letters(self._admin, job.replay, account, skipped=pass_over)
            async with aclosing(letters):
                async for _ in letters:
                    job.sent += 1
            job.state = JobState.ENDED
        except Exception as error:  # of the cluster, or of the file of the account
            logger.warning("The replay of the dead letters of %s has failed: %s", job.replay.group, error)
            job.state, job.error = JobState.FAILED, str(error) or type(error).__name__

    def _forget(self) -> None:
        """Forget the oldest jobs that have ended."""
        for group in [group for group in self._jobs if group not in self._tasks][:-_MOST]:
            del self._jobs[group]
