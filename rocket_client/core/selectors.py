"""Which queue a message goes to, chosen by the application: the way to keep messages in order.

A selector gets the topic's writable queues, the message and the argument given to `send`. It must depend
on nothing else: the same argument has to give the same queue as long as the topic has the same queues.
"""

import random
from collections.abc import Callable, Sequence

from rocket_remoting.wire.java_hash import java_hash
from rocket_remoting.wire.message import Message, MessageQueue

MessageQueueSelector = Callable[[Sequence[MessageQueue], Message, object], MessageQueue]


def select_by_hash(queues: Sequence[MessageQueue], message: Message, argument: object) -> MessageQueue:
    """The queue that Java's ``SelectMessageQueueByHash`` takes for an equal argument: |hashCode| mod size."""
    return queues[abs(java_hash_code(argument)) % len(queues)]


def select_by_random(queues: Sequence[MessageQueue], message: Message, argument: object) -> MessageQueue:
    """Any queue."""
    return random.choice(queues)


def java_hash_code(value: object) -> int:
    """What Java's ``hashCode`` gives for an equal String, Boolean, Integer or, beyond 32 bits, Long.

    Raises:
        TypeError: Another type, which has no hash code that processes share.
    """
    if isinstance(value, str):
        return java_hash(value)
    if isinstance(value, bool):
        return 1231 if value else 1237
    if isinstance(value, int):
        if -(1 << 31) <= value < 1 << 31:
            return value
        folded = (value ^ (value >> 32)) & 0xFFFFFFFF
        return folded - (1 << 32) if folded >> 31 else folded
    raise TypeError(f"no hash code that all processes share for {type(value).__name__}; give a str or an int")
