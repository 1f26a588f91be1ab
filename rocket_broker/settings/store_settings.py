"""What a store is told: names and defaults are those of Apache's ``MessageStoreConfig``."""

import enum
from dataclasses import dataclass, field
from pathlib import Path

from rocket_broker.settings.delay_levels import DelayLevels

__all__ = ["FlushDiskType", "StoreSettings"]

_APACHE_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


class FlushDiskType(enum.Enum):
    """When a sender gets its answer."""

    ASYNC_FLUSH = "as soon as the message is in the page cache"
    SYNC_FLUSH = "when the message is on the disk"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The settings of one store. Times are milliseconds, sizes bytes.

    Attributes:
        root: Directory of the store; made if it is missing.
        commit_log_dir: Directory of the commit log; ``commitlog`` under `root` if not set.
        mapped_file_size_commit_log: Size of a commit log file.
        mapped_file_size_consume_queue: Size of a consume queue file, a multiple of an entry's 20 bytes.
        flush_disk_type: When a sender gets its answer.
        flush_interval_commit_log: Time between looks whether the commit log is worth a flush.
        flush_commit_log_least_pages: So many new pages of 4 KiB make it worth it.
        flush_commit_log_thorough_interval: After this time a single new byte does.
        transient_store_pool_enable: Let messages wait in memory until they are committed to the log's files. Who
            kills the broker loses what was not: use with ASYNC_FLUSH only, as Apache's brokers do.
        transient_store_pool_size: Most files of the log that may wait in memory at once.
        fast_fail_if_no_buffer_in_store_pool: Refuse messages when that many wait; else a file is written at once.
        commit_interval_commit_log: Time between looks whether there is enough to commit.
        commit_commit_log_least_pages: So many new pages of 4 KiB make it enough.
        commit_commit_log_thorough_interval: After this time a single new byte does.
        flush_interval_consume_queue: As above, for the consume queues.
        flush_consume_queue_least_pages: As above, for one consume queue.
        flush_consume_queue_thorough_interval: After this time all queues and indexes are flushed; recovery
            after a crash then begins where the log stood.
        flush_consume_queue_thorough_bytes: So many new bytes in the log have the same effect. Bounds the
            time that recovery takes; Apache has no such setting.
        sync_flush_timeout: How long a sender waits for the disk before FLUSH_DISK_TIMEOUT.
        max_unflushed_bytes: So far the log may be ahead of the disk. Messages beyond are refused: the operating
            system would hold up the whole broker instead. Apache has no such setting.
        max_message_size: Largest body.
        message_index_enable: Build the index that queries by key use.
        max_hash_slot_num: Slots of an index file.
        max_index_num: Entries of an index file, one for each key of each message.
        max_msgs_num_batch: Most messages a query answers with.
        check_crc_on_recover: Check the bodies of the messages that recovery reads.
        delay_levels: How long each delay level waits: recovery computes delivery times anew.
        max_open_maps: Most files mapped at once; 0: as many as the process may have.
        file_reserved_time: So long a file of the commit log is kept after it was last written.
        delete_when: Hours of the day, local time, at which older files are deleted.
        clean_resource_interval: Time between looks at age and disk.
        delete_file_batch_max: Most files of the commit log deleted in one go.
        delete_commit_log_files_interval: Time between two of them.
        disk_max_used_space_ratio: Percent of the disk used from which older files are deleted at any hour.
        disk_space_clean_forcibly_ratio: Percent from which the oldest files are deleted, whatever their age.
        clean_file_forcibly_enable: Whether they are.
        disk_space_warning_level_ratio: Percent from which messages are refused.
    """

    root: Path
    commit_log_dir: Path | None = None
    mapped_file_size_commit_log: int = 1024**3
    mapped_file_size_consume_queue: int = 300_000 * 20
    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    flush_interval_commit_log: int = 500
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval: int = 10_000
    transient_store_pool_enable: bool = False
    transient_store_pool_size: int = 5
    fast_fail_if_no_buffer_in_store_pool: bool = False
    commit_interval_commit_log: int = 200
    commit_commit_log_least_pages: int = 4
    commit_commit_log_thorough_interval: int = 200
    flush_interval_consume_queue: int = 1_000
    flush_consume_queue_least_pages: int = 2
    flush_consume_queue_thorough_interval: int = 60_000
    flush_consume_queue_thorough_bytes: int = 32 * 1024**2
    sync_flush_timeout: int = 5_000
    max_unflushed_bytes: int = 1024**3
    max_message_size: int = 4 * 1024**2
    message_index_enable: bool = True
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    max_msgs_num_batch: int = 64
    check_crc_on_recover: bool = True
    delay_levels: DelayLevels = field(default_factory=lambda: DelayLevels(_APACHE_DELAY_LEVELS))
    max_open_maps: int = 0
    file_reserved_time: int = 72 * 3_600_000
    delete_when: frozenset[int] = frozenset({4})
    clean_resource_interval: int = 10_000
    delete_file_batch_max: int = 10
    delete_commit_log_files_interval: int = 100
    disk_max_used_space_ratio: int = 75
    disk_space_clean_forcibly_ratio: int = 85
    clean_file_forcibly_enable: bool = True
    disk_space_warning_level_ratio: int = 90

    @property
    def uses_store_pool(self) -> bool:
        """Whether messages wait in memory: never when their senders wait for the disk."""
        return self.transient_store_pool_enable and self.flush_disk_type is FlushDiskType.ASYNC_FLUSH

    @property
    def commit_log_path(self) -> Path:
        """Where the commit log's files are."""
        return self.commit_log_dir or self.root / "commitlog"

    @property
    def consume_queue_path(self) -> Path:
        """Where the consume queues' directories are: topic, then queue id, then files."""
        return self.root / "consumequeue"

    @property
    def index_path(self) -> Path:
        """Where the index files are."""
        return self.root / "index"

    @property
    def checkpoint_path(self) -> Path:
        """The file that says what has been flushed."""
        return self.root / "checkpoint"

    @property
    def abort_path(self) -> Path:
        """The file that is there while the store is open."""
        return self.root / "abort"

    @property
    def lock_path(self) -> Path:
        """The file whose lock keeps a second broker out."""
        return self.root / "lock"
