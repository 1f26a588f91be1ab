"""What requests need: nothing, an account, an administrator, or an account with rights on topics and groups.

The dispatch tables say it for each request code, beside the handler. Rights are read from the same header or body that
the handler reads, so that both see the same names. A request that needs an administrator is an administrative one: the
audit log has it.

The two kinds of access control read the same needs. 4.9's checks `Needs.rights`, which know sending and reading, and
whether the account is an administrator. 5.3's checks `Needs.accesses`: actions on resources. They are those of Apache's
broker; where that checks nothing, they are those of the request's rights, or `Update` on the cluster.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

import msgspec

from rocket_broker.access.account import ANY, PUB, SUB, Right
from rocket_broker.access.policies import OWN_CLUSTER, Access, Action, Resource, ResourceType
from rocket_broker.limits.refusal import Refusal
from rocket_broker.requests.request_body import MAX_HEARTBEAT, MAX_QUEUES_BODY, read_body
from rocket_broker.requests.request_steps import Steps
from rocket_broker.requests.serving import Answer, RequestHandler
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import (
    CreateTopicListRequestBody,
    HeartbeatData,
    LockBatchRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    UnlockBatchRequestBody,
)
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.headers import (
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
)
from rocket_remoting.wire.topics import RETRY_PREFIX, retry_topic

__all__ = [
    "ADMIN",
    "CREATES_GROUP",
    "CREATES_GROUPS",
    "CREATES_TOPIC",
    "CREATES_TOPICS",
    "DELETES_GROUP",
    "DELETES_TOPIC",
    "HEARTBEAT",
    "LOCKS",
    "OPEN",
    "OPERATOR",
    "READS_CLUSTER",
    "RENEWED",
    "SIGNED",
    "UNLOCKS",
    "AccessRefusal",
    "Audit",
    "AuditedRequest",
    "Needs",
    "RequestCheck",
    "Result",
    "Served",
    "access_to",
    "administers",
    "as_producer",
    "asks_about",
    "consumes",
    "handlers_of",
    "on_topic",
    "refused",
    "sends",
]

_GROUPS = ("consumer_group", "group", "compare_group", "src_group", "dest_group")
"""The fields of headers that name consumer groups."""

RightsOf = Callable[[RemotingCommand], Iterable[Right]]
NamesIn = Callable[[RemotingCommand], Iterable[str]]
ResourcesOf = Callable[[RemotingCommand], Iterable[Resource]]

_ACTIONS = {PUB: (Action.PUB,), SUB: (Action.SUB,), ANY: (Action.PUB, Action.SUB)}
"""The actions that a right needs if a request does not say others."""


class RequestCheck(Protocol):
    """Decides which requests are handled; a broker has one or none."""

    @property
    def needs_scope(self) -> bool:
        """Whether signatures that do not cover the request's code are refused."""
        ...

    @property
    def version(self) -> object:
        """An object that is another one after each change of accounts or rights.

        As long as it is the same, requests with the same code, access key and resources from the same connection have
        the same rights, and only their signatures need to be checked.
        """
        ...

    def secret_key(self, access_key: str) -> str:
        """Return the key that signs the requests of an account or user, which exists.

        Raises:
            KeyError: It does not exist.
        """
        ...

    def check(self, connection: Connection, command: RemotingCommand, needs: "Needs") -> bool:
        """Check a request before it is handled; return whether an account or user has signed it.

        Raises:
            AccessRefusal: The sender may not send the request.
            RemoteProtocolError: The request cannot be read.
        """
        ...

    def may_check(self, connection: Connection, access_key: str | None, topic: str, group: str) -> bool:
        """Return whether a client, whose heartbeat this access key has signed, may be asked about transactions.

        Args:
            connection: The client's connection.
            access_key: The account or user.
            topic: The topic of the messages, to which it must be allowed to send.
            group: The producer group. If some account or user has the right to send on a group of this name, only such
                an account or user may be asked; otherwise any, as on Apache's broker.
        """
        ...


def _none(command: RemotingCommand) -> Iterable[Right]:
    return ()


def _no_names(command: RemotingCommand) -> Iterable[str]:
    return ()


class AccessRefusal(Refusal):
    """The sender may not send the request.

    Attributes:
        is_signed: Whether an account has signed the request.
    """

    def __init__(self, remark: str, *, is_signed: bool) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.is_signed = is_signed


class Needs(msgspec.Struct, frozen=True):
    """What a request needs.

    Attributes:
        account: Whether the request must be signed by an account.
        admin: Whether the account must be an administrator.
        local: Whether, at a server without access control, only clients on the server's machine may send the request.
        rights: Returns the rights that the account must have for the request. It raises what the handler would raise
            if the request cannot be read.
        is_renewed: Whether brokers send the request again and again: the audit log has it once an hour.
        names: Returns the names in the request's body, for the audit log. It raises what the handler would raise if the
            body cannot be read.
        actions: For 5.3's access control: the actions, one of which a policy must allow on each resource. Without
            them, those of the rights.
        resources: For 5.3's access control: returns the resources of the request. Without it, those of the rights.
    """

    account: bool = True
    admin: bool = False
    local: bool = False
    rights: RightsOf = _none
    is_renewed: bool = False
    names: NamesIn = _no_names
    actions: tuple[Action, ...] = ()
    resources: ResourcesOf | None = None

    def naming(self, names: NamesIn) -> "Needs":
        """Return these needs for a request with names in its body."""
        return msgspec.structs.replace(self, names=names)

    def accesses(self, command: RemotingCommand) -> Iterator[Access]:
        """Yield the accesses that 5.3's policies must allow."""
        if self.resources is not None:
            for resource in self.resources(command):
                yield Access(resource, self.actions)
        else:
            for right in self.rights(command):
                yield access_to(right, self.actions)

    def and_rights(self, more: RightsOf) -> "Needs":
        """Return these needs with further rights."""
        first = self.rights

        def rights(command: RemotingCommand) -> Iterator[Right]:
            yield from first(command)
            yield from more(command)

        return msgspec.structs.replace(self, rights=rights)


def access_to(right: Right, actions: tuple[Action, ...] = ()) -> Access:
    """Return the access that stands for a right of 4.9; without actions, those of its permission."""
    if right.is_group:
        resource = Resource(ResourceType.GROUP, right.resource.removeprefix(RETRY_PREFIX))
    else:
        resource = Resource(ResourceType.TOPIC, right.resource)
    return Access(resource, actions or _ACTIONS[right.permission])


def _cluster(command: RemotingCommand) -> Iterable[Resource]:
    return (OWN_CLUSTER,)


def administers(*actions: Action, resources: ResourcesOf = _cluster) -> Needs:
    """Return the needs of a request of administrators; in 5.3, of users with one of the actions on the resources."""
    return Needs(admin=True, actions=actions, resources=resources)


OPEN = Needs(account=False)
"""Everybody may send the request."""
SIGNED = Needs()
"""Every account may send the request."""
READS_CLUSTER = Needs(actions=(Action.GET,), resources=_cluster)
"""Every account of 4.9 may send the request; users of 5.3 need the action Get on the cluster."""
ADMIN = administers(Action.UPDATE)
"""Administrators may send the request; users of 5.3 need the action Update on the cluster."""
OPERATOR = msgspec.structs.replace(ADMIN, local=True)
"""Administrators may send the request; without access control, everybody on the server's machine."""
RENEWED = msgspec.structs.replace(ADMIN, is_renewed=True)
"""Administrators may send the request. Brokers send it again and again."""


Check = Callable[[Connection, RemotingCommand, Needs], bool]
"""Checks whether a client may send a request, before it is handled. It raises an `AccessRefusal` if not, and returns
whether an account has signed the request."""


Result = RemotingCommand | Exception | None
"""What became of a request: its answer, what its handler has raised, or None if the client has left before the end."""


class AuditedRequest(Protocol):
    """An administrative request that is being handled."""

    def end(self, result: Result) -> None:
        """Record the request with its result."""
        ...


class Audit(Protocol):
    """Records administrative requests, and those that access control refuses."""

    def refused(self, connection: Connection, command: RemotingCommand, needs: Needs, refusal: AccessRefusal) -> None:
        """Record a request that the sender may not send."""
        ...

    def begin(
        self, connection: Connection, command: RemotingCommand, needs: Needs, *, is_signed: bool
    ) -> AuditedRequest:
        """Return an administrative request that is to be recorded when it has been handled."""
        ...

    def leave_open(self, command: RemotingCommand, request: AuditedRequest) -> None:
        """Keep a request that its handler answers later; the handler tells the audit log then."""
        ...


class Served(NamedTuple):
    """How a request code is served: its handler, and what requests need to reach it."""

    handler: RequestHandler
    needs: Needs


def sends(header: type[Header], *, free: str | None = None) -> Needs:
    """Return the needs of a request that sends to the topic in its header; to the topic ``free`` every account may."""
    needs = _rights_in(header, {"topic": PUB})
    if free is None:
        return needs

    def rights(command: RemotingCommand) -> Iterator[Right]:
        yield from (right for right in needs.rights(command) if right.resource != free)

    return Needs(rights=rights)


def consumes(header: type[Header], *actions: Action) -> Needs:
    """Return the needs of a request that reads topics or is about a group: those that its header names.

    Args:
        header: The header.
        actions: One of these actions is needed in 5.3; without them, Sub.
    """
    return _rights_in(header, {"topic": SUB} | dict.fromkeys(_GROUPS, SUB), actions)


def asks_about(header: type[Header], *actions: Action) -> Needs:
    """Return the needs of a request that anybody may send who may send to the topic in its header, or read it.

    Args:
        header: The header.
        actions: One of these actions is needed in 5.3.
    """
    return _rights_in(header, {"topic": ANY}, actions)


def _topic_in(header: type[CreateTopicRequestHeader] | type[DeleteTopicRequestHeader]) -> ResourcesOf:
    def resources(command: RemotingCommand) -> Iterator[Resource]:
        yield from _topics([command.header(header).topic])

    return resources


def _topics(names: Iterable[str]) -> Iterator[Resource]:
    for name in names:
        for right in on_topic(name, PUB):
            yield access_to(right).resource


def _topics_in_body(command: RemotingCommand) -> Iterator[Resource]:
    yield from _topics(config.topic_name for config in read_body(command, CreateTopicListRequestBody).topic_config_list)


def _group_in_header(command: RemotingCommand) -> Iterator[Resource]:
    yield Resource(ResourceType.GROUP, command.header(DeleteSubscriptionGroupRequestHeader).group_name)


def _group_in_body(command: RemotingCommand) -> Iterator[Resource]:
    yield Resource(ResourceType.GROUP, read_body(command, SubscriptionGroupConfig).group_name)


def _groups_in_body(command: RemotingCommand) -> Iterator[Resource]:
    for config in read_body(command, SubscriptionGroupList).group_config_list:
        yield Resource(ResourceType.GROUP, config.group_name)


# Requests of administrators; in 5.3, of users with an action on the topics or groups themselves.
CREATES_TOPIC = administers(Action.CREATE, resources=_topic_in(CreateTopicRequestHeader))
"""Create the topic in the header, or change it."""
CREATES_TOPICS = administers(Action.CREATE, resources=_topics_in_body)
"""Create the topics in the body, or change them."""
DELETES_TOPIC = administers(Action.DELETE, resources=_topic_in(DeleteTopicRequestHeader))
"""Delete the topic in the header."""
CREATES_GROUP = administers(Action.CREATE, resources=_group_in_body)
"""Create the consumer group in the body, or change it."""
CREATES_GROUPS = administers(Action.CREATE, resources=_groups_in_body)
"""Create the consumer groups in the body, or change them."""
DELETES_GROUP = administers(Action.DELETE, resources=_group_in_header)
"""Delete the consumer group in the header."""


def _rights_in(header: type[Header], needed: Mapping[str, int], actions: tuple[Action, ...] = ()) -> Needs:
    """Return the rights that the fields of a header need; a field without a value needs none."""
    found = {name: permission for name, permission in needed.items() if name in header.__struct_fields__}
    if not found:
        raise TypeError(f"{header.__name__} has none of the fields {', '.join(needed)}")

    def rights(command: RemotingCommand) -> Iterator[Right]:
        values = command.header(header)
        for name, permission in found.items():
            value = getattr(values, name)
            yield from on_topic(value, permission) if name == "topic" else _group(value)

    return Needs(rights=rights, actions=actions)


def on_topic(topic: str | None, permission: int) -> Iterator[Right]:
    """Yield the right that a request needs on a topic; none if there is no topic."""
    if topic:
        right = Right(topic, permission)
        # A group's retry topic belongs to the group: whoever may join the group reads it and sends to it.
        yield Right(topic, SUB) if right.is_group else right


def as_producer(group: str | None) -> Iterator[Right]:
    """Yield the right to produce in a group; none if there is no group."""
    if group:
        yield Right(retry_topic(group), PUB)


def _group(group: str | None) -> Iterator[Right]:
    if group:
        yield Right(retry_topic(group), SUB)


def _of_heartbeat(command: RemotingCommand) -> Iterator[Right]:
    for consumer in read_body(command, HeartbeatData, most=MAX_HEARTBEAT).consumer_data_set:
        yield from _group(consumer.group_name)
        for subscription in consumer.subscription_data_set:
            yield from on_topic(subscription.topic, SUB)


def _of_locks(body: type[LockBatchRequestBody] | type[UnlockBatchRequestBody]) -> Needs:
    def rights(command: RemotingCommand) -> Iterator[Right]:
        asked = read_body(command, body, most=MAX_QUEUES_BODY)
        yield from _group(asked.consumer_group)
        for topic in {queue.topic for queue in asked.mq_set}:
            yield from on_topic(topic, SUB)

    return Needs(rights=rights)


HEARTBEAT = Needs(rights=_of_heartbeat)
"""Rights on the consumer groups of a heartbeat, and on the topics that they subscribe to."""
LOCKS = _of_locks(LockBatchRequestBody)
"""Rights on the group and the topics whose queues are to be locked."""
UNLOCKS = _of_locks(UnlockBatchRequestBody)
"""Rights on the group and the topics whose queues are to be unlocked."""


def handlers_of(
    table: Mapping[int, Served],
    check: Check | None,
    audit: Audit | None = None,
    *,
    is_local_enough: Callable[[Connection], bool] = lambda _: True,
) -> dict[int, RequestHandler]:
    """Return the handlers of a dispatch table, each behind the check of its needs.

    Args:
        table: The dispatch table.
        check: Raises an `AccessRefusal` for a request that the sender may not send. None without access control: then
            handlers stand as they are, except those with local needs.
        audit: Records administrative requests and refused ones; None if they are not recorded.
        is_local_enough: Returns whether a client may send requests with local needs, where there is no access control.
    """

    def check_place(connection: Connection, command: RemotingCommand, needs: Needs) -> bool:
        if not is_local_enough(connection):
            raise refused(
                f"only clients on the server's machine may send {command.name}: turn access control on "
                "(aclEnable=true), or set remoteAdministrationEnable=true"
            )
        return False

    handlers: dict[int, RequestHandler] = {}
    for code, served in table.items():
        guard = check if check is not None else check_place if served.needs.local else None
        if audit is not None and served.needs.admin:
            handlers[code] = _recorded(guard, audit, served)
        else:
            handlers[code] = served.handler if guard is None else _checked(guard, audit, served)
    return handlers


def refused(remark: str, *, is_signed: bool = False) -> AccessRefusal:
    """Return the refusal of a request that the sender may not send."""
    return AccessRefusal(remark, is_signed=is_signed)


def _checked(check: Check, audit: Audit | None, served: Served) -> RequestHandler:
    handler, needs = served

    def handle(connection: Connection, command: RemotingCommand) -> Answer:
        try:
            check(connection, command, needs)
        except AccessRefusal as refusal:
            if audit is not None:
                audit.refused(connection, command, needs, refusal)
            raise
        return handler(connection, command)

    return handle


def _recorded(check: Check | None, audit: Audit, served: Served) -> RequestHandler:
    handler, needs = served

    def handle(connection: Connection, command: RemotingCommand) -> Answer:
        try:
            is_signed = check is not None and check(connection, command, needs)
        except AccessRefusal as refusal:
            audit.refused(connection, command, needs, refusal)
            raise
        request = audit.begin(connection, command, needs, is_signed=is_signed)
        try:
            answer = handler(connection, command)
        except Exception as error:
            request.end(error)
            raise
        if answer is None:
            audit.leave_open(command, request)
            return None
        if isinstance(answer, RemotingCommand):
            request.end(answer)
            return answer
        return _recorded_steps(request, answer)

    return handle


def _recorded_steps(request: AuditedRequest, steps: Steps) -> Steps:
    try:
        answer = yield from steps
    except Exception as error:
        request.end(error)
        raise
    except GeneratorExit:
        request.end(None)
        raise
    request.end(answer)
    return answer
