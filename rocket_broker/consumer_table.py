"""Which consumers are alive, by group, and what each group is subscribed to.

Members of a group divide its queues among themselves, each by itself: so they must all know of each other,
and must all want the same, which `SubscriptionGuard` looks after. The table tells every member at once when
one joins or leaves.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator

from rocket_broker.client_channel import ClientChannel
from rocket_broker.loop_time import loop_time
from rocket_broker.memberships import Memberships, silent_members
from rocket_broker.refusal import Refusal
from rocket_broker.subscription import Subscription
from rocket_broker.subscription_guard import SubscriptionGuard
from rocket_remoting.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rocket_remoting.codes import RequestCode, ResponseCode
from rocket_remoting.connection import Connection
from rocket_remoting.headers import NotifyConsumerIdsChangedRequestHeader

__all__ = ["ConsumerGroup", "ConsumerTable"]

_log = logging.getLogger(__name__)


class ConsumerGroup:
    """The live members of one group and what they are subscribed to.

    Attributes:
        consume_type: Push or pull, as the last heartbeat said.
        message_model: Clustering or broadcasting, likewise.
        consume_from_where: Where a member without an offset begins, likewise.
        subscriptions: Topic -> subscription, the newest that any member told.
    """

    __slots__ = (
        "_members",
        "consume_from_where",
        "consume_type",
        "message_model",
        "name",
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
        self._members: dict[Connection, ClientChannel] = {}

    def members(self) -> list[ClientChannel]:
        """Return the live members in the order they joined."""
        return list(self._members.values())

    def client_ids(self) -> list[str]:
        """Return the members' ids, each once: who reconnects is here twice until the old socket ends."""
        return list(dict.fromkeys(member.client_id for member in self._members.values()))

    def find(self, client_id: str) -> ClientChannel | None:
        """Return the member with this id; of two, the one that joined last."""
        return next((m for m in reversed(self._members.values()) if m.client_id == client_id), None)

    def join(self, client: ClientChannel, data: ConsumerData) -> bool:
        """Take a member's heartbeat; return whether members or subscribed topics changed by it."""
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        known = self._members.get(client.connection)
        changed = known is None
        if known is None or known.client_id != client.client_id:
            self._members[client.connection] = client
        else:
            known.seen = client.seen
        return self._subscribe(data.subscription_data_set) or changed

    def note_alive(self, connection: Connection, now: float) -> None:
        """Note that the member on this connection was heard of."""
        self._members[connection].seen = now

    def leave(self, connection: Connection) -> ClientChannel | None:
        """Forget the member on this connection and return it."""
        return self._members.pop(connection, None)

    def _subscribe(self, told: Iterable[SubscriptionData]) -> bool:
        changed = False
        topics = set()
        for data in told:
            topics.add(data.topic)
            old = self.subscriptions.get(data.topic)
            if old is None or data.sub_version > old.data.sub_version:
                self.subscriptions[data.topic] = Subscription.of(data)
                changed |= old is None
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
        guard: Finds out members of one group that want different things.
        on_heartbeat: Called with the group, the subscriptions and the connection of each member's heartbeat.
        on_empty: Called with a group whose last member left.
    """

    def __init__(self, *, time: Callable[[], float] = loop_time) -> None:
        self.guard = SubscriptionGuard()
        self.on_heartbeat: list[Callable[[str, Iterable[SubscriptionData], Connection], None]] = []
        self.on_empty: list[Callable[[str], None]] = []
        self._time = time
        self._groups: dict[str, ConsumerGroup] = {}
        self._memberships = Memberships()
        self._changed: dict[ConsumerGroup, None] = {}
        self.notify_enabled: Callable[[], bool] = lambda: True

    def get(self, group: str) -> ConsumerGroup | None:
        """Return the group, if it has a live member."""
        return self._groups.get(group)

    def register(self, client: ClientChannel, data: ConsumerData, *, notify: bool = True) -> bool:
        """Take a member's heartbeat; tell all members if it changed the group, and return whether it did.

        Raises:
            Refusal: It wants something else than other members, and that is not let pass: it is no member now.
        """
        problem = self.guard.look(client, data)
        if problem is not None:
            self._leave(data.group_name, client.connection)
            raise Refusal(ResponseCode.SYSTEM_ERROR, problem)
        group = self._groups.get(data.group_name)
        if group is None:
            group = self._groups[data.group_name] = ConsumerGroup(data.group_name)
        client.seen = self._time()
        group.notify = notify
        changed = group.join(client, data)
        self._memberships.add(client.connection, group.name)
        if changed:
            _log.info("consumer group %s: %s wants %d topics, %d members",
                      group.name, client, len(group.subscriptions), len(group),
                      extra=client.connection.log_peer)  # fmt: skip
            self._tell(group)
        for listener in self.on_heartbeat:
            listener(group.name, data.subscription_data_set, client.connection)
        return changed

    def unregister(self, group_name: str, connection: Connection) -> None:
        """Forget the group's member on this connection and tell the others."""
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
        _log.info("consumer group %s: %s left, %d members", group_name, left, len(group),
                  extra=connection.log_peer)  # fmt: skip
        self._tell(group)

    def connection_closed(self, connection: Connection) -> None:
        """Forget every member on this connection and tell the others of its groups."""
        self.guard.connection_closed(connection)
        for name in self._memberships.of(connection):
            self._leave(name, connection)

    def note_alive(self, connection: Connection) -> None:
        """Let the connection's members live on, as a heartbeat of each would."""
        now = self._time()
        for name in self._memberships.of(connection):
            self._groups[name].note_alive(connection, now)

    def remove_silent(self, seconds: float) -> list[Connection]:
        """Forget members without a heartbeat for so long; return the connections to close."""
        groups = ((name, group.members()) for name, group in self._groups.items())
        silent = silent_members(groups, self._time() - seconds)
        for name, member in silent:
            _log.warning("consumer group %s: no heartbeat from %r, forgotten", name, member,
                         extra=member.connection.log_peer)  # fmt: skip
            self.unregister(name, member.connection)
        return [member.connection for _, member in silent]

    def groups_of(self, topic: str) -> Iterator[str | None]:
        """Yield the groups with a live member subscribed to the topic, and None in between: others may have a turn."""
        for name in list(self._groups):
            group = self._groups.get(name)
            yield name if group is not None and topic in group.subscriptions else None

    def _tell(self, group: ConsumerGroup) -> None:
        """Tell the members once the present turn of the loop is over: once, however many came and went in it."""
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._tell_changed)
        self._changed[group] = None

    def _tell_changed(self) -> None:
        changed, self._changed = self._changed, {}
        for group in changed:
            if not (group.notify and self.notify_enabled()):
                continue
            header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group.name)
            for member in group.members():
                if not member.connection.is_closed:
                    member.connection.invoke_oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)

    def __contains__(self, group: str) -> bool:
        return group in self._groups

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)
