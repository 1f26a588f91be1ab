"""The live consumers of each group, and the group's subscriptions.

The members of a group divide its queues among themselves, each on its own. So all must know the same members, and all
must have the same subscriptions, which `SubscriptionGuard` checks. When a member joins or leaves, the table notifies
all members (NOTIFY_CONSUMER_IDS_CHANGED), and they rebalance::

    up to 20 members    all members are notified of each change, at once
    more                a change soon after another is notified later, together with those that follow it: 0.1 ms for
                        each member after the notification before, at most 0.1 s

When a thousand members start within seconds, a notification for each of them would be half a million notifications,
each answered by a request for the list of members.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

from rocket_broker.clients.client_channel import ClientChannel
from rocket_broker.clients.memberships import Memberships, silent_members
from rocket_broker.clients.subscription_guard import MemberSubscriptions, SubscriptionGuard
from rocket_broker.filter.subscription import Subscription
from rocket_broker.limits.refusal import Refusal
from rocket_broker.loop.loop_steps import BackgroundSteps
from rocket_broker.loop.loop_time import loop_time
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.headers import NotifyConsumerIdsChangedRequestHeader

__all__ = ["ConsumerGroup", "ConsumerTable"]

logger = logging.getLogger(__name__)

_NOTIFIED_AT_ONCE = 20
_PAUSE_A_MEMBER = 0.000_1
_MOST_PAUSE = 0.1
"""Seconds between two notifications of a group: for each member, and at most. A new member takes queues over 0.3 s
after it has looked at the group. A former one needs 0.15 s to give them up, so it must hear of the change before."""

HeartbeatListener = Callable[[str, Iterable[SubscriptionData], Connection], Generator[None, None, None]]
"""Handles a member's heartbeat in steps: gets the group, the subscriptions and the member's connection."""


class ConsumerGroup:
    """The live members of one group, and the group's subscriptions.

    Attributes:
        consume_type: Push or pull, from the last heartbeat.
        message_model: Clustering or broadcasting, from the last heartbeat.
        consume_from_where: Where a member without an offset begins, from the last heartbeat.
        subscriptions: The subscription to each topic, the newest of all members.
        notified_at: When the members were last notified of a change, in seconds of the loop's time.
        is_notice_due: Whether they will be notified of further changes.
        listed: The encoded list of `client_ids`; None if it was not encoded since they last changed.
    """

    __slots__ = (
        "_client_ids",
        "_members",
        "consume_from_where",
        "consume_type",
        "is_notice_due",
        "listed",
        "message_model",
        "name",
        "notified_at",
        "notify",
        "subscriptions",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.consume_type: ConsumeType | None = None
        self.message_model: MessageModel | None = None
        self.consume_from_where: ConsumeFromWhere | None = None
        self.notify = True
        self.subscriptions: dict[str, Subscription] = {}
        self.notified_at = float("-inf")
        self.is_notice_due = False
        self._members: dict[Connection, ClientChannel] = {}
        self._client_ids: tuple[str, ...] | None = None
        self.listed: Sequence[bytes | memoryview] | None = None

    def members(self) -> list[ClientChannel]:
        """Return the live members in the order in which they joined."""
        return list(self._members.values())

    def client_ids(self) -> tuple[str, ...]:
        """Return the members' ids without duplicates; the same object as before if the members have not changed.

        A client that reconnects is a member twice, until its former connection closes.
        """
        if self._client_ids is None:
            self._client_ids = tuple(dict.fromkeys(member.client_id for member in self._members.values()))
        return self._client_ids

    def find(self, client_id: str) -> ClientChannel | None:
        """Return the member with this id; of two members with the id, the one that joined last."""
        return next((m for m in reversed(self._members.values()) if m.client_id == client_id), None)

    def member_on(self, connection: Connection) -> ClientChannel | None:
        """Return the member on this connection; None if there is none."""
        return self._members.get(connection)

    def join(self, client: ClientChannel, data: ConsumerData, prepared: Mapping[str, Subscription]) -> bool:
        """Apply a member's heartbeat; return whether it changed the members or the subscribed topics.

        Args:
            client: The member.
            data: The group's part of the heartbeat.
            prepared: Parsed subscriptions of the heartbeat that are newer than the group's, by topic. Missing ones are
                parsed here.
        """
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        known = self._members.get(client.connection)
        changed = known is None
        # A client that changes its id on the same connection replaces its former self.
        if known is None or known.client_id != client.client_id:
            self._members[client.connection] = client
            self._client_ids = self.listed = None
        else:
            known.seen = client.seen
        return self._subscribe(data.subscription_data_set, prepared) or changed

    def note_alive(self, connection: Connection, now: float) -> None:
        """Note that a member is alive.

        Args:
            connection: The member's connection.
            now: Seconds of the loop's time.
        """
        self._members[connection].seen = now

    def leave(self, connection: Connection) -> ClientChannel | None:
        """Remove the member on this connection, and return it; None if there is none."""
        self._client_ids = self.listed = None
        return self._members.pop(connection, None)

    def is_newer(self, subscription: SubscriptionData) -> bool:
        """Return whether the group has no subscription to the topic, or only an older one."""
        known = self.subscriptions.get(subscription.topic)
        return known is None or subscription.sub_version > known.data.sub_version

    def _subscribe(self, subscriptions: Iterable[SubscriptionData], prepared: Mapping[str, Subscription]) -> bool:
        changed = False
        topics = set()
        for data in subscriptions:
            topics.add(data.topic)
            if self.is_newer(data):
                changed |= data.topic not in self.subscriptions
                found = prepared.get(data.topic)
                # A heartbeat may list a topic twice; `prepared` then has only the second subscription.
                if found is None or found.data is not data:
                    found = Subscription.of(data)
                self.subscriptions[data.topic] = found
        # As in Apache's ConsumerGroupInfo, each heartbeat removes the topics that it does not list. So
        # members with different topics remove each other's at every heartbeat, which `SubscriptionGuard`
        # warns of.
        for topic in self.subscriptions.keys() - topics:
            del self.subscriptions[topic]
            changed = True
        return changed

    def __len__(self) -> int:
        return len(self._members)

    def __repr__(self) -> str:
        return f"ConsumerGroup({self.name!r}, {self.client_ids()}, {sorted(self.subscriptions)})"


class ConsumerTable:
    """All groups with a live member.

    Attributes:
        guard: Detects members of one group with different subscriptions.
        on_heartbeat: Called with the group, the subscriptions and the connection of each member's heartbeat.
        on_empty: Called with the name of a group whose last member left.
    """

    def __init__(self, *, time: Callable[[], float] = loop_time) -> None:
        self.guard = SubscriptionGuard()
        self.on_heartbeat: list[HeartbeatListener] = []
        self.on_empty: list[Callable[[str], None]] = []
        self._time = time
        self._groups: dict[str, ConsumerGroup] = {}
        self._memberships = Memberships()
        self._changed: dict[ConsumerGroup, None] = {}
        self._background = BackgroundSteps()
        self.notify_enabled: Callable[[], bool] = lambda: True

    def get(self, group: str) -> ConsumerGroup | None:
        """Return the group; None if it has no live member."""
        return self._groups.get(group)

    def open_members(self, group: str) -> list[ClientChannel]:
        """Return the group's live members whose connection is open."""
        known = self._groups.get(group)
        return [m for m in known.members() if not m.connection.is_closed] if known is not None else []

    def register(
        self, client: ClientChannel, data: ConsumerData, *, notify: bool = True
    ) -> Generator[None, None, bool]:
        """Apply a member's heartbeat, in steps; notify all members and return True if it changed the group.

        Raises:
            Refusal: The subscriptions differ from other members' and the settings refuse that; the member is removed.
        """
        subscriptions = yield from MemberSubscriptions.of(client.client_id, data)
        prepared = yield from self._prepared(data)
        # After all steps that yield: two members that join at once must not both find the group without a
        # contradiction.
        problem = self.guard.check(client, data.group_name, subscriptions)
        if problem is not None:
            self._leave(data.group_name, client.connection)
            raise Refusal(ResponseCode.SYSTEM_ERROR, problem)
        group = self._groups.get(data.group_name)
        if group is None:
            group = self._groups[data.group_name] = ConsumerGroup(data.group_name)
        client.seen = self._time()
        group.notify = notify
        changed = group.join(client, data, prepared)
        self._memberships.add(client.connection, group.name)
        if changed:
            logger.info("consumer group %s: %s subscribes to %d topic(s), %d member(s)",
                      group.name, client, len(group.subscriptions), len(group),
                      extra=client.connection.log_peer)  # fmt: skip
            self._schedule_notification(group)
        for listener in self.on_heartbeat:
            yield from listener(group.name, data.subscription_data_set, client.connection)
        return changed

    def _prepared(self, data: ConsumerData) -> Generator[None, None, dict[str, Subscription]]:
        """Parse the subscriptions of a heartbeat that are newer than the group's, in steps: tag lists may be long."""
        group = self._groups.get(data.group_name) or ConsumerGroup(data.group_name)
        prepared: dict[str, Subscription] = {}
        for subscription in data.subscription_data_set:
            if group.is_newer(subscription):
                prepared[subscription.topic] = yield from Subscription.steps(subscription)
            yield
        return prepared

    def unregister(self, group_name: str, connection: Connection) -> None:
        """Remove the group's member on this connection, and notify the other members."""
        self.guard.forget(group_name, connection)
        self._leave(group_name, connection)

    def _leave(self, group_name: str, connection: Connection) -> None:
        group = self._groups.get(group_name)
        if group is None:
            return
        left = group.leave(connection)
        if left is None:
            return
        self._memberships.remove(connection, group_name)
        if not group:
            del self._groups[group_name]
            for listener in self.on_empty:
                listener(group_name)
        logger.info("consumer group %s: %s left, %d member(s) remain", group_name, left, len(group),
                  extra=connection.log_peer)  # fmt: skip
        self._schedule_notification(group)

    def connection_closed(self, connection: Connection) -> None:
        """Remove every member on this connection, and notify the other members of its groups, in steps."""
        self._background.add("removing the consumers of a closed connection", self._forget(connection))

    def _forget(self, connection: Connection) -> Generator[None, None, None]:
        yield from self.guard.connection_closed(connection)
        for name in self._memberships.of(connection):
            self._leave(name, connection)
            yield

    def note_alive(self, connection: Connection) -> None:
        """Count a request on the connection as a heartbeat of all members on the connection."""
        now = self._time()
        for name in self._memberships.of(connection):
            self._groups[name].note_alive(connection, now)

    def remove_silent(self, seconds: float) -> Generator[None, None, list[Connection]]:
        """Remove members without a heartbeat for ``seconds``, in steps; return their connections to close."""
        groups = ((name, group.members()) for name, group in list(self._groups.items()))
        silent = yield from silent_members(groups, self._time() - seconds)
        for name, member in silent:
            logger.warning("consumer group %s: removed %r, no heartbeat", name, member,
                         extra=member.connection.log_peer)  # fmt: skip
            self.unregister(name, member.connection)
            yield
        return [member.connection for _, member in silent]

    def groups_of(self, topic: str) -> Iterator[str | None]:
        """Yield the groups with a live member that subscribes to the topic; None lets other requests run."""
        for name in list(self._groups):
            group = self._groups.get(name)
            yield name if group is not None and topic in group.subscriptions else None

    def _schedule_notification(self, group: ConsumerGroup) -> None:
        """Schedule one notification of the members, for all who join and leave until then."""
        if group.is_notice_due:
            return
        group.is_notice_due = True
        wait = group.notified_at + min(len(group) * _PAUSE_A_MEMBER, _MOST_PAUSE) - self._time()
        if wait > 0 and len(group) > _NOTIFIED_AT_ONCE:
            asyncio.get_running_loop().call_later(wait, self._notify_soon, group)
        else:
            self._notify_soon(group)

    def _notify_soon(self, group: ConsumerGroup) -> None:
        """Notify the members after this turn of the loop, together with those of other groups."""
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._notify_changed)
        self._changed[group] = None

    def _notify_changed(self) -> None:
        changed, self._changed = self._changed, {}
        self._background.add("notifying consumers of changed groups", self._notify_members(changed))

    def _notify_members(self, changed: Iterable[ConsumerGroup]) -> Generator[None, None, None]:
        for group in changed:
            group.is_notice_due, group.notified_at = False, self._time()
            if not (group.notify and self.notify_enabled()):
                continue
            header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group.name)
            for member in group.members():
                if not member.connection.is_closed:
                    member.connection.invoke_oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)
                yield

    def __contains__(self, group: str) -> bool:
        return group in self._groups

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)
