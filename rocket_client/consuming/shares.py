"""This member's share of a topic's queues.

::

    clustering      by the allocation strategy, from the group's members as a broker of the topic knows them
    broadcasting    all queues
    assigned        the queues that the application has assigned
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Protocol

from rocket_client.allocation import ConsistentHash
from rocket_client.consuming.membership import Membership
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.errors import ResponseError
from rocket_remoting.wire.message import MessageQueue


class Shares(Protocol):
    """Determines this member's share.

    Attributes:
        has_others: Whether other members share the queues; then one of them may still have a queue that is this
            member's now.
    """

    @property
    def has_others(self) -> bool: ...

    async def of(self, topic: str, queues: Sequence[MessageQueue]) -> Collection[MessageQueue] | None:
        """Return this member's share of the topic's readable queues; None if it cannot be known now."""


class GroupShares:
    """The share by the allocation strategy. Every member computes the same division and takes its own part."""

    def __init__(self, member: Membership) -> None:
        self._client = member.client
        self._group = member.group
        self._wrap = member.namespace.wrap_queue
        self._allocate = member.settings.allocate_message_queue_strategy
        self.has_others = False

    def __repr__(self) -> str:
        return f"GroupShares({self._group!r}, {self._allocate!r})"

    async def of(self, topic: str, queues: Sequence[MessageQueue]) -> Collection[MessageQueue] | None:
        """Return this member's share; None if the broker does not know this member yet."""
        members = await self._members(topic)
        if members is None:
            return None
        if isinstance(self._allocate, ConsistentHash):
            for _ in self._allocate.prepare(self._client.client_id, queues, members):
                await asyncio.sleep(0)
        share = self._allocate(self._group, self._client.client_id, queues, members)
        return list(map(self._wrap, share))

    async def _members(self, topic: str) -> list[str] | None:
        """Return the client ids of the group's members, sorted; None if they cannot be known now."""
        for attempt in range(2):
            address = self._client.routes.any_broker_of(topic)
            if address is None:
                return None
            try:
                members = await self._client.requests.consumer_ids(address, self._group)
            except ResponseError as error:
                if error.code != ResponseCode.SYSTEM_ERROR:
                    raise
                members = []  # Apache's brokers answer SYSTEM_ERROR for a group without members
            if self._client.client_id in members:
                self.has_others = len(members) > 1
                return sorted(members)
            # The broker does not know this member: it was restarted, or heartbeats did not reach it.
            if attempt == 0:
                await self._client.heartbeat()
        return None


class AllQueues:
    """The share of a broadcasting member: every queue."""

    has_others = False

    def __repr__(self) -> str:
        return "AllQueues()"

    async def of(self, topic: str, queues: Sequence[MessageQueue]) -> Collection[MessageQueue]:
        """Return all queues."""
        return queues


class AssignedQueues:
    """The queues that the application has assigned, even if other members read them too.

    Attributes:
        queues: The assigned queues, as brokers know them.
    """

    has_others = False

    def __init__(self) -> None:
        self.queues: frozenset[MessageQueue] = frozenset()

    def __repr__(self) -> str:
        return f"AssignedQueues({sorted(self.queues)})"

    async def of(self, topic: str, queues: Sequence[MessageQueue]) -> Collection[MessageQueue]:
        """Return the assigned queues that exist."""
        return [queue for queue in queues if queue in self.queues]
