"""The users of 5.3's access control, with their passwords, in ``users.json``.

Apache's broker keeps them in a RocksDB, ``config/users``. Passwords are kept as they are, since they sign requests; the
file is closed to other users of the machine, and no log line has one.
"""

import logging
from collections.abc import Mapping

from rocket_broker.limits.owner_quota import OwnerQuota
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.tables.journaled_table import JournaledTable
from rocket_remoting.clock import Clock
from rocket_remoting.wire.bodies import Body, DataVersion, Entries, LongBody, UserInfo, decode_body

__all__ = ["UserTable"]

logger = logging.getLogger(__name__)


class _UserFile(Body, kw_only=True):
    users: dict[str, UserInfo]
    data_version: DataVersion


class UserTable(JournaledTable[UserInfo]):
    """All users of a broker by name."""

    _KIND = "user"
    _LIMIT = "maxUsers"
    _STANDARD_JSON = True
    _type = UserInfo

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        super().__init__(
            settings, clock, file="users.json", configs={}, quota=OwnerQuota("users (maxUsers)", self._limit)
        )

    def put(self, user: UserInfo) -> None:
        """Create a user, or replace it.

        Raises:
            Refusal: There are ``maxUsers`` already.
            OSError: The change could not be written; it applies in memory, and the file is written later.
        """
        new = self._check_capacity([self._name_of(user)], owner="")
        logger.info(
            "user %s %s: %s, %s", user.username, "created" if new else "changed", user.user_type, user.user_status
        )
        self._put([user])

    def body(self) -> LongBody:
        wrapper = _UserFile(users={}, data_version=self.data_version)
        return LongBody(wrapper, users=Entries(list(self._configs.items())))

    def _decoded(self, data: bytes) -> tuple[Mapping[str, UserInfo], DataVersion]:
        stored = decode_body(data, _UserFile)
        return stored.users, stored.data_version

    def _name_of(self, config: UserInfo) -> str:
        return config.username or ""

    def _limit(self) -> int:
        return self._settings.max_users

    def _unknown(self, name: str) -> str:
        return f"user {name} does not exist"
