"""The files of one store, as its parts share them."""

from dataclasses import dataclass
from typing import Self

from rocket_broker.settings.store_settings import StoreSettings
from rocket_broker.store.checkpoint import Checkpoint
from rocket_broker.store.commit_log import CommitLog
from rocket_broker.store.files import FileSystem
from rocket_broker.store.index import Index
from rocket_broker.store.mapped_file import OpenMaps
from rocket_broker.store.queue_table import QueueTable

__all__ = ["StoreFiles"]


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """What a store consists of. Recovery fills it, the flusher brings it to the disk, retention takes from it.

    Attributes:
        settings: What the store was told.
        file_system: Where the files are.
        log: The commit log.
        queues: The consume queues.
        index: The index.
        checkpoint: What is on the disk.
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
        """Close the files; what a reader still views stays readable."""
        self.maps.close_all()
        self.checkpoint.close()
