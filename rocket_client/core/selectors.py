"""Selectors, by which an application chooses the queues of messages, for instance to keep related messages in order.

A selector gets the topic's writable queues, the message and the argument of `send`. To keep order it must depend on
nothing else: the same argument must give the same queue as long as the topic has the same queues.
"""

import random
from collections.abc import Callable, Sequence

from rocket_remoting.wire.java_hash import java_hash
from rocket_remoting.wire.message import Message, MessageQueue

MessageQueueSelector = Callable[[Sequence[MessageQueue], Message, object], MessageQueue]


def select_by_hash(queues: Sequence[MessageQueue], message: Message, argument: object) -> MessageQueue:
    """Return the queue that Java's ``SelectMessageQueueByHash`` chooses for an equal argument: |hashCode| mod size.

    Raises:
        TypeError: The argument is not a str, bool or int.
    """
    return queues[abs(java_hash_code(argument)) % len(queues)]


def select_by_random(queues: Sequence[MessageQueue], message: Message, argument: object) -> MessageQueue:
    """Return a random queue."""
    return random.choice(queues)


def java_hash_code(value: object) -> int:
    """Return Java's ``hashCode`` of an equal String, Boolean, Integer or, beyond 32 bits, Long.

    Raises:
        TypeError: The value is not a str, bool or int; other hash codes differ between processes.
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
    raise TypeError(f"{type(value).__name__} has no hash code that is the same in all processes; use a str or an int")
