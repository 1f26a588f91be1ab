"""Which of a topic's queues are this member's.

::

    clustering      by the allocation strategy, from the group's members as a broker of the topic knows them
    broadcasting    all of them
    assigned        those the application named
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from rocket_client.consuming.membership import Membership
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.errors import ResponseError
from rocket_remoting.wire.message import MessageQueue


class Shares(Protocol):
    """One way to find out.

    Attributes:
        has_others: Whether other members share the queues, so that one of them may have had what is this one's now.
    """

    @property
    def has_others(self) -> bool: ...

    async def of(self, topic: str, queues: Sequence[MessageQueue]) -> Collection[MessageQueue] | None:
        """This member's of the topic's readable queues; None when that cannot be known now."""


class GroupShares:
    """Every member computes the whole division by itself and takes its own part."""

    def __init__(self, member: Membership) -> None:
        self._client = member.client
        self._group = member.group
        self._wrap = member.namespace.wrap_queue
        self._allocate = member.settings.allocate_message_queue_strategy
        self.has_others = False

    def __repr__(self) -> str:
        return f"GroupShares({self._group!r}, {self._allocate!r})"

    async def of(self, topic: str, queues: Sequence[MessageQueue]) -> Collection[MessageQueue] | None:
        """What the strategy gives this member; None when the broker does not count it as a member yet."""
        members = await self._members(topic)
        if members is None:
            return None
        share = self._allocate(self._group, self._client.client_id, queues, members)
        return list(map(self._wrap, share))

    async def _members(self, topic: str) -> list[str] | None:
        """The group's members, sorted; None when they cannot be known now."""
        for attempt in range(2):
            address = self._client.routes.any_broker_of(topic)
            if address is None:
                return None
            try:
                members = await self._client.requests.consumer_ids(address, self._group)
            except ResponseError as error:
                if error.code != ResponseCode.SYSTEM_ERROR:
                    raise
                members = []  # Apache's answer for a group it has no member of
            if self._client.client_id in members:
                self.has_others = len(members) > 1
                return sorted(members)
            # The broker lost us: it was restarted, or our heartbeats did not reach it.
            if attempt == 0:
                await self._client.heartbeat()
        return None


class AllQueues:
    """Every queue: nobody is asked."""

    has_others = False

    def __repr__(self) -> str:
        return "AllQueues()"

    async def of(self, topic: str, queues: Sequence[MessageQueue]) -> Collection[MessageQueue]:
        """All of them."""
        return queues


class AssignedQueues:
    """The queues the application named, whoever else reads them.

    Attributes:
        queues: Those it named last, as brokers know them.
    """

    has_others = False

    def __init__(self) -> None:
        self.queues: frozenset[MessageQueue] = frozenset()

    def __repr__(self) -> str:
        return f"AssignedQueues({sorted(self.queues)})"

    async def of(self, topic: str, queues: Sequence[MessageQueue]) -> Collection[MessageQueue]:
        """Those of the named queues that exist."""
        return [queue for queue in queues if queue in self.queues]
