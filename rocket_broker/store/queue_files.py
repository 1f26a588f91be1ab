"""Read the consume queues of a store that no broker has open, directly from their files."""

from collections.abc import Iterator
from pathlib import Path

from rocket_broker.store.consume_queue import ENTRY, ENTRY_SIZE
from rocket_broker.store.files import OsFileSystem
from rocket_broker.store.layout import map_file, numbered
from rocket_broker.store.mapped_file import MappedFile, OpenMaps

__all__ = ["QueueFiles"]


class QueueFiles:
    """The files of all consume queues. A file that was cut short is read up to its end.

    Args:
        root: The directory of the queues.
        file_size: Size that a file should have, in bytes.
    """

    def __init__(self, root: Path, file_size: int) -> None:
        self._root = root
        self._file_size = file_size
        self._maps = OpenMaps(_ReadOnlyFileSystem())
        self._files: dict[tuple[str, int, int], MappedFile | None] = {}

    def names(self) -> list[tuple[str, int]]:
        """Return topic and queue id of each queue that has a directory."""
        return sorted((path.parent.name, int(path.name)) for path in self._root.glob("*/*") if path.name.isdecimal())

    def entry(self, topic: str, queue_id: int, number: int) -> tuple[int, int, int] | None:
        """Return the entry of a number: offset in the log, size, tags code; None if there is none."""
        if not self._file_size:
            return None
        position = number * ENTRY_SIZE
        base = position - position % self._file_size
        file = self._file(topic, queue_id, base)
        if file is None or position - base + ENTRY_SIZE > file.size:
            return None
        entry: tuple[int, int, int] = ENTRY.unpack_from(file.view or file.open(), position - base)
        return entry if entry[1] else None

    def entries(self, topic: str, queue_id: int) -> Iterator[tuple[int, int, int]]:
        """Yield number, offset in the log and size of each entry of a queue."""
        for path in numbered(self._root / topic / str(queue_id)):
            file = self._file(topic, queue_id, int(path.name))
            if file is not None:
                data = file.data()
                whole = data[: len(data) - len(data) % ENTRY_SIZE]
                for number, (offset, size, _) in enumerate(ENTRY.iter_unpack(whole), file.base // ENTRY_SIZE):
                    if size:
                        yield number, offset, size

    def _file(self, topic: str, queue_id: int, base: int) -> MappedFile | None:
        key = topic, queue_id, base
        if key not in self._files:
            path = self._root / topic / str(queue_id) / f"{base:020d}"
            size = path.stat().st_size if path.is_file() else 0
            self._files[key] = MappedFile(path, base, size, self._maps) if size else None
        file = self._files[key]
        if file is not None:
            file.used = True
        return file


class _ReadOnlyFileSystem(OsFileSystem):
    def map(self, path: Path, ordered_to: int = 0) -> memoryview:
        return map_file(path)
