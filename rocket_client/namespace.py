"""Namespaces, by which tenants of one cluster use the same names for their own topics and groups.

::

    name in the application       name in brokers
    orders                        ns%orders
    %RETRY%kitchen                %RETRY%ns%kitchen     the prefix of a group's topic stays in front
    %DLQ%kitchen                  %DLQ%ns%kitchen
    TBW102, CID_RMQ_SYS_…         the same: all namespaces share the brokers' own names

Wrapping leaves a name that is in the namespace as it is; unwrapping removes this namespace only. Names are wrapped and
unwrapped at the interface of a producer or consumer: in its public methods, the arguments of listeners, and the topic
of each message. Everything inside has the brokers' names, including logs, offset files and properties of messages such
as RETRY_TOPIC.

The ``namespaceV2`` of Apache 5.x is different: it does not change names, and is a field of each request.

This module does no I/O.
"""

import re
from collections.abc import Sequence

from rocket_remoting.wire.message import MessageQueue
from rocket_remoting.wire.topics import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    is_system_group,
    is_system_topic,
    validate_group,
)

SEPARATOR = "%"

_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX)
_INSTANCE_ADDRESS = r"(?:\w+://)?(MQ_INST_\w+_\w+)\."


class Namespace:
    """A namespace; an object without a name is false and changes no names.

    Args:
        name: The namespace's name; None or empty for no namespace.

    Raises:
        ValueError: The name has a character that topics cannot have, or ``%``, or looks like the brokers' own names.
    """

    __slots__ = ("_start", "name")

    def __init__(self, name: str | None) -> None:
        self.name = name or ""
        self._start = f"{name}{SEPARATOR}" if name else ""
        if name:
            _validate(name)

    def __repr__(self) -> str:
        return f"Namespace({self.name!r})"

    def __bool__(self) -> bool:
        return bool(self._start)

    def wrap(self, name: str) -> str:
        """Return the topic or group as brokers know it."""
        if not (self._start and name) or is_system_topic(name) or is_system_group(name):
            return name
        prefix, own = _parts(name)
        return name if own.startswith(self._start) else f"{prefix}{self._start}{own}"

    def unwrap(self, name: str) -> str:
        """Return the topic or group as the application knows it."""
        if not self._start:
            return name
        prefix, own = _parts(name)
        return prefix + own.removeprefix(self._start)

    def wrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return the queue as brokers know it."""
        return _renamed(queue, self.wrap(queue.topic)) if self._start else queue

    def unwrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """Return the queue as the application knows it."""
        return _renamed(queue, self.unwrap(queue.topic)) if self._start else queue


def namespace_of(addresses: Sequence[str]) -> str | None:
    """Return the namespace in an address of Alibaba Cloud, the first part of ``MQ_INST_1_a.example:80``, if any."""
    if not addresses or "MQ_INST_" not in addresses[0]:  # the usual case, for which no pattern is compiled
        return None
    match = re.match(_INSTANCE_ADDRESS, addresses[0], re.ASCII)
    return match and match[1]


def _parts(name: str) -> tuple[str, str]:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _renamed(queue: MessageQueue, topic: str) -> MessageQueue:
    return queue if topic == queue.topic else MessageQueue(topic, queue.broker_name, queue.queue_id)


def _validate(name: str) -> None:
    try:
        validate_group(name)
    except ValueError as error:
        raise ValueError(f"namespace: {error}") from error
    if SEPARATOR in name:
        raise ValueError(f"namespace: {name!r} contains {SEPARATOR}, which separates namespace and name")
    if is_system_topic(name) or is_system_group(name):
        raise ValueError(f"namespace: names in {name!r} would look like the brokers' own names; choose another one")
