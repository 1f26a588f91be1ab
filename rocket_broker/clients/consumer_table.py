"""Which consumers are alive, by group, and what each group is subscribed to.

Members of a group divide its queues among themselves, each by itself: so they must all know of each other,
and must all want the same, which `SubscriptionGuard` looks after. The table tells every member at once when
one joins or leaves.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

from rocket_broker.clients.client_channel import ClientChannel
from rocket_broker.clients.memberships import Memberships, silent_members
from rocket_broker.clients.subscription_guard import SubscriptionGuard, Wish
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


HeartbeatListener = Callable[[str, Iterable[SubscriptionData], Connection], Generator[None, None, None]]
"""Takes a group, the subscriptions and the connection of a member's heartbeat, in steps."""


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

    def join(self, client: ClientChannel, data: ConsumerData, prepared: Mapping[str, Subscription]) -> bool:
        """Take a member's heartbeat; return whether members or subscribed topics changed by it.

        Args:
            client: The member.
            data: What it says.
            prepared: Its subscriptions that are newer than the group's, as far as they are at hand.
        """
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        known = self._members.get(client.connection)
        changed = known is None
        if known is None or known.client_id != client.client_id:
            self._members[client.connection] = client
        else:
            known.seen = client.seen
        return self._subscribe(data.subscription_data_set, prepared) or changed

    def note_alive(self, connection: Connection, now: float) -> None:
        """Note that the member on this connection was heard of."""
        self._members[connection].seen = now

    def leave(self, connection: Connection) -> ClientChannel | None:
        """Forget the member on this connection and return it."""
        return self._members.pop(connection, None)

    def is_news(self, told: SubscriptionData) -> bool:
        """Whether nobody in the group has told this, or something newer, of the topic."""
        known = self.subscriptions.get(told.topic)
        return known is None or told.sub_version > known.data.sub_version

    def _subscribe(self, told: Iterable[SubscriptionData], prepared: Mapping[str, Subscription]) -> bool:
        changed = False
        topics = set()
        for data in told:
            topics.add(data.topic)
            if self.is_news(data):
                changed |= data.topic not in self.subscriptions
                found = prepared.get(data.topic)
                if found is None or found.data is not data:
                    found = Subscription.of(data)
                self.subscriptions[data.topic] = found
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
        self.on_heartbeat: list[HeartbeatListener] = []
        self.on_empty: list[Callable[[str], None]] = []
        self._time = time
        self._groups: dict[str, ConsumerGroup] = {}
        self._memberships = Memberships()
        self._changed: dict[ConsumerGroup, None] = {}
        self._background = BackgroundSteps()
        self.notify_enabled: Callable[[], bool] = lambda: True

    def get(self, group: str) -> ConsumerGroup | None:
        """Return the group, if it has a live member."""
        return self._groups.get(group)

    def register(
        self, client: ClientChannel, data: ConsumerData, *, notify: bool = True
    ) -> Generator[None, None, bool]:
        """Take a member's heartbeat, in steps; tell all members if it changed the group, and return whether it did.

        Raises:
            Refusal: It wants something else than other members, and that is not let pass: it is no member now.
        """
        wish = yield from Wish.of(client.client_id, data)
        prepared = yield from self._prepared(data)
        problem = self.guard.look(client, data.group_name, wish)
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
            logger.info("consumer group %s: %s wants %d topics, %d members",
                      group.name, client, len(group.subscriptions), len(group),
                      extra=client.connection.log_peer)  # fmt: skip
            self._tell(group)
        for listener in self.on_heartbeat:
            yield from listener(group.name, data.subscription_data_set, client.connection)
        return changed

    def _prepared(self, data: ConsumerData) -> Generator[None, None, dict[str, Subscription]]:
        """Return the subscriptions of a heartbeat that are newer than the group's: lists of tags take their time."""
        group = self._groups.get(data.group_name) or ConsumerGroup(data.group_name)
        prepared: dict[str, Subscription] = {}
        for told in data.subscription_data_set:
            if group.is_news(told):
                prepared[told.topic] = Subscription.of(told)
            yield
        return prepared

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
        logger.info("consumer group %s: %s left, %d members", group_name, left, len(group),
                  extra=connection.log_peer)  # fmt: skip
        self._tell(group)

    def connection_closed(self, connection: Connection) -> None:
        """Forget every member on this connection, and tell the others of its groups, in steps."""
        self._background.add("members of a closed connection are forgotten", self._forget(connection))

    def _forget(self, connection: Connection) -> Generator[None, None, None]:
        yield from self.guard.connection_closed(connection)
        for name in self._memberships.of(connection):
            self._leave(name, connection)
            yield

    def note_alive(self, connection: Connection) -> None:
        """Let the connection's members live on, as a heartbeat of each would."""
        now = self._time()
        for name in self._memberships.of(connection):
            self._groups[name].note_alive(connection, now)

    def remove_silent(self, seconds: float) -> Generator[None, None, list[Connection]]:
        """Forget members without a heartbeat for so long, in steps; return the connections to close."""
        groups = ((name, group.members()) for name, group in list(self._groups.items()))
        silent = yield from silent_members(groups, self._time() - seconds)
        for name, member in silent:
            logger.warning("consumer group %s: no heartbeat from %r, forgotten", name, member,
                         extra=member.connection.log_peer)  # fmt: skip
            self.unregister(name, member.connection)
            yield
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
        self._background.add("members are told of others", self._tell_members(changed))

    def _tell_members(self, changed: Iterable[ConsumerGroup]) -> Generator[None, None, None]:
        for group in changed:
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
