"""The users of 5.3's access control and their policies: two tables in the broker's store, and their first entries."""

import logging
from collections.abc import Coroutine, Iterable
from contextlib import AsyncExitStack
from typing import Any

from rocket_broker.access.account import ANY, DENY, PUB, SUB, Account
from rocket_broker.access.policies import Action, Decision, PolicyType, UserStatus, UserType
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.tables.acl_table import AclTable
from rocket_broker.tables.user_table import UserTable
from rocket_remoting.clock import Clock
from rocket_remoting.wire.bodies import PolicyEntryInfo, PolicyInfo, UserInfo
from rocket_remoting.wire.credentials import Credentials
from rocket_remoting.wire.topics import RETRY_PREFIX, is_retry_topic

__all__ = ["UserDirectory"]

logger = logging.getLogger(__name__)

_ACTIONS = {
    PUB: [Action.PUB],
    SUB: [Action.SUB],
    ANY: [Action.PUB, Action.SUB],
    DENY: [Action.ALL],
}
"""The actions of an entry that stands for a permission of 4.9."""


class UserDirectory:
    """The users of a broker, and what each may do.

    Attributes:
        users: The users.
        acls: The policies of the users.
    """

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        self.users = UserTable(settings, clock)
        self.acls = AclTable(settings, clock)

    def load(self, undo: AsyncExitStack) -> None:
        """Read both tables; `undo` writes them at the stop.

        Raises:
            DamagedTable: A table's file and its backup are both unreadable.
            TableUnreadable: The file system refuses to read a table.
        """
        for table in (self.users, self.acls):
            table.load()
            undo.callback(table.journal.merge, table.save)

    def loops(self) -> dict[str, Coroutine[Any, Any, None]]:
        """Return what writes the tables while the broker runs, by names for tasks."""
        return {
            "users": self.users.journal.merge_periodically(self.users.write),
            "policies": self.acls.journal.merge_periodically(self.acls.write),
        }

    def create_missing(self, *given: UserInfo | Credentials | None) -> None:
        """Create the users of the settings that do not exist; accounts become super users.

        Raises:
            OSError: A user could not be written.
        """
        for user in given:
            if isinstance(user, Credentials):
                self._create(user.access_key, user.secret_key, UserType.SUPER)
            elif user is not None:
                self._add(user)

    def take_over(self, accounts: Iterable[Account]) -> None:
        """Make a user and policies of each account of 4.9 whose user does not exist, as Apache's broker does.

        Raises:
            Refusal: There are too many users.
            OSError: A user or its policies could not be written.
        """
        for account in accounts:
            name = account.access_key
            if name in self.users:
                continue
            if account.white_list:
                logger.warning("account %s: its white list is not taken over, users have none", name)
            # The policies first: an account whose user exists is not looked at again after a kill.
            self.acls.merge(f"User:{name}", _policies_of(account))
            self._create(name, account.secret_key, UserType.SUPER if account.admin else UserType.NORMAL)
            logger.info("account %s is a user now, with its rights as policies", name)

    def _create(self, name: str, password: str, user_type: UserType) -> None:
        self._add(UserInfo(username=name, password=password, user_type=user_type, user_status=UserStatus.ENABLE))

    def _add(self, user: UserInfo) -> None:
        if (user.username or "") not in self.users:
            self.users.put(user)

    def __repr__(self) -> str:
        return f"<UserDirectory: {len(self.users)} users>"


def _policies_of(account: Account) -> list[PolicyInfo]:
    # No topic and no group has a star in its name, so such a right gave nothing. In a policy it would be a pattern.
    rights = {resource: permission for resource, permission in account.rights.items() if "*" not in resource}
    custom = [_entry(_named_in(resource), rights[resource]) for resource in sorted(rights, key=is_retry_topic)]
    default = [
        _entry("Topic:*", account.default_topic_permission),
        _entry("Group:*", account.default_group_permission),
    ]
    policies = [PolicyInfo(policy_type=PolicyType.CUSTOM, entries=custom)] if custom else []
    return [*policies, PolicyInfo(policy_type=PolicyType.DEFAULT, entries=default)]


def _named_in(right: str) -> str:
    """Return the resource of a right of 4.9, in which a group is named by its retry topic."""
    group = right.removeprefix(RETRY_PREFIX)
    return f"Topic:{right}" if group == right else f"Group:{group}"


def _entry(resource: str, permission: int) -> PolicyEntryInfo:
    return PolicyEntryInfo(
        resource=resource,
        actions=list(_ACTIONS[permission]),
        decision=Decision.DENY if permission == DENY else Decision.ALLOW,
    )
