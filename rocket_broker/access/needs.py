"""What requests need: nothing, an account, an administrator, or an account with rights on topics and groups.

The dispatch tables say it for each request code, beside the handler. Rights are read from the same header or body that
the handler reads, so that both see the same names.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rocket_broker.access.account import ANY, PUB, SUB, Right
from rocket_broker.limits.refusal import Refusal
from rocket_broker.requests.request_body import MAX_HEARTBEAT, MAX_QUEUES_BODY, read_body
from rocket_broker.requests.serving import Answer, RequestHandler
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import HeartbeatData, LockBatchRequestBody, UnlockBatchRequestBody
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.topics import retry_topic

__all__ = [
    "ADMIN",
    "HEARTBEAT",
    "LOCKS",
    "OPEN",
    "OPERATOR",
    "SIGNED",
    "UNLOCKS",
    "Needs",
    "Served",
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


def _none(command: RemotingCommand) -> Iterable[Right]:
    return ()


@dataclass(frozen=True, slots=True)
class Needs:
    """What a request needs.

    Attributes:
        account: Whether the request must be signed by an account.
        admin: Whether the account must be an administrator.
        local: Whether, at a server without access control, only clients on the server's machine may send the request.
        rights: Returns the rights that the account must have for the request. It raises what the handler would raise
            if the request cannot be read.
    """

    account: bool = True
    admin: bool = False
    local: bool = False
    rights: RightsOf = _none

    def and_rights(self, more: RightsOf) -> "Needs":
        """Return these needs with further rights."""
        first = self.rights

        def rights(command: RemotingCommand) -> Iterator[Right]:
            yield from first(command)
            yield from more(command)

        return Needs(self.account, self.admin, self.local, rights)


OPEN = Needs(account=False)
"""Everybody may send the request."""
SIGNED = Needs()
"""Every account may send the request."""
ADMIN = Needs(admin=True)
"""Administrators may send the request."""
OPERATOR = Needs(admin=True, local=True)
"""Administrators may send the request; without access control, everybody on the server's machine."""


Check = Callable[[Connection, RemotingCommand, Needs], None]
"""Checks whether a client may send a request, before it is handled."""


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


def consumes(header: type[Header]) -> Needs:
    """Return the needs of a request that reads topics or is about a group: those that its header names."""
    return _rights_in(header, {"topic": SUB} | dict.fromkeys(_GROUPS, SUB))


def asks_about(header: type[Header]) -> Needs:
    """Return the needs of a request that anybody may send who may send to the topic in its header, or read it."""
    return _rights_in(header, {"topic": ANY})


def _rights_in(header: type[Header], needed: Mapping[str, int]) -> Needs:
    """Return the rights that the fields of a header need; a field without a value needs none."""
    found = {name: permission for name, permission in needed.items() if name in header.__struct_fields__}
    if not found:
        raise TypeError(f"{header.__name__} has none of the fields {', '.join(needed)}")

    def rights(command: RemotingCommand) -> Iterator[Right]:
        values = command.header(header)
        for name, permission in found.items():
            value = getattr(values, name)
            yield from on_topic(value, permission) if name == "topic" else _group(value)

    return Needs(rights=rights)


def on_topic(topic: str | None, permission: int) -> Iterator[Right]:
    """Yield the right that a request needs on a topic; none if there is no topic."""
    if topic:
        right = Right(topic, permission)
        # A group's retry topic belongs to the group: whoever may join the group reads it and sends to it.
        yield Right(topic, SUB) if right.is_group else right


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
    table: Mapping[int, Served], check: Check | None, *, is_local_enough: Callable[[Connection], bool] = lambda _: True
) -> dict[int, RequestHandler]:
    """Return the handlers of a dispatch table, each behind the check of its needs.

    Args:
        table: The dispatch table.
        check: Raises a `Refusal` for a request that the sender may not send. None without access control: then handlers
            stand as they are, except those with local needs.
        is_local_enough: Returns whether a client may send requests with local needs, where there is no access control.
    """
    if check is not None:
        return {code: _checked(check, served) for code, served in table.items()}
    return {
        code: _local(served.handler, is_local_enough) if served.needs.local else served.handler
        for code, served in table.items()
    }


def refused(remark: str) -> Refusal:
    """Return the refusal of a request that the sender may not send."""
    return Refusal(ResponseCode.NO_PERMISSION, remark)


def _checked(check: Check, served: Served) -> RequestHandler:
    handler, needs = served

    def handle(connection: Connection, command: RemotingCommand) -> Answer:
        check(connection, command, needs)
        return handler(connection, command)

    return handle


def _local(handler: RequestHandler, is_local_enough: Callable[[Connection], bool]) -> RequestHandler:
    def handle(connection: Connection, command: RemotingCommand) -> Answer:
        if not is_local_enough(connection):
            raise refused(
                f"only clients on the server's machine may send {command.name}: turn access control on "
                "(aclEnable=true), or set remoteAdministrationEnable=true"
            )
        return handler(connection, command)

    return handle
