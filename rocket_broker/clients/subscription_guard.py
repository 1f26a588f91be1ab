"""Detection of members of one group with different subscriptions, from their heartbeats.

The broker filters a queue for the whole group by the newest subscription, and each member consumes its share of all
queues. So if members subscribe to different topics, tags or expressions, or one is broadcasting and another is not,
messages are lost without an error. A warning names both members, once for each change of a subscription. With
``refuseDifferentSubscriptions=true`` the member that came later is refused until its subscriptions agree, or until the
others have left.

A warning also names two connections that are members with one client id: if they are two processes, both take the same
queues.
"""

import logging
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from typing import NamedTuple, TypeVar

from rocket_broker.clients.client_channel import ClientChannel
from rocket_broker.clients.memberships import Memberships
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import ConsumerData, MessageModel, SubscriptionData

__all__ = ["MemberSubscriptions", "SubscriptionGuard"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

_SHOWN = 2_000
"""Characters of a member's subscriptions that are logged; subscriptions may have megabytes."""


class _Topic(NamedTuple):
    """A member's subscription to a topic: the kind of expression, and the expression, of tags as a set."""

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


class MemberSubscriptions(NamedTuple):
    """The subscriptions of one member of a group.

    Attributes:
        client_id: The member's client id.
        topics: The subscription to each topic.
        digest: Hash of the topics, to compare members cheaply: a group may have thousands of members with thousands
            of topics each.
        model: The message model: CLUSTERING or BROADCASTING.
        how: Message model and consume type.
        refused: Whether the member was refused.
    """

    client_id: str
    topics: Mapping[str, _Topic]
    digest: int
    model: str
    how: str
    refused: bool = False

    @classmethod
    def of(cls, client_id: str, data: ConsumerData) -> Generator[None, None, "MemberSubscriptions"]:
        """Return the subscriptions of a heartbeat, in steps."""
        topics: dict[str, _Topic] = {}
        for subscription in data.subscription_data_set:
            topic = topics[subscription.topic] = _Topic.of(subscription)
            hash(topic)  # of thousands of tags: the frozenset caches its hash, so the digest below is cheap
            yield
        digest = hash(frozenset(topics.items()))
        model = str(data.message_model)
        return cls(client_id, topics, digest, model, f"{model} {data.consume_type}")

    @property
    def kind(self) -> tuple[int, str]:
        """What members have in common that have the same subscriptions, message model and consume type."""
        return self.digest, self.how

    def matches(self, other: "MemberSubscriptions") -> bool:
        """Whether both members have the same subscriptions, message model and consume type."""
        return self.kind == other.kind

    def contradicts(self, other: "MemberSubscriptions") -> bool:
        """Return whether the subscriptions differ; False if these are refused already, or both are the same client."""
        return not (self.refused or self.client_id == other.client_id or self.matches(other))

    def is_duplicate_of(self, other: "MemberSubscriptions") -> bool:
        """Return whether both have one client id and share queues: both count as one member, with the same queues."""
        return self.client_id == other.client_id and self.model == other.model == str(MessageModel.CLUSTERING)

    def difference(self, other: "MemberSubscriptions") -> str:
        """Describe the difference and what follows, for the warning."""
        # Before the topics: only clustering members subscribe to the group's retry topic.
        if self.model != other.model:
            return (
                "its members have different message models, and those of CLUSTERING will miss messages, because the "
                f"queues are divided among all members: {self.client_id} is {self.model}, {other.client_id} is "
                f"{other.model}. Give all members the same message model, or each its own group"
            )
        different = "its members have different subscriptions and will miss messages"
        remedy = "Give all members the same subscription, or each its own group"
        if self.digest == other.digest:
            return f"{different}: {self.client_id} is {self.how}, {other.client_id} is {other.how}. {remedy}"
        return (
            f"{different}: {self.client_id} subscribes to {self._shown_topics()}, {other.client_id} to "
            f"{other._shown_topics()}. {remedy}"
        )

    def _shown_topics(self) -> str:
        text = ""
        for topic in sorted(self.topics):
            text += (", " if text else "") + f"{topic}: {self.topics[topic]}"
            if len(text) > _SHOWN:
                return "{" + text[:_SHOWN] + "…}"
        return "{" + text + "}"


class _Members:
    """The subscriptions of a group's members, by their connections, and how often each occurs.

    The counts tell without a look at all members that none contradicts a new one, as in almost all groups.
    """

    __slots__ = ("_accepted", "_client_ids", "of")

    def __init__(self) -> None:
        self.of: dict[Connection, MemberSubscriptions] = {}
        self._client_ids: Counter[str] = Counter()
        self._accepted: Counter[tuple[int, str]] = Counter()  # digest and kind of those that are not refused

    def add(self, connection: Connection, subscriptions: MemberSubscriptions) -> None:
        """Note the subscriptions, in place of the connection's former ones."""
        self._uncount(self.of.get(connection))
        self.of[connection] = subscriptions
        self._client_ids[subscriptions.client_id] += 1
        if not subscriptions.refused:
            self._accepted[subscriptions.kind] += 1

    def remove(self, connection: Connection) -> None:
        """Forget the member on the connection, if there is one."""
        self._uncount(self.of.pop(connection, None))

    def may_duplicate(self, subscriptions: MemberSubscriptions) -> bool:
        """Whether a member has the same client id."""
        return subscriptions.client_id in self._client_ids

    def may_contradict(self, subscriptions: MemberSubscriptions) -> bool:
        """Whether a member that is not refused has other subscriptions."""
        return len(self._accepted) > (subscriptions.kind in self._accepted)

    def _uncount(self, former: MemberSubscriptions | None) -> None:
        if former is not None:
            _take_one(self._client_ids, former.client_id)
            if not former.refused:
                _take_one(self._accepted, former.kind)


def _take_one(counts: Counter[T], of: T) -> None:
    counts[of] -= 1
    if not counts[of]:
        del counts[of]


class SubscriptionGuard:
    """The subscriptions of every member of every group, including refused members.

    Attributes:
        refuses: Returns whether a member that contradicts another is to be refused.
    """

    def __init__(self) -> None:
        self.refuses: Callable[[], bool] = lambda: False
        self._groups: dict[str, _Members] = {}
        self._memberships = Memberships()

    def check(self, client: ClientChannel, group: str, subscriptions: MemberSubscriptions) -> str | None:
        """Note a member's subscriptions; return the reason if the member is refused, otherwise None."""
        members = self._groups.setdefault(group, _Members())
        known = members.of.get(client.connection)
        if known is None and members.may_duplicate(subscriptions):
            self._warn_of_duplicate(client.connection, group, subscriptions)
        was_same = known is not None and known.client_id == subscriptions.client_id and known.matches(subscriptions)
        if known is not None and was_same and not known.refused:
            return None
        other = None
        if members.may_contradict(subscriptions):
            other = next(
                (
                    other
                    for connection, other in members.of.items()
                    if connection is not client.connection and other.contradicts(subscriptions)
                ),
                None,
            )
        # A refused member is kept too, so that its next heartbeat is not logged as news; `contradicts`
        # leaves it out.
        refused = other is not None and self.refuses()
        members.add(client.connection, subscriptions._replace(refused=refused))
        self._memberships.add(client.connection, group)
        if other is None:
            return None
        problem = f"consumer group {group}: {other.difference(subscriptions)}"
        if not was_same:
            end = f". {subscriptions.client_id} is refused" if refused else ""
            logger.warning("%s%s", problem, end, extra=client.connection.log_peer)
        return problem if refused else None

    def _warn_of_duplicate(self, connection: Connection, group: str, subscriptions: MemberSubscriptions) -> None:
        for earlier, other in self._groups[group].of.items():
            if not earlier.is_closed and subscriptions.is_duplicate_of(other):
                logger.warning(
                    "consumer group %s: %s and %s have the same client id, %s. If they are two processes, both handle "
                    "every message: give each its own instance name. If not, %s has lost the connection from %s",
                    group,
                    earlier.remote_address,
                    connection.remote_address,
                    other.client_id,
                    other.client_id,
                    earlier.remote_address,
                    extra=connection.log_peer,
                )
                return

    def forget(self, group: str, connection: Connection) -> None:
        """Forget the subscriptions of a member that left."""
        members = self._groups.get(group)
        if members is not None:
            members.remove(connection)
            if not members.of:
                del self._groups[group]
            self._memberships.remove(connection, group)

    def connection_closed(self, connection: Connection) -> Generator[None, None, None]:
        """Forget the subscriptions of every member on this connection, in steps."""
        for group in self._memberships.of(connection):
            self.forget(group, connection)
            yield
