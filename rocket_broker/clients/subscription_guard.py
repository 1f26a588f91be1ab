"""Members of one group that want different things: found out in heartbeats.

A queue is filtered for the whole group by the subscription that was told last, and each member takes its share
of all queues: so when members want different topics, tags or expressions, or one is broadcasting and another
is not, messages are lost without a sound (E15). They are warned about, both sides by name, once for each change
of a member's mind; with ``refuseDifferentSubscriptions=true`` the one that came later is no member until it
agrees or the others are gone.
"""

import logging
from collections.abc import Callable, Generator, Mapping
from typing import NamedTuple

from rocket_broker.clients.client_channel import ClientChannel
from rocket_broker.clients.memberships import Memberships
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import ConsumerData, SubscriptionData

__all__ = ["SubscriptionGuard", "Wish"]

logger = logging.getLogger(__name__)

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


class Wish(NamedTuple):
    """What one member wants.

    Attributes:
        client_id: The member.
        topics: What it wants of each topic.
        digest: Of the topics: alike if they are. A group may have thousands of members with thousands of topics.
        how: Message model and consume type.
        refused: Whether the member was refused.
    """

    client_id: str
    topics: Mapping[str, _Topic]
    digest: int
    how: str
    refused: bool = False

    @classmethod
    def of(cls, client_id: str, data: ConsumerData) -> Generator[None, None, "Wish"]:
        """Return what a heartbeat says, in steps."""
        topics: dict[str, _Topic] = {}
        for told in data.subscription_data_set:
            topic = topics[told.topic] = _Topic.of(told)
            hash(topic)  # of thousands of tags: the set remembers it
            yield
        digest = hash(frozenset(topics.items()))
        return cls(client_id, topics, digest, f"{data.message_model} {data.consume_type}")

    def is_like(self, other: "Wish") -> bool:
        """Whether both want the same."""
        return self.digest == other.digest and self.how == other.how

    def contradicts(self, other: "Wish") -> bool:
        """Whether the two cannot be members of one group."""
        return not (self.refused or self.client_id == other.client_id or self.is_like(other))

    def beside(self, other: "Wish") -> str:
        """Say what differs."""
        if self.digest == other.digest:
            return f"{self.client_id} is {self.how}, {other.client_id} is {other.how}"
        return f"{self.client_id} wants {self._told()}, {other.client_id} wants {other._told()}"

    def _told(self) -> str:
        told = ""
        for topic in sorted(self.topics):
            told += (", " if told else "") + f"{topic}: {self.topics[topic]}"
            if len(told) > _SHOWN:
                return "{" + told[:_SHOWN] + "…}"
        return "{" + told + "}"


class SubscriptionGuard:
    """What every member of every group wants, those that were refused included.

    Attributes:
        refuses: Whether a member that contradicts another is to be refused.
    """

    def __init__(self) -> None:
        self.refuses: Callable[[], bool] = lambda: False
        self._groups: dict[str, dict[Connection, Wish]] = {}
        self._memberships = Memberships()

    def look(self, client: ClientChannel, group: str, wish: Wish) -> str | None:
        """Note what the group's member wants; return why it is to be refused, None when it is welcome."""
        wishes = self._groups.setdefault(group, {})
        known = wishes.get(client.connection)
        was_same = known is not None and known.client_id == wish.client_id and known.is_like(wish)
        if known is not None and was_same and not known.refused:
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
        self._memberships.add(client.connection, group)
        if other is None:
            return None
        problem = (
            f"consumer group {group}: its members subscribe to different things and will miss messages: "
            f"{other.beside(wish)}. Give each its own group, or the same subscription"
        )
        if not was_same:
            end = f". {wish.client_id} is refused" if refused else ""
            logger.warning("%s%s", problem, end, extra=client.connection.log_peer)
        return problem if refused else None

    def forget(self, group: str, connection: Connection) -> None:
        """Forget what a member wanted: it left."""
        wishes = self._groups.get(group)
        if wishes is not None:
            wishes.pop(connection, None)
            if not wishes:
                del self._groups[group]
            self._memberships.remove(connection, group)

    def connection_closed(self, connection: Connection) -> Generator[None, None, None]:
        """Forget every member on this connection, in steps."""
        for group in self._memberships.of(connection):
            self.forget(group, connection)
            yield
