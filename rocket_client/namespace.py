"""Namespaces: tenants of one cluster, who use the same names for topics and groups of their own.

::

    what the application says     what brokers know
    orders                        ns%orders
    %RETRY%kitchen                %RETRY%ns%kitchen     what belongs to a group keeps its prefix in front
    %DLQ%kitchen                  %DLQ%ns%kitchen
    TBW102, CID_RMQ_SYS_…         the same: brokers' own names are everybody's

A name that is in the namespace is left as it is, and only this very namespace is taken off. Names are wrapped and
unwrapped where they enter and leave a producer or consumer: its public methods, what listeners are given, and the
topic of each message. All that lies between, logs and offset files included, has the brokers' names; so do properties
of messages, such as RETRY_TOPIC.

This is not 5.x's ``namespaceV2``, which leaves names alone and goes along in a field of each request.

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
_INSTANCE_ADDRESS = re.compile(r"(?:\w+://)?(MQ_INST_\w+_\w+)\.", re.ASCII)


class Namespace:
    """One namespace, or none; false when it is none.

    Args:
        name: What is put before names; none when unset or empty.

    Raises:
        ValueError: The name cannot be part of a topic's, or would hide where it ends.
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
        """The topic or group as brokers know it."""
        if not (self._start and name) or is_system_topic(name) or is_system_group(name):
            return name
        prefix, own = _parts(name)
        return name if own.startswith(self._start) else f"{prefix}{self._start}{own}"

    def unwrap(self, name: str) -> str:
        """The topic or group as the application says it."""
        if not self._start:
            return name
        prefix, own = _parts(name)
        return prefix + own.removeprefix(self._start)

    def wrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """The queue as brokers know it."""
        return _renamed(queue, self.wrap(queue.topic)) if self._start else queue

    def unwrap_queue(self, queue: MessageQueue) -> MessageQueue:
        """The queue as the application says it."""
        return _renamed(queue, self.unwrap(queue.topic)) if self._start else queue


def namespace_of(addresses: Sequence[str]) -> str | None:
    """The namespace that addresses name: the first part of ``MQ_INST_1_a.example:80``, as Alibaba Cloud's do."""
    match = _INSTANCE_ADDRESS.match(addresses[0]) if addresses else None
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
        raise ValueError(f"namespace: {name!r} has a {SEPARATOR}, which ends it")
    if is_system_topic(name) or is_system_group(name):
        raise ValueError(f"namespace: {name!r} would make names look like the brokers' own")
