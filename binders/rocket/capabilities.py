"""The capabilities of the binder: those of every RocketMQ, and those that some brokers have."""

from typing import Final

from streamkit.binder.capabilities import Capability

CAPABILITIES: Final = frozenset(
    {
        Capability.ORDER,
        Capability.DELAY_LEVEL,
        Capability.TRANSACTION,
        Capability.TAG,
        Capability.DEAD_LETTER,
        Capability.BROADCAST,
        Capability.PAUSE,
        Capability.PARTITION,
        Capability.BATCH,
        Capability.POLLED,
        Capability.REDELIVERY,
        Capability.DURABLE_GROUP,
    }
)

POSSIBLE_CAPABILITIES: Final = CAPABILITIES | {Capability.SQL, Capability.DELAY_ANY}
