"""Where the files of the store end, and how much space they have.

`MappedFile`, `CommitLog`, `ConsumeQueue` and `IndexFile` inherit their offsets and sizes from these classes. With the
native core the classes are the core's, which reads and updates the numbers itself. Without it they are plain
attributes.
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
