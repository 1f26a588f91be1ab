"""The slave's copy of its master's accounts, or of its users and their policies.

Apache's slaves copy none: its tools change the accounts of each broker of a cluster. The requests are those of the
tools, so Apache's masters answer them too. A master of this project shows secrets only if the request is signed by the
account with which it signs its own requests (`may_see_secrets`).
"""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

import msgspec

from rocket_broker.access.policies import checked_policies
from rocket_broker.access.secret_answers import HIDDEN
from rocket_broker.access.user_directory import UserDirectory
from rocket_broker.errors import AclFileError
from rocket_broker.replication.asking import ask
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import (
    AclInfo,
    GetBrokerClusterAclConfigResponseBody,
    PlainAccessConfig,
    UserInfo,
    decode_body,
)
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.errors import ResponseError
from rocket_remoting.wire.headers import GetAclConfigRequestHeader, ListAclsRequestHeader, ListUsersRequestHeader

if TYPE_CHECKING:
    from rocket_broker.access.access_control import AccessControl

__all__ = ["AccountCopy"]

logger = logging.getLogger(__name__)

T = TypeVar("T")


class AccountCopy:
    """Copies the accounts of the master, if the slave has access control and signs its requests.

    Args:
        settings: The settings of the slave.
        directory: The users of 5.3's access control; None if none are kept.
        accounts: The files of 4.9's access control; None if it is off.
    """

    def __init__(
        self, settings: BrokerSettings, directory: UserDirectory | None, accounts: "AccessControl | None"
    ) -> None:
        self._is_signing = settings.credentials is not None
        self._directory = directory
        self._accounts = accounts
        self._logged = ""
        self._copied: tuple[bytes, object] | None = None
        """The master's last answer, and the rules that it led to: the same answer need not be read again."""

    async def copy(self, connection: Connection) -> None:
        """Take over the master's accounts; log why not, if it refuses or hides secrets.

        Raises:
            RemotingError: The master did not answer.
        """
        if not self._is_signing:
            return
        try:
            if self._directory is not None:
                await self._copy_users(connection, self._directory)
            elif self._accounts is not None:
                await self._copy_accounts(connection, self._accounts)
            self._logged = ""
        except (ResponseError, ValueError, AclFileError) as e:
            if str(e) != self._logged:  # one line, and not one in each copy
                self._logged = str(e)
                logger.warning("the accounts of the master are not copied, this broker keeps its own: %s", e)

    async def _copy_users(self, connection: Connection, directory: UserDirectory) -> None:
        header = ListUsersRequestHeader(with_secrets=True)
        users = _listed(await ask(connection, RequestCode.AUTH_LIST_USER, header), list[UserInfo])
        listed = _listed(await ask(connection, RequestCode.AUTH_LIST_ACL, ListAclsRequestHeader()), list[AclInfo])
        if not users:
            raise ValueError("it has no users")
        _check_shown(user.password for user in users)
        acls = [AclInfo(subject=acl.subject, policies=checked_policies(acl.policies or ())) for acl in listed]
        # In one step: no request finds a user without its policies.
        directory.acls.take_over_entries(acls)
        directory.users.take_over_entries(users)

    async def _copy_accounts(self, connection: Connection, accounts: "AccessControl") -> None:
        header = GetAclConfigRequestHeader(with_secrets=True)
        body = await ask(connection, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, header)
        if self._copied is not None and self._copied[0] == body and self._copied[1] is accounts.rules:
            return
        config = decode_body(body, GetBrokerClusterAclConfigResponseBody)
        if not config.plain_access_configs:
            raise ValueError("it has no accounts")
        _check_shown(account.secret_key for account in config.plain_access_configs)
        values = [_values(account) for account in config.plain_access_configs]
        if accounts.take_over(config.global_white_addrs, values):
            logger.info("took over %d account(s) of the master", len(values))
        self._copied = body, accounts.rules


def _listed(body: bytes, type_: type[list[T]]) -> list[T]:
    """Return the entries of an answer, which has no body if there are none.

    Raises:
        ValueError: The body is something else.
    """
    try:
        return msgspec.json.decode(body, type=type_) if body else []
    except msgspec.DecodeError:
        raise ValueError("its answer is not a list of users or policies") from None  # the error may quote a password


def _check_shown(secrets: Iterable[str | None]) -> None:
    """Check that an answer has secrets.

    Raises:
        ValueError: It hides one.
    """
    if any(secret is None or secret == HIDDEN for secret in secrets):
        raise ValueError("it hides secrets: give both brokers the same innerClientAuthenticationCredentials")


def _values(account: PlainAccessConfig) -> dict[str, object]:
    """Return the values of an account by their names in files."""
    values: dict[str, object | None] = {
        "accessKey": account.access_key,
        "secretKey": account.secret_key,
        "whiteRemoteAddress": account.white_remote_address,
        "admin": account.admin,
        "defaultTopicPerm": account.default_topic_perm,
        "defaultGroupPerm": account.default_group_perm,
        "topicPerms": account.topic_perms,
        "groupPerms": account.group_perms,
    }
    return {name: value for name, value in values.items() if value is not None}
