"""Members of one group that want different things: found out in heartbeats.

A queue is filtered for the whole group by the subscription that was told last, and each member takes its share
of all queues: so when members want different topics, tags or expressions, or one is broadcasting and another
is not, messages are lost without a sound (E15). They are warned about, both sides by name, once for each change
of a member's mind; with ``refuseDifferentSubscriptions=true`` the one that came later is no member until it
agrees or the others are gone.
"""

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rocket_broker.client_channel import ClientChannel
from rocket_broker.memberships import Memberships
from rocket_remoting.bodies import ConsumerData, SubscriptionData
from rocket_remoting.connection import Connection

__all__ = ["SubscriptionGuard"]

_log = logging.getLogger(__name__)

_SHOWN = 2_000
"""Characters of what a member wants that are told: it may be megabytes."""


class _Topic(NamedTuple):
    """What a member wants of a topic: the kind of expression, and the expression (of tags: which, in any order)."""

    kind: str
    wanted: str | frozenset[str]

    @classmethod
    def of(cls, data: SubscriptionData) -> "_Topic":
        kind, text = data.expression_type or "TAG", data.sub_string or "*"
        return cls(kind, frozenset(map(str.strip, text.split("||"))) if kind == "TAG" else text)

    def __str__(self) -> str:
        if isinstance(self.wanted, str):
            return f"{self.kind} {self.wanted}"
        return " || ".join(sorted(self.wanted))


class _Wish(NamedTuple):
    """What one member wants."""

    client_id: str
    topics: Mapping[str, _Topic]
    how: str
    """Message model and consume type."""
    refused: bool = False

    @classmethod
    def of(cls, client_id: str, data: ConsumerData) -> "_Wish":
        topics = {told.topic: _Topic.of(told) for told in data.subscription_data_set}
        return cls(client_id, topics, f"{data.message_model} {data.consume_type}")

    def contradicts(self, other: "_Wish") -> bool:
        same = self.topics == other.topics and self.how == other.how
        return not (same or self.refused or self.client_id == other.client_id)

    def beside(self, other: "_Wish") -> str:
        """Tell what differs."""
        if self.topics == other.topics:
            return f"{self.client_id} is {self.how}, {other.client_id} is {other.how}"
        return f"{self.client_id} wants {self._told()}, {other.client_id} wants {other._told()}"

    def _told(self) -> str:
        told = ", ".join(f"{topic}: {wanted}" for topic, wanted in sorted(self.topics.items()))
        return "{" + (told if len(told) <= _SHOWN else told[:_SHOWN] + "…") + "}"


class SubscriptionGuard:
    """What every member of every group wants, those that were refused included.

    Attributes:
        refuses: Whether a member that contradicts another is to be refused.
    """

    def __init__(self) -> None:
        self.refuses: Callable[[], bool] = lambda: False
        self._groups: dict[str, dict[Connection, _Wish]] = {}
        self._memberships = Memberships()

    def look(self, client: ClientChannel, data: ConsumerData) -> str | None:
        """Note what the member wants; return why it is to be refused, None when it is welcome."""
        wishes = self._groups.setdefault(data.group_name, {})
        known = wishes.get(client.connection)
        wish = _Wish.of(client.client_id, data)
        if known == wish:
            return None
        other = next(
            (
                other
                for connection, other in wishes.items()
                if connection is not client.connection and other.contradicts(wish)
            ),
            None,
        )
        refused = other is not None and self.refuses()
        wishes[client.connection] = wish._replace(refused=refused)
        self._memberships.add(client.connection, data.group_name)
        if other is None:
            return None
        problem = (
            f"consumer group {data.group_name}: its members subscribe to different things and will miss messages: "
            f"{other.beside(wish)}. Give each its own group, or the same subscription"
        )
        if known is None or known._replace(refused=False) != wish:
            end = f". {wish.client_id} is refused" if refused else ""
            _log.warning("%s%s", problem, end, extra=client.connection.log_peer)
        return problem if refused else None

    def forget(self, group: str, connection: Connection) -> None:
        """Forget what a member wanted: it left."""
        wishes = self._groups.get(group)
        if wishes is not None:
            wishes.pop(connection, None)
            if not wishes:
                del self._groups[group]
            self._memberships.remove(connection, group)

    def connection_closed(self, connection: Connection) -> None:
        """Forget every member on this connection."""
        for group in self._memberships.of(connection):
            self.forget(group, connection)
