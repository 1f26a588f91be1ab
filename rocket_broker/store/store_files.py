"""The files of one store, which its parts share."""

from typing import Self

import msgspec

from rocket_broker.settings.store_settings import StoreSettings
from rocket_broker.store.checkpoint import Checkpoint
from rocket_broker.store.commit_log import CommitLog
from rocket_broker.store.files import FileSystem
from rocket_broker.store.index import Index
from rocket_broker.store.mapped_file import OpenMaps
from rocket_broker.store.queue_table import QueueTable

__all__ = ["StoreFiles"]


class StoreFiles(msgspec.Struct, frozen=True):
    """The files of a store. Recovery opens them, the flusher syncs them, retention deletes from them.

    Attributes:
        settings: The settings.
        file_system: The file system.
        log: The commit log.
        queues: The consume queues.
        index: The index.
        checkpoint: The checkpoint.
        maps: The files of log, queues and index that are mapped now.
    """

    settings: StoreSettings
    file_system: FileSystem
    log: CommitLog
    queues: QueueTable
    index: Index
    checkpoint: Checkpoint
    maps: OpenMaps

    @classmethod
    def of(cls, settings: StoreSettings, file_system: FileSystem) -> Self:
        """Return the files of a store that has not been opened yet."""
        maps = OpenMaps(file_system, settings.max_open_maps)
        return cls(
            settings,
            file_system,
            CommitLog(settings, maps),
            QueueTable(settings, maps),
            Index(settings, maps),
            Checkpoint(settings, file_system),
            maps,
        )

    def close(self) -> None:
        """Close the files; views of readers stay readable."""
        self.maps.close_all()
        self.checkpoint.close()
