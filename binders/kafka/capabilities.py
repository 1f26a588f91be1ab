"""The capabilities of the binder, which are the same with all brokers."""

from typing import Final

from streamkit.binder.capabilities import Capability

CAPABILITIES: Final = frozenset(
    {
        Capability.ORDER,
        Capability.DEAD_LETTER,
        Capability.BROADCAST,
        Capability.PAUSE,
        Capability.PARTITION,
        Capability.REDELIVERY,
        Capability.BATCH,
        Capability.POLLED,
        Capability.PATTERN,
        Capability.DURABLE_GROUP,
    }
)
