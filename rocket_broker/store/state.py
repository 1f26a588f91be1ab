"""Where the files of the store end, and how much space they have.

`MappedFile`, `CommitLog`, `ConsumeQueue` and `IndexFile` are derived from these classes, which have their numbers.
Where the native core is installed, the classes are the core's: it reads the numbers, and raises them when it has stored
messages. Without it they only have the same attributes.
"""

from typing import TYPE_CHECKING

from rocket_remoting.native import has_native_core

__all__ = ["FileState", "IndexState", "LogState", "QueueState"]

if TYPE_CHECKING or has_native_core():
    from rocket_native import FileState, IndexState, LogState, QueueState
else:

    class FileState:
        __slots__ = ("allocated", "base", "size", "used", "view")

    class LogState:
        __slots__ = ("committed", "end", "last_record", "last_timestamp", "tail")

    class QueueState:
        __slots__ = ("max_offset", "max_physical", "tail")

    class IndexState:
        __slots__ = (
            "begin_offset", "begin_timestamp", "chunk_bits", "chunks_allocated", "count", "end_offset", "end_timestamp",
            "file", "slots", "slots_used",
        )  # fmt: skip
