"""Requests 50 to 54: change and list the accounts of access control."""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rocket_broker.access.account import ANY, DENY, MIN_KEY, PUB, SUB, Account, Right, parse_permission
from rocket_broker.access.remote_address import AddressPattern
from rocket_broker.access.secret_answers import HIDDEN, may_see_secrets
from rocket_broker.errors import AclFileError, UnknownAccount
from rocket_broker.limits.refusal import Refusal
from rocket_broker.processors.broker_context import BrokerContext
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import (
    DataVersion,
    GetBrokerClusterAclConfigResponseBody,
    PlainAccessConfig,
    encode_body,
)
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from rocket_remoting.wire.topics import RETRY_PREFIX

if TYPE_CHECKING:
    from rocket_broker.access.access_control import AccessControl

__all__ = ["AccountsProcessor"]

logger = logging.getLogger(__name__)

_NAMES = {DENY: "DENY", PUB: "PUB", SUB: "SUB", ANY: "PUB|SUB"}


class AccountsProcessor:
    """Changes the files of accounts, and answers what they have."""

    def __init__(self, context: BrokerContext) -> None:
        self._access = context.accounts
        self._advice = "access control is off on this broker: start it with aclEnable=true"
        if context.access is not None and context.accounts is None:
            self._advice = "this broker has users and policies instead of accounts: use createUser and createAcl"
        self._settings = context.settings
        self._address = context.address

    def update(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_CREATE_ACL_CONFIG (50): change an account, or create it. Values that are left out stay."""
        header = command.header(CreateAccessConfigRequestHeader)
        failed = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        for name, key in (("accessKey", header.access_key), ("secretKey", header.secret_key)):
            if key is None or len(key) < MIN_KEY:
                raise Refusal(failed, f"The {name} must have at least {MIN_KEY} characters")
        values: dict[str, object] = {"secretKey": header.secret_key}
        if header.white_remote_address is not None:
            values["whiteRemoteAddress"] = header.white_remote_address
        values["admin"] = header.admin
        for name, text in (
            ("defaultTopicPerm", header.default_topic_perm),
            ("defaultGroupPerm", header.default_group_perm),
        ):
            if text:
                _check_permission(text, name)
                values[name] = text.strip()
        for name, listed in (("topicPerms", header.topic_perms), ("groupPerms", header.group_perms)):
            if listed is not None:
                values[name] = list(_rights(listed, name))
        access = self._required(failed)
        try:
            access.update_account(header.access_key, values)
        except AclFileError as error:
            raise Refusal(failed, str(error)) from None
        logger.info("account %s changed by %s", header.access_key, connection.remote_address, extra=connection.log_peer)
        return RemotingCommand.response(command)

    def delete(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """DELETE_ACL_CONFIG (51): delete an account."""
        access_key = command.header(DeleteAccessConfigRequestHeader).access_key
        failed = ResponseCode.DELETE_ACL_CONFIG_FAILED
        try:
            self._required(failed).delete_account(access_key)
        except UnknownAccount:
            raise Refusal(failed, f"No acl config for {access_key}") from None
        except AclFileError as error:
            raise Refusal(failed, str(error)) from None
        logger.info("account %s deleted by %s", access_key, connection.remote_address, extra=connection.log_peer)
        return RemotingCommand.response(command)

    def update_white_list(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (53): replace the white list of a file of accounts."""
        header = command.header(UpdateGlobalWhiteAddrsConfigRequestHeader)
        failed = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        addresses = [part.strip() for part in header.global_white_addrs.split(",") if part.strip()]
        path = Path(header.acl_file_full_path) if header.acl_file_full_path else None
        try:
            self._required(failed).update_white_list(addresses, path)
        except (AclFileError, ValueError, OSError) as error:  # a path with a null character, or a loop of links
            raise Refusal(failed, str(error)) from None
        logger.info("white list changed by %s: %s", connection.remote_address, addresses, extra=connection.log_peer)
        return RemotingCommand.response(command)

    def version(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_CLUSTER_ACL_INFO (52): the versions of the files of accounts."""
        access = self._required(ResponseCode.SYSTEM_ERROR)
        versions = access.rules.versions
        default = versions.get(access.default_file, DataVersion(timestamp=0, counter=0))
        every = {str(path): msgspec.Raw(encode_body(version)) for path, version in versions.items()}
        answer = GetBrokerAclConfigResponseHeader(
            version=encode_body(default).decode(),
            all_acl_file_version=msgspec.json.encode(every).decode(),
            broker_name=self._settings.broker_name,
            broker_addr=self._address,
            cluster_name=self._settings.broker_cluster_name,
        )
        return RemotingCommand.response(command, header=answer)

    def config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_CLUSTER_ACL_CONFIG (54): all white lists and accounts; with their secret keys for a slave only."""
        shows = may_see_secrets(command, self._settings)
        rules = self._required(ResponseCode.SYSTEM_ERROR).rules
        body = GetBrokerClusterAclConfigResponseBody(
            global_white_addrs=[pattern.text for pattern in rules.white_list],
            plain_access_configs=[_described(account, shows=shows) for account in rules.accounts.values()],
        )
        return RemotingCommand.response(command, body=encode_body(body))

    def _required(self, failed: ResponseCode) -> "AccessControl":
        if self._access is None:
            raise Refusal(failed, self._advice)
        return self._access


def _check_permission(text: str, name: str) -> None:
    if parse_permission(text) is None:
        raise Refusal(
            ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
            f"{name}: {text!r} is not a permission; expected DENY, PUB, SUB or PUB|SUB",
        )


def _rights(listed: str, name: str) -> Iterator[str]:
    for each in filter(None, map(str.strip, listed.split(","))):
        resource, equals, permission = each.partition("=")
        if not resource.strip() or not equals:
            raise Refusal(
                ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
                f"{name}: {each!r}: expected name=permission, such as orders=PUB|SUB",
            )
        _check_permission(permission, name)
        yield each


def _described(account: Account, *, shows: bool) -> PlainAccessConfig:
    rights = [(Right(resource, permission), _NAMES[permission]) for resource, permission in account.rights.items()]
    return PlainAccessConfig(
        access_key=account.access_key,
        secret_key=account.secret_key if shows else HIDDEN,
        white_remote_address=_joined(account.white_list),
        admin=account.admin,
        default_topic_perm=_NAMES[account.default_topic_permission],
        default_group_perm=_NAMES[account.default_group_permission],
        topic_perms=[f"{right.resource}={name}" for right, name in rights if not right.is_group],
        group_perms=[f"{right.resource.removeprefix(RETRY_PREFIX)}={name}" for right, name in rights if right.is_group],
    )


def _joined(patterns: Iterable[AddressPattern]) -> str:
    return ",".join(pattern.text for pattern in patterns)
