"""The storage engine, in Apache RocketMQ's file format: either broker opens what the other wrote.

::

    <root>/commitlog/      every message, one after the other          commit_log
    <root>/consumequeue/   for each queue where its messages lie       consume_queue, queue_table
    <root>/index/          which messages have a key                   index
    <root>/checkpoint      what is on the disk                         checkpoint
    <root>/abort           there while the store is open               recovery
    <root>/lock            locked while the store is open              files

Queues and index are derived from the log, which also tells the topics that were deleted (`deletion`).

`message_store` is what the broker uses; imports point down from it: `recovery`, `flush`, `committing`, `retention` and
`derivation`, which work on all files (`store_files`), then queues and index, then the log, `store_pool`,
`mapped_file`, `files`. `surveyor` and `repair` are what the command `streamkit store` does.
"""

from rocket_broker.settings.store_settings import FlushDiskType, StoreSettings
from rocket_broker.store.errors import (
    FileSizeMismatch,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
)
from rocket_broker.store.message_store import MessageStore
from rocket_broker.store.messages import GetResult, GetStatus, PutResult, PutStatus, StoreMessage
from rocket_broker.store.recovery import RecoveryReport

__all__ = [
    "FileSizeMismatch",
    "FlushDiskType",
    "GetResult",
    "GetStatus",
    "MessageStore",
    "PutResult",
    "PutStatus",
    "RecoveryReport",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StoreMessage",
    "StoreSettings",
]
