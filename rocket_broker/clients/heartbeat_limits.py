"""Limits of the data that clients report in heartbeats: of one connection, and of all together.

The data of a heartbeat is kept until the client leaves the group or its connection closes, so its size is counted by
connection and group. A heartbeat beyond a limit is refused with the reason, and registers nothing: the client stays in
the groups of its previous heartbeat.
"""

from collections.abc import Generator, Iterator

from rocket_broker.filter.subscription import MAX_EXPRESSION
from rocket_broker.limits.owner_quota import OwnerQuota
from rocket_broker.limits.refusal import Refusal, check_group_name
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import ConsumerData, HeartbeatData, SubscriptionData
from rocket_remoting.wire.codes import ResponseCode

__all__ = ["MAX_CLIENT_ID", "MAX_GROUPS", "MAX_SUBSCRIPTIONS", "HeartbeatLimits"]

MAX_GROUPS = 1024
"""Maximum number of groups of one connection, of producers and consumers together."""
MAX_SUBSCRIPTIONS = 4096
"""Maximum number of subscriptions of one consumer group."""
MAX_CLIENT_ID = 1024
MAX_NAME = 1024
"""Characters of a topic's name; no topic with a longer name can exist."""

MAX_OF_CONNECTION = 8 * 1024 * 1024
MAX_TOTAL = 256 * 1024 * 1024
"""Bytes, as `_sizes` estimates them. One address has a quarter of `MAX_TOTAL`."""

_MEMBER = 1024
_SUBSCRIPTION = 768
_CODE = 128
_CHARACTER = 4
"""Bytes that the tables take for a member, a subscription, a tag code and a character, measured roughly. The group
and the `SubscriptionGuard` both keep a subscription's text."""

_Group = tuple[str, str]


class HeartbeatLimits:
    """Bounds the data that connections report in heartbeats."""

    def __init__(self) -> None:
        self._sizes: dict[Connection, dict[_Group, int]] = {}
        self._quota = OwnerQuota("bytes of subscriptions", lambda: MAX_TOTAL)
        self._total = 0

    def admit(self, connection: Connection, data: HeartbeatData) -> Generator[None, None, None]:
        """Count the size of the heartbeat's data, in steps.

        Raises:
            Refusal: The data exceeds a limit, or a name in it is illegal; then nothing is counted.
        """
        yield from _check(data)
        reported: dict[_Group, int] = {}
        for group, size in _sizes(data):
            reported[group] = size
            yield
        # From here on nothing yields, so no other heartbeat can count between the checks and the change.
        known = self._sizes.get(connection, {})
        sizes = known | reported
        if len(sizes) > MAX_GROUPS:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"the client would belong to {len(sizes)} groups; the limit is {MAX_GROUPS}: unregister from others",
            )
        if known.keys() >= reported.keys() and all(known[group] == size for group, size in reported.items()):
            return
        before, after = sum(known.values()), sum(sizes.values())
        if after > MAX_OF_CONNECTION:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"the client's subscriptions take about {after} bytes, at most {MAX_OF_CONNECTION} are allowed",
            )
        if self._total + after - before > MAX_TOTAL:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"broker busy: the subscriptions of all clients take {self._total} of {MAX_TOTAL} bytes",
            )
        owner = connection.counted_as
        # A client that shrinks its subscriptions is admitted, even if its address is above its quota.
        if after > before:
            self._quota.check(after - before, owner)
        self._quota.count(after - before, owner)
        self._total += after - before
        self._sizes[connection] = sizes

    def left(self, connection: Connection, *, producer_group: str | None, consumer_group: str | None) -> None:
        """Forget the data of the groups that a client left."""
        sizes = self._sizes.get(connection, {})
        for group in (("producer", producer_group or ""), ("consumer", consumer_group or "")):
            self._give_back(connection, sizes.pop(group, 0))

    def connection_closed(self, connection: Connection) -> None:
        """Forget all data that the connection has reported."""
        self._give_back(connection, sum(self._sizes.pop(connection, {}).values()))

    def _give_back(self, connection: Connection, size: int) -> None:
        self._quota.count(-size, connection.counted_as)
        self._total -= size

    def __repr__(self) -> str:
        return f"HeartbeatLimits({len(self._sizes)} connections, about {self._total} bytes)"


def _check(data: HeartbeatData) -> Generator[None, None, None]:
    if len(data.client_id) > MAX_CLIENT_ID:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"the client id has {len(data.client_id)} characters, at most {MAX_CLIENT_ID} are allowed",
        )
    if len(data.consumer_data_set) + len(data.producer_data_set) > MAX_GROUPS:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"a client belongs to at most {MAX_GROUPS} groups")
    subscriptions = sum(len(consumer.subscription_data_set) for consumer in data.consumer_data_set)
    # Checked before the sizes are added up, which takes time for each subscription.
    most = MAX_OF_CONNECTION // _SUBSCRIPTION
    if subscriptions > most:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"the client has {subscriptions} subscriptions; the limit for a client is {most}",
        )
    for producer in data.producer_data_set:
        check_group_name(producer.group_name)
        yield
    for consumer in data.consumer_data_set:
        check_group_name(consumer.group_name)
        _check_subscriptions(consumer)
        yield


def _check_subscriptions(consumer: ConsumerData) -> None:
    subscriptions = consumer.subscription_data_set
    if len(subscriptions) > MAX_SUBSCRIPTIONS:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"group {consumer.group_name} subscribes to {len(subscriptions)} topics, "
            f"at most {MAX_SUBSCRIPTIONS} are kept",
        )
    for data in subscriptions:
        if len(data.topic) > MAX_NAME or len(data.expression_type or "") > MAX_NAME:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"group {consumer.group_name} subscribes to a topic of {len(data.topic)} characters: "
                f"{data.topic[:40]}…",
            )
        if len(data.sub_string or "") > MAX_EXPRESSION or len(data.code_set) > MAX_EXPRESSION:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"group {consumer.group_name} subscribes to {data.topic} by {len(data.sub_string or '')} characters, "
                f"an expression has at most {MAX_EXPRESSION}",
            )


def _sizes(data: HeartbeatData) -> Iterator[tuple[_Group, int]]:
    client = _MEMBER + _CHARACTER * len(data.client_id)
    for producer in data.producer_data_set:
        yield ("producer", producer.group_name), client
    for consumer in data.consumer_data_set:
        size = client + sum(map(_subscription_size, consumer.subscription_data_set))
        yield ("consumer", consumer.group_name), size


def _subscription_size(data: SubscriptionData) -> int:
    text = len(data.topic) + len(data.sub_string or "") + sum(map(len, data.tags_set))
    return _SUBSCRIPTION + _CHARACTER * text + _CODE * (len(data.code_set) + len(data.tags_set))
