"""The errors of a store.

::

    StoreError
    ├── StoreLocked        another process, or another store of this one, has the directory open: path
    ├── StoreCorrupt       a file holds what no version of the broker writes: file, offset, problem
    ├── FileSizeMismatch   a file has another size than the settings say: file, size, expected, setting
    ├── StoreFull          the disk has no room for what must be written: path
    ├── LogMismatch        what a master sent is not a continuation of this log: offset, problem
    └── StoreClosed        the store is not loaded, or no longer

A message that cannot be stored is a `PutStatus`, not an exception: the sender receives it, and the broker continues.
"""

# ruff: noqa: N818 - a name that says what is wrong needs no suffix

from pathlib import Path

__all__ = [
    "FileSizeMismatch",
    "LogMismatch",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreLocked",
]


class StoreError(Exception):
    """The base of the store's errors."""


class StoreLocked(StoreError):
    """Another process, or another store of this process, has the store open.

    Attributes:
        path: The locked file or directory.
    """

    def __init__(self, path: Path, setting: str = "storePathRootDir or --store") -> None:
        super().__init__(
            f"{path} is locked: another broker has this store open. "
            f"Stop it, or give this one a directory of its own ({setting})"
        )
        self.path = path


class StoreCorrupt(StoreError):
    """A file is damaged in a way that cannot be repaired by cutting off its end.

    Attributes:
        file: The file.
        offset: The offset of the damage in the file.
        problem: What is there, and what was expected.
    """

    def __init__(self, file: Path, offset: int, problem: str) -> None:
        super().__init__(f"{file} at {offset}: {problem}")
        self.file = file
        self.offset = offset
        self.problem = problem


class FileSizeMismatch(StoreError):
    """A file of the store has another size than the settings give it.

    Attributes:
        file: The file.
        size: Its size.
        expected: The size in the settings.
        setting: The setting's name in ``broker.conf``.
    """

    def __init__(self, file: Path, size: int, expected: int, setting: str) -> None:
        right = f"set {setting}={size}" if setting.isidentifier() else f"set {setting} as they were"
        super().__init__(
            f"{file} has {size} bytes, {setting} says {expected}: {right} if it was made so; "
            "if it was cut short, repair it with: streamkit store repair"
        )
        self.file = file
        self.size = size
        self.expected = expected
        self.setting = setting


class StoreFull(StoreError):
    """The disk is full.

    Attributes:
        path: The file that could not grow.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(f"no space left on the disk for {path}")
        self.path = path


class LogMismatch(StoreError):
    """What a master sent does not continue the log of this slave.

    Attributes:
        offset: The offset in the log.
        problem: What was expected there, and what came.
    """

    def __init__(self, offset: int, problem: str) -> None:
        super().__init__(f"the master's log does not continue this log at {offset}: {problem}")
        self.offset = offset
        self.problem = problem


class StoreClosed(StoreError):
    """The store is not loaded yet, or was stopped."""

    def __init__(self, root: Path) -> None:
        super().__init__(f"the store in {root} is not open")
        self.root = root
