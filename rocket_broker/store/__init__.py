"""The storage engine, in Apache RocketMQ's file format: each broker can open a store of the other.

::

    <root>/commitlog/      every message, one after the other          commit_log
    <root>/consumequeue/   where the messages of each queue are        consume_queue, queue_table
    <root>/index/          which messages have a key                   index
    <root>/checkpoint      what is on the disk                         checkpoint
    <root>/abort           there while the store is open               recovery
    <root>/lock            locked while the store is open              files

Queues and index are derived from the log, which also records deletions of topics (`deletion`).

The broker uses `message_store`; imports point down from it: `recovery`, `flush`, `committing`, `retention` and
`reput`, which work on all files (`store_files`), then queues and index, then the log, `store_pool`,
`mapped_file`, `files`. `surveyor` and `repair` do the work of the command `streamkit store`.
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
