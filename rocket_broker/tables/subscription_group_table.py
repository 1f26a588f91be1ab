"""The consumer groups of this broker and their configurations, kept in Apache's ``subscriptionGroup.json``."""

import logging
from collections.abc import Iterable, Mapping, Sequence

from rocket_broker.limits.owner_quota import OwnerQuota
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.tables.journaled_table import JournaledTable
from rocket_broker.tables.system_names import PREDEFINED_GROUPS
from rocket_remoting.clock import Clock
from rocket_remoting.wire.bodies import (
    DataVersion,
    Entries,
    LongBody,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    decode_body,
)
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.topics import validate_group

__all__ = ["SubscriptionGroupTable"]

logger = logging.getLogger(__name__)


class SubscriptionGroupTable(JournaledTable[SubscriptionGroupConfig]):
    """All consumer groups of a broker."""

    _KIND = "consumer group"
    _LIMIT = "maxGroups"
    _STANDARD_JSON = True
    _type = SubscriptionGroupConfig

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        super().__init__(
            settings,
            clock,
            file="subscriptionGroup.json",
            configs={group: SubscriptionGroupConfig(group_name=group) for group in sorted(PREDEFINED_GROUPS)},
            quota=OwnerQuota("groups of this broker (maxGroups)", self._limit),
        )

    def find(self, group: str, owner: str = "") -> SubscriptionGroupConfig | None:
        """Return the group's configuration; create it if ``autoCreateSubscriptionGroup`` and its name allow that.

        Args:
            group: The group's name.
            owner: The address whose quota a new group counts to.

        Raises:
            Refusal: There are ``maxGroups`` already, or the owner has reached its quota.
        """
        config = self._configs.get(group)
        if config is None and self._may_create(group):
            self._check_capacity({group}, owner, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
            self._add([group], owner)
            config = self._configs[group]
        return config

    def create_missing(self, groups: Iterable[str], owner: str = "") -> None:
        """Create the missing groups as `find` does, in one change of the table.

        Groups beyond ``maxGroups`` or the owner's quota are not created; `find` gives the reason.
        """
        missing = [group for group in dict.fromkeys(groups) if group not in self._configs and self._may_create(group)]
        self._add(self._fitting(missing, owner), owner)

    def _add(self, groups: Sequence[str], owner: str) -> None:
        self._own(groups, owner)
        for group in self._logged(groups):
            logger.info("consumer group %s created at its first use", group)
        try:
            self._put([SubscriptionGroupConfig(group_name=group) for group in groups])
        except OSError as e:  # on a full disk, clients that only read are still served
            logger.error("could not write %d new consumer group(s), trying again: %s", len(groups), e)

    def _may_create(self, group: str) -> bool:
        return self._settings.auto_create_subscription_group and _is_legal(group)

    def update(self, *configs: SubscriptionGroupConfig, owner: str = "") -> None:
        """Create groups or replace their configurations, in one change of the table.

        Raises:
            Refusal: There would be more groups than ``maxGroups`` or the owner's quota.
            OSError: The change could not be written; the groups are changed in memory, and the file is written later.
        """
        self._own(self._check_capacity([config.group_name for config in configs], owner), owner)
        for config in self._logged(configs):
            known = config.group_name in self._configs
            logger.info("consumer group %s: %s", "changed" if known else "created", config)
        self._put(configs)

    def body(self) -> LongBody:
        wrapper = SubscriptionGroupWrapper(subscription_group_table={}, data_version=self.data_version)
        return LongBody(wrapper, subscription_group_table=Entries(list(self._configs.items())))

    def _decoded(self, data: bytes) -> tuple[Mapping[str, SubscriptionGroupConfig], DataVersion]:
        stored = decode_body(data, SubscriptionGroupWrapper)
        return stored.subscription_group_table, stored.data_version

    def _name_of(self, config: SubscriptionGroupConfig) -> str:
        return config.group_name

    def _limit(self) -> int:
        return self._settings.max_groups

    def _unknown(self, name: str) -> str:
        return f"subscription group [{name}] does not exist"


def _is_legal(group: str) -> bool:
    try:
        validate_group(group)
    except ValueError:
        return False
    return True
