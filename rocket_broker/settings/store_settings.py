"""The settings of a store: names and defaults are those of Apache's ``MessageStoreConfig``."""

import enum
from pathlib import Path

import msgspec

from rocket_broker.settings.delay_levels import DelayLevels

__all__ = ["FlushDiskType", "StoreSettings"]

_APACHE_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


class FlushDiskType(enum.Enum):
    """The moment at which a sender gets its answer."""

    ASYNC_FLUSH = "as soon as the message is in the page cache"
    SYNC_FLUSH = "when the message is on the disk"


class StoreSettings(msgspec.Struct, frozen=True):
    """The settings of one store, with times in milliseconds and sizes in bytes.

    The other fields are described at their settings in `BrokerSettings`.

    Attributes:
        root: Directory of the store; created if it is missing.
        commit_log_dir: Directory of the commit log; ``commitlog`` under `root` if not set.
        flush_consume_queue_thorough_interval: Time after which all queues and indexes are flushed; recovery
            after a crash then begins where the log stood.
        flush_consume_queue_thorough_bytes: New bytes of the log after which all queues and indexes are flushed. Bounds
            the time of recovery; Apache has no such setting.
        max_unflushed_bytes: Maximum bytes of the log that are not on the disk. Messages beyond are refused, since
            the operating system would block the whole broker instead. Apache has no such setting.
        delay_levels: The delays of the levels, from which recovery computes delivery times.
        max_open_maps: Maximum number of files mapped at once; 0 for as many as the process may have.
        is_replica: Whether the store copies a master's log, and accepts no messages.
        delete_when: Hours of the day, local time, at which older files are deleted.
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
    delay_levels: DelayLevels = msgspec.field(default_factory=lambda: DelayLevels(_APACHE_DELAY_LEVELS))
    max_open_maps: int = 0
    is_replica: bool = False
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
        """Whether messages are collected in memory before they are written; never with SYNC_FLUSH, or by a slave."""
        return (
            self.transient_store_pool_enable
            and self.flush_disk_type is FlushDiskType.ASYNC_FLUSH
            and not self.is_replica
        )

    @property
    def commit_log_path(self) -> Path:
        """Directory of the commit log's files."""
        return self.commit_log_dir or self.root / "commitlog"

    @property
    def consume_queue_path(self) -> Path:
        """Directory of the consume queues: topic, then queue id, then files."""
        return self.root / "consumequeue"

    @property
    def index_path(self) -> Path:
        """Directory of the index files."""
        return self.root / "index"

    @property
    def checkpoint_path(self) -> Path:
        """File with the times up to which the store is flushed."""
        return self.root / "checkpoint"

    @property
    def abort_path(self) -> Path:
        """File that exists while the store is open."""
        return self.root / "abort"

    @property
    def lock_path(self) -> Path:
        """File whose lock keeps other brokers from opening the store."""
        return self.root / "lock"
