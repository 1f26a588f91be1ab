"""RocketMQ's rule for which messages are still in memory.

A message counts as on the disk only if it lies further behind the commit log's end than a share of the machine's
memory (``accessMessageInMemoryMaxRatio``, 40 percent).
"""

import os
from functools import cache

from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.store.message_store import MessageStore

__all__ = ["is_far_behind"]


def is_far_behind(store: MessageStore, settings: BrokerSettings, commit_log_offset: int) -> bool:
    """Return whether the message at this commit log offset counts as on the disk only."""
    share = settings.access_message_in_memory_max_ratio / 100
    return store.max_commit_log_offset - commit_log_offset > _physical_memory() * share


@cache
def _physical_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
