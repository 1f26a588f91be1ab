"""How much clients may tell in heartbeats: each of them, and all together.

What a heartbeat tells is kept until the client leaves the group or its connection ends, so what it takes is
counted by connection and group. A heartbeat beyond a limit registers nothing: the client hears why, and its
connection goes on, with the groups that it told before.
"""

from collections.abc import Generator, Iterator

from rocket_broker.filter.subscription import MAX_EXPRESSION
from rocket_broker.limits.refusal import Refusal, check_group_name
from rocket_broker.limits.shares import Shares
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import ConsumerData, HeartbeatData, SubscriptionData
from rocket_remoting.wire.codes import ResponseCode

__all__ = ["MAX_CLIENT_ID", "MAX_GROUPS", "MAX_SUBSCRIPTIONS", "HeartbeatLimits"]

MAX_GROUPS = 1024
"""Of one connection, producers' and consumers' together."""
MAX_SUBSCRIPTIONS = 4096
"""Of one consumer group."""
MAX_CLIENT_ID = 1024
MAX_NAME = 1024
"""Characters of a topic's name: one that is longer does not exist."""

MAX_OF_CONNECTION = 8 * 1024 * 1024
MAX_TOGETHER = 256 * 1024 * 1024
"""Bytes, as `_sizes` reckons them. One address has a quarter of those of all clients."""

_MEMBER = 1024
_SUBSCRIPTION = 768
_CODE = 128
_CHARACTER = 4
"""What the tables take for each, measured roughly: a subscription's text is kept by the group and by the guard."""

_Group = tuple[str, str]


class HeartbeatLimits:
    """What every connection has told."""

    def __init__(self) -> None:
        self._sizes: dict[Connection, dict[_Group, int]] = {}
        self._shares = Shares("bytes of subscriptions", lambda: MAX_TOGETHER)
        self._together = 0

    def admit(self, connection: Connection, data: HeartbeatData) -> Generator[None, None, None]:
        """Count what the heartbeat tells, in steps.

        Raises:
            Refusal: It tells too much, or a name in it is illegal; nothing is counted then.
        """
        yield from _check(data)
        told: dict[_Group, int] = {}
        for group, size in _sizes(data):
            told[group] = size
            yield
        known = self._sizes.get(connection, {})
        sizes = known | told
        if len(sizes) > MAX_GROUPS:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"a client belongs to at most {MAX_GROUPS} groups, this would be {len(sizes)}: unregister from others",
            )
        if known.keys() >= told.keys() and all(known[group] == size for group, size in told.items()):
            return
        before, after = sum(known.values()), sum(sizes.values())
        if after > MAX_OF_CONNECTION:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"the client's subscriptions take some {after} bytes, at most {MAX_OF_CONNECTION} are kept for one",
            )
        if self._together + after - before > MAX_TOGETHER:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"broker busy: the subscriptions of all clients take {self._together} of {MAX_TOGETHER} bytes",
            )
        owner = connection.counted_as
        if after > before:
            self._shares.check(after - before, owner)
        self._shares.count(after - before, owner)
        self._together += after - before
        self._sizes[connection] = sizes

    def left(self, connection: Connection, *, producer_group: str | None, consumer_group: str | None) -> None:
        """Forget the groups that a client left."""
        sizes = self._sizes.get(connection, {})
        for group in (("producer", producer_group or ""), ("consumer", consumer_group or "")):
            self._give_back(connection, sizes.pop(group, 0))

    def connection_closed(self, connection: Connection) -> None:
        """Forget all that the connection told."""
        self._give_back(connection, sum(self._sizes.pop(connection, {}).values()))

    def _give_back(self, connection: Connection, size: int) -> None:
        self._shares.count(-size, connection.counted_as)
        self._together -= size

    def __repr__(self) -> str:
        return f"HeartbeatLimits({len(self._sizes)} connections, some {self._together} bytes)"


def _check(data: HeartbeatData) -> Generator[None, None, None]:
    if len(data.client_id) > MAX_CLIENT_ID:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"the client id has {len(data.client_id)} characters, at most {MAX_CLIENT_ID} are allowed",
        )
    if len(data.consumer_data_set) + len(data.producer_data_set) > MAX_GROUPS:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"a client belongs to at most {MAX_GROUPS} groups")
    subscriptions = sum(len(consumer.subscription_data_set) for consumer in data.consumer_data_set)
    most = MAX_OF_CONNECTION // _SUBSCRIPTION
    if subscriptions > most:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"the client has {subscriptions} subscriptions, at most {most} are kept for one",
        )
    for producer in data.producer_data_set:
        check_group_name(producer.group_name)
        yield
    for consumer in data.consumer_data_set:
        check_group_name(consumer.group_name)
        _check_subscriptions(consumer)
        yield


def _check_subscriptions(consumer: ConsumerData) -> None:
    told = consumer.subscription_data_set
    if len(told) > MAX_SUBSCRIPTIONS:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"group {consumer.group_name} subscribes to {len(told)} topics, at most {MAX_SUBSCRIPTIONS} are kept",
        )
    for data in told:
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
