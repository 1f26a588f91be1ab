"""Requests 3006 to 3010: change and list the policies of users of 5.3's access control."""

import logging

import msgspec

from rocket_broker.access.needs import refused
from rocket_broker.access.policies import (
    InvalidPolicy,
    PolicyType,
    checked_policies,
    named,
    spelled_pattern,
    user_of,
)
from rocket_broker.limits.refusal import Refusal
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.processors.users import directory_of
from rocket_broker.requests.request_body import read_body
from rocket_broker.tables.acl_table import MAX_ACL
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import AclInfo, PolicyEntryInfo, PolicyInfo
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    CreateAclRequestHeader,
    DeleteAclRequestHeader,
    GetAclRequestHeader,
    ListAclsRequestHeader,
)

__all__ = ["AclsProcessor", "resources_in"]

logger = logging.getLogger(__name__)


class AclsProcessor:
    """Changes the policies of users, and answers what they are; remarks are Apache's."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def merge(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """AUTH_CREATE_ACL (3006) and AUTH_UPDATE_ACL (3007): add policies to those of a user.

        An entry for the same resource replaces the former one. The subject is the body's, or the header's.
        """
        info = read_body(command, AclInfo, most=MAX_ACL)
        if not info.policies:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The body of acl is null")
        directory = directory_of(self._context)
        name = user_of(info.subject)
        if name is None:
            name = user_of(command.header(CreateAclRequestHeader).subject)
        if name is None:
            raise _no_subject()
        try:
            policies = checked_policies(info.policies)
        except InvalidPolicy as error:
            raise refused(str(error)) from None
        if name not in directory.users:
            raise refused(f"The subject of User:{name} is not exist.")
        directory.acls.merge(f"User:{name}", policies)
        logger.info("policies of %s changed by %s", name, connection.remote_address, extra=connection.log_peer)
        return RemotingCommand.response(command)

    def delete(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """AUTH_DELETE_ACL (3008): delete the entry for a resource; without a resource, all policies of the user."""
        header = command.header(DeleteAclRequestHeader)
        directory = directory_of(self._context)
        name = user_of(header.subject)
        if name is None:
            raise refused("The subject is null.")
        subject = f"User:{name}"
        resource = None
        if (header.resource or "").strip():
            resource = spelled_pattern(header.resource)
            if resource is None:  # Apache's broker deletes all policies then
                raise refused(f"{header.resource} is not a resource: expected one such as Topic:orders, Group:* or *")
        if name not in directory.users:
            raise refused("The subject is not exist.")
        if subject not in directory.acls:
            raise refused("The acl is not exist.")
        if resource is None:
            directory.acls.delete(subject)
        else:
            directory.acls.delete_entry(
                subject, named(PolicyType, header.policy_type) or PolicyType.CUSTOM, str(resource)
            )
        logger.info("policies of %s deleted by %s", name, connection.remote_address, extra=connection.log_peer)
        return RemotingCommand.response(command)

    def acl(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """AUTH_GET_ACL (3009): the policies of a user; no body if it has none."""
        name = user_of(command.header(GetAclRequestHeader).subject)
        directory = directory_of(self._context)
        if name is None:
            raise _no_subject()
        if name not in directory.users:
            raise refused("The subject is not exist.")
        acl = directory.acls.get(f"User:{name}")
        return RemotingCommand.response(command, body=b"" if acl is None else msgspec.json.encode(acl))

    def acls(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """AUTH_LIST_ACL (3010): the policies of all users; no body if there are none.

        As on Apache's broker, the filter of resources does not apply to a user whose name it is part of.
        """
        header = command.header(ListAclsRequestHeader)
        subject_part, resource_part = _part(header.subject_filter), _part(header.resource_filter)
        found: list[AclInfo] = []
        for subject, acl in sorted(directory_of(self._context).acls.configs().items()):
            if subject_part not in subject:
                continue
            shown = acl if resource_part in subject else _only(acl, resource_part)
            if shown.policies:
                found.append(shown)
        return RemotingCommand.response(command, body=msgspec.json.encode(found) if found else b"")


def resources_in(command: RemotingCommand) -> list[str]:
    """Return the resources in the body of a request about policies, for the audit log."""
    policies = read_body(command, AclInfo, most=MAX_ACL).policies or ()
    return [entry.resource or "" for policy in policies for entry in policy.entries or ()]


def _part(text: str | None) -> str:
    return text if text is not None and text.strip() else ""


def _only(acl: AclInfo, resource_part: str) -> AclInfo:
    def entries(policy: PolicyInfo) -> list[PolicyEntryInfo]:
        return [entry for entry in policy.entries or () if resource_part in (entry.resource or "")]

    policies = [PolicyInfo(policy_type=policy.policy_type, entries=entries(policy)) for policy in acl.policies or ()]
    return AclInfo(subject=acl.subject, policies=[policy for policy in policies if policy.entries])


def _no_subject() -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, "the subject is not a user: expected one such as User:alice")
