"""The account of a replay: a file that names each dead letter that was sent, so that a killed replay goes on after it.

::

    {"account": "dead letters", "group": "kitchen", "begun_at": "2026-11-26T03:00:00Z"}
    {"letter": "7F000001…", "queue": "broker-a:0", "offset": 7, "topic": "orders", "message_id": "7F00…", …}

A line is written after the broker has stored the message, and before the next one is sent. So a replay that is killed
has sent at most one message that its account does not name. A line that a kill has cut short is removed when the file
is opened.
"""

import fcntl
import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

__all__ = ["AccountError", "ReplayAccount"]

_KIND: Final = "dead letters"


class AccountError(ValueError):
    """The file is not an account of this group's replays, or another replay uses it.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path


class ReplayAccount:
    """The account of the replays of one group's dead letters; a context manager, which opens and closes the file.

    Args:
        path: The file; it is made if it does not exist.
        group: The group.
    """

    def __init__(self, path: Path, group: str) -> None:
        self.path = path
        self.group = group
        self._sent: set[str] = set()

    def __enter__(self) -> Self:
        """Open the file and read what was sent before.

        Raises:
            AccountError: It is another file, or another replay uses it.
            OSError: The file system refuses.
        """
        self._file = self.path.open("a+b")
        try:
            self._lock()
            self._load()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._file.tell():  # nothing was sent: leave no empty file behind
            self.path.unlink(missing_ok=True)
        self._file.close()

    def __contains__(self, letter: str) -> bool:
        """Return whether the letter with this offset message id was sent."""
        return letter in self._sent

    def __len__(self) -> int:
        """Return how many letters were sent."""
        return len(self._sent)

    def begin(self, time: str) -> None:
        """Write the first line of a new account; do nothing if the account has one."""
        if not self._file.tell():
            self._write({"account": _KIND, "group": self.group, "begun_at": time})

    def add(self, letter: str, facts: Mapping[str, object]) -> None:
        """Write that a letter was sent.

        Args:
            letter: The letter's offset message id.
            facts: What else the line says.
        """
        self._write({"letter": letter, **facts})
        self._sent.add(letter)

    def _write(self, line: Mapping[str, object]) -> None:
        self._file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        self._file.flush()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AccountError(self.path, "another replay is using this account; wait for its end") from None

    def _load(self) -> None:
        self._file.seek(0)
        data = self._file.read()
        whole = data.rfind(b"\n") + 1
        for number, line in enumerate(data[:whole].splitlines(), start=1):
            entry = self._entry(number, line)
            if number == 1:
                self._check_heading(entry)
            else:
                self._sent.add(str(entry.get("letter")))
        if not whole and data:
            raise AccountError(self.path, "it is not an account of a replay, and so is not written to")
        self._file.truncate(whole)
        self._file.seek(whole)

    def _entry(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict):
            raise AccountError(self.path, f"line {number} is not one of a replay's account")
        return entry

    def _check_heading(self, entry: Mapping[str, object]) -> None:
        if entry.get("account") != _KIND:
            raise AccountError(self.path, "it is not an account of a replay, and so is not written to")
        if entry.get("group") != self.group:
            raise AccountError(self.path, f"it is the account of group {entry.get('group')!r}, not {self.group!r}")

    def __repr__(self) -> str:
        return f"<ReplayAccount {self.path} of {self.group!r}, {len(self._sent)} sent>"
