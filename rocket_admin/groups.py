"""Consumer groups: their names, settings, members and lag; how they are created, changed and deleted."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from rocket_admin.broker_answers import BrokerAnswers, BrokerFailure, ask_masters
from rocket_admin.errors import GroupNotFoundError
from rocket_admin.offsets import GroupQueue, group_queues, lag_of
from rocket_admin.ordered_results import ordered_results
from rocket_admin.versions import version_text
from rocket_client import Admin
from rocket_remoting import RemotingError
from rocket_remoting.wire.bodies import Connection, ConsumerConnection, ConsumeType, SubscriptionGroupConfig
from rocket_remoting.wire.topics import (
    DEFAULT_CONSUMER_GROUP,
    TOOLS_CONSUMER_GROUP,
    is_retry_topic,
    is_system_group,
    validate_group,
)

__all__ = [
    "Group",
    "GroupDetails",
    "GroupNames",
    "GroupOnBroker",
    "Member",
    "Members",
    "create_group",
    "group_members",
    "group_names",
    "is_own_group",
    "list_groups",
    "require_group",
    "same_expression",
    "show_group",
    "update_group",
]

GROUPS_AT_ONCE = 32
"""Groups that are asked about at the same time."""

_OWN_GROUPS = frozenset(
    {
        TOOLS_CONSUMER_GROUP,
        DEFAULT_CONSUMER_GROUP,
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_PULL",
        "CID_SYS_RMQ_TRANS",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "SELF_TEST_CONSUMER_GROUP",
    }
)
"""Groups that Apache's brokers make for themselves."""


class GroupNames(msgspec.Struct, frozen=True, kw_only=True):
    """The groups of a cluster.

    Attributes:
        names: The names, sorted.
        failures: The brokers that did not answer; groups that only they have are missing.
    """

    names: tuple[str, ...]
    failures: tuple[BrokerFailure, ...]


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A group in a list.

    Attributes:
        group: The name.
        members: Connected members; absent if no broker said how many.
        lag: Messages that the group has not consumed yet in the topics that it has committed offsets in, its retry
            topic among them; absent if it is not known for each queue.
        model: `clustering` or `broadcasting`; absent without members.
        kind: `push`, `pull` or `pop`; absent without members.
    """

    group: str
    members: int | None = None
    lag: int | None = None
    model: str | None = None
    kind: str | None = None


class GroupOnBroker(msgspec.Struct, frozen=True, kw_only=True):
    """A group's settings on one broker.

    Attributes:
        broker: The broker's name.
        consume_enabled: Whether its members get messages.
        broadcast_enabled: Whether members may be broadcasting ones.
        from_min_enabled: Whether a new group may begin at the oldest message.
        ordered: Whether it is an ordered group, by the brokers of 5.x.
        retry_queues: Queues of its retry topic.
        retry_max_times: Redeliveries before a message becomes a dead letter.
    """

    broker: str
    consume_enabled: bool
    broadcast_enabled: bool
    from_min_enabled: bool
    ordered: bool
    retry_queues: int
    retry_max_times: int


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """A group's subscription to a topic.

    Attributes:
        topic: The topic.
        expression: Tags such as `a || b`, or an SQL92 expression; `*` for everything.
        kind: `TAG` or `SQL92`.
    """

    topic: str
    expression: str
    kind: str


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A connected member of a group.

    Attributes:
        client_id: Its client id.
        address: The address that it is connected from.
        language: Its programming language, such as `JAVA` or `PYTHON`.
        version: The version of the protocol that it speaks, such as `V4_9_7`.
        queues: The queues that it consumes, as `topic broker:number`; absent if it did not say.
        cached: Messages that it has pulled and not finished; absent if it did not say.
        subscriptions: What it subscribes to itself, the group's retry topic left out; absent if it did not say.
    """

    client_id: str
    address: str
    language: str
    version: str
    queues: tuple[str, ...] | None = None
    cached: int | None = None
    subscriptions: tuple[Subscription, ...] | None = None


class Members(msgspec.Struct, frozen=True, kw_only=True):
    """The members of a group, and what the group subscribes to.

    Attributes:
        members: The members, sorted by client id.
        subscriptions: The subscriptions, sorted by topic; empty without members.
        model: `clustering` or `broadcasting`; absent without members.
        kind: `push`, `pull` or `pop`; absent without members.
        failures: The brokers that did not answer; members that are connected only there are missing.
    """

    members: tuple[Member, ...]
    subscriptions: tuple[Subscription, ...]
    model: str | None
    kind: str | None
    failures: tuple[BrokerFailure, ...]


class GroupDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about one group.

    Attributes:
        group: The name.
        members: Connected members; absent if a broker did not answer and no other knows one.
        model: `clustering` or `broadcasting`; absent without members.
        kind: `push`, `pull` or `pop`; absent without members.
        lag: Messages that it has not consumed yet in all queues; absent if it is not known for each.
        topics: Its lag by topic: those that it subscribes to, and those that it has committed offsets in.
        subscriptions: What its members subscribe to.
        brokers: The settings on each broker that answered.
        failures: The brokers that did not answer.
    """

    group: str
    members: int | None
    model: str | None
    kind: str | None
    lag: int | None
    topics: tuple["TopicLag", ...]
    subscriptions: tuple[Subscription, ...]
    brokers: tuple[GroupOnBroker, ...]
    failures: tuple[BrokerFailure, ...]


class TopicLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is behind in one topic.

    Attributes:
        topic: The topic.
        lag: Messages that the group has not consumed yet; absent if it is not known for each queue.
        queues: Readable queues of the topic that the brokers told; absent before the group has committed an offset.
    """

    topic: str
    lag: int | None = None
    queues: int | None = None


def is_own_group(name: str) -> bool:
    """Return whether brokers make the group for themselves."""
    return is_system_group(name) or name in _OWN_GROUPS


def same_expression(kind: str | None, text: str | None) -> str:
    """Return the expression of a subscription in one form, however its tags are ordered and spaced.

    Args:
        kind: `TAG`, `SQL92`, or empty for tags.
        text: The expression.
    """
    if kind not in (None, "", "TAG"):
        return text or ""
    return " || ".join(sorted(tag.strip() for tag in (text or "*").split("||")))


async def group_names(admin: Admin, *, with_system: bool = False) -> GroupNames:
    """Return the names of all groups.

    Args:
        admin: A running admin.
        with_system: Whether to return the brokers' own groups, too.

    Raises:
        NoBrokerError: No master is registered.
    """
    found = await ask_masters(admin, admin.group_configs)
    names = set[str]().union(*found.answers.values())
    wanted = (name for name in names if with_system or not is_own_group(name))
    return GroupNames(names=tuple(sorted(wanted)), failures=found.failures)


async def list_groups(admin: Admin, names: Iterable[str]) -> AsyncGenerator[Group, None]:
    """Yield groups with their members and lag, in the order of the names, as brokers answer."""
    masters = await admin.masters()

    async def of(name: str) -> Group:
        return await _summary(admin, name, masters)

    async with aclosing(ordered_results(of, names, at_once=GROUPS_AT_ONCE)) as groups:
        async for group in groups:
            yield group


async def require_group(admin: Admin, group: str) -> None:
    """Return if a broker has the group, or if not all brokers answered.

    Raises:
        GroupNotFoundError: No broker has it.
    """
    await _configs(admin, group)


async def show_group(admin: Admin, group: str) -> GroupDetails:
    """Return the settings, members and lag of a group.

    Raises:
        GroupNotFoundError: No broker has the group.
    """
    configs, failures = await _configs(admin, group)
    members = await _connections(admin, group)
    progress = await group_queues(admin, group)
    model, kind = _model_and_kind(members.answers.values())
    subscriptions = _subscriptions(members.answers.values())
    known = {queue.topic for queue in progress.queues}
    topics = [*_topic_lags(progress.queues), *(TopicLag(topic=s.topic) for s in subscriptions if s.topic not in known)]
    gaps = tuple(dict.fromkeys((*failures, *members.failures, *progress.failures)))
    return GroupDetails(
        group=group,
        members=_count(members.answers.values(), members.failures),
        model=model,
        kind=kind,
        lag=None if gaps else lag_of(progress.queues),
        topics=tuple(sorted(topics, key=lambda topic: topic.topic)),
        subscriptions=subscriptions,
        brokers=tuple(_on_broker(name, config) for name, config in configs.items()),
        failures=gaps,
    )


async def group_members(admin: Admin, group: str) -> Members:
    """Return the connected members of a group, each with the queues that it consumes.

    Raises:
        GroupNotFoundError: No broker has the group, and no member is connected.
    """
    found = await _connections(admin, group)
    where = await admin.masters()
    connected = {
        connection.client_id: (broker, connection)
        for broker, answer in found.answers.items()
        if answer is not None
        for connection in answer.connection_set
    }
    if not connected:
        await _configs(admin, group)
    members = await asyncio.gather(
        *(
            _member(admin, where[broker], group, connection)
            for _, (broker, connection) in sorted(connected.items(), key=lambda item: item[0])
        )
    )
    model, kind = _model_and_kind(found.answers.values())
    return Members(
        members=tuple(members),
        subscriptions=_subscriptions(found.answers.values()),
        model=model,
        kind=kind,
        failures=found.failures,
    )


async def create_group(
    admin: Admin, group: str, *, changes: Mapping[str, object], brokers: Collection[str] = ()
) -> None:
    """Create a group.

    Args:
        admin: A running admin.
        group: The name.
        changes: Fields of `SubscriptionGroupConfig` that shall not have their defaults.
        brokers: Names of brokers; by default all.

    Raises:
        ValueError: The group exists, its name is illegal, or a broker is not registered.
    """
    validate_group(group)
    found = await ask_masters(admin, admin.group_configs, brokers or None)
    having = [name for name, configs in found.answers.items() if group in configs]
    if having:
        raise ValueError(
            f"group {group} exists already on {', '.join(having)}: change it with `streamkit group update {group}`"
        )
    await admin.create_group(SubscriptionGroupConfig(group_name=group, **changes), brokers=brokers or None)  # type: ignore[arg-type]


async def update_group(
    admin: Admin, group: str, *, changes: Mapping[str, object], brokers: Collection[str] = ()
) -> tuple[GroupOnBroker, ...]:
    """Change settings of a group on the brokers that have it; return the settings on each afterwards.

    Args:
        admin: A running admin.
        group: The group.
        changes: Fields of `SubscriptionGroupConfig`; the others stay as they are.
        brokers: Names of brokers; by default all that have the group.

    Raises:
        GroupNotFoundError: The group does not exist on these brokers.
        ValueError: A broker did not answer; nothing was changed.
    """
    configs, failures = await _configs(admin, group, brokers)
    if failures:
        raise ValueError(f"group {group} was not changed: broker {failures[0].broker_name}: {failures[0].reason}")
    for name, config in configs.items():
        for field, value in changes.items():
            setattr(config, field, value)
        await admin.create_group(config, brokers=[name])
    return tuple(_on_broker(name, config) for name, config in configs.items())


async def _configs(
    admin: Admin, group: str, brokers: Collection[str] = ()
) -> tuple[dict[str, SubscriptionGroupConfig], tuple[BrokerFailure, ...]]:
    """Return the group's settings by broker, and the brokers that did not answer.

    Raises:
        GroupNotFoundError: No broker that answered has the group.
    """
    # Brokers of 4.9 have no request for the settings of one group.
    found = await ask_masters(admin, admin.group_configs, brokers or None)
    configs = {name: table[group] for name, table in found.answers.items() if group in table}
    if not configs and not found.failures:
        raise GroupNotFoundError(group)
    return configs, found.failures


async def _connections(
    admin: Admin, group: str, masters: Mapping[str, str] | None = None
) -> BrokerAnswers[ConsumerConnection | None]:
    return await ask_masters(admin, lambda address: admin.members_at(address, group), masters=masters)


async def _summary(admin: Admin, group: str, masters: Mapping[str, str]) -> Group:
    members, progress = await asyncio.gather(
        _connections(admin, group, masters), group_queues(admin, group, masters=masters)
    )
    model, kind = _model_and_kind(members.answers.values())
    return Group(
        group=group,
        members=_count(members.answers.values(), members.failures),
        lag=None if progress.failures else lag_of(progress.queues),
        model=model,
        kind=kind,
    )


async def _member(admin: Admin, address: str, group: str, connection: Connection) -> Member:
    member = Member(
        client_id=connection.client_id,
        address=connection.client_addr,
        language=connection.language,
        version=version_text(connection.version),
    )
    try:
        state = await admin.member_state(address, group, connection.client_id)
    except RemotingError:  # pull consumers of Java and clients in other languages do not answer this
        return member
    queues = sorted((queue.topic, queue.broker_name, queue.queue_id) for queue in state.mq_table)
    return replace(
        member,
        queues=tuple(f"{topic} {broker}:{number}" for topic, broker, number in queues),
        cached=sum(queue.cached_msg_count for queue in state.mq_table.values()),
        subscriptions=tuple(
            Subscription(
                topic=each.topic,
                expression=same_expression(each.expression_type, each.sub_string),
                kind=each.expression_type or "TAG",
            )
            for each in sorted(state.subscription_set, key=lambda each: each.topic)
            if not is_retry_topic(each.topic)
        ),
    )


def _count(answers: Iterable[ConsumerConnection | None], failures: Sequence[BrokerFailure]) -> int | None:
    """Return the number of members; None if it is 0 as far as known, but not all brokers answered."""
    ids = {connection.client_id for answer in answers if answer is not None for connection in answer.connection_set}
    return None if failures and not ids else len(ids)


def _model_and_kind(answers: Iterable[ConsumerConnection | None]) -> tuple[str | None, str | None]:
    """Return the message model of a group, and how its members get messages; None each without members."""
    for answer in answers:
        if answer is not None:
            model = None if answer.message_model is None else answer.message_model.lower()
            return model, None if answer.consume_type is None else _KINDS[answer.consume_type]
    return None, None


_KINDS = {ConsumeType.CONSUME_PASSIVELY: "push", ConsumeType.CONSUME_ACTIVELY: "pull", ConsumeType.CONSUME_POP: "pop"}


def _subscriptions(answers: Iterable[ConsumerConnection | None]) -> tuple[Subscription, ...]:
    found = {
        data.topic: Subscription(
            topic=data.topic, expression=data.sub_string or "*", kind=data.expression_type or "TAG"
        )
        for answer in answers
        if answer is not None
        for data in answer.subscription_table.values()
    }
    return tuple(found[topic] for topic in sorted(found))


def _topic_lags(queues: Iterable[GroupQueue]) -> list[TopicLag]:
    by_topic: dict[str, list[GroupQueue]] = {}
    for queue in queues:
        by_topic.setdefault(queue.topic, []).append(queue)
    return [TopicLag(topic=topic, lag=lag_of(found), queues=len(found)) for topic, found in by_topic.items()]


def _on_broker(name: str, config: SubscriptionGroupConfig) -> GroupOnBroker:
    return GroupOnBroker(
        broker=name,
        consume_enabled=config.consume_enable,
        broadcast_enabled=config.consume_broadcast_enable,
        from_min_enabled=config.consume_from_min_enable,
        ordered=config.consume_message_orderly,
        retry_queues=config.retry_queue_nums,
        retry_max_times=config.retry_max_times,
    )
