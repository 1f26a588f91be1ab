"""Which messages are still in memory, by RocketMQ's rule of thumb.

What lies further behind the end of the commit log than a share of the machine's memory
(``accessMessageInMemoryMaxRatio``, 40 percent) counts as being on the disk only.
"""

import os
from functools import cache

from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.store.message_store import MessageStore

__all__ = ["is_far_behind"]


def is_far_behind(store: MessageStore, settings: BrokerSettings, commit_log_offset: int) -> bool:
    """Whether the message at this offset of the commit log counts as being on the disk only."""
    share = settings.access_message_in_memory_max_ratio / 100
    return store.max_commit_log_offset - commit_log_offset > _physical_memory() * share


@cache
def _physical_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
