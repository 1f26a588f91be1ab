"""The consumer groups this broker knows and what each may do, kept in Apache's ``subscriptionGroup.json``."""

import logging
from collections.abc import Iterable, Iterator, Mapping

from rocket_broker.refusal import Refusal
from rocket_broker.settings import BrokerSettings, FlushDiskType
from rocket_broker.table_file import TableFile
from rocket_broker.table_journal import TableJournal
from rocket_remoting.bodies import (
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    decode_body,
    encode_body,
)
from rocket_remoting.clock import Clock
from rocket_remoting.codes import ResponseCode
from rocket_remoting.topics import TOOLS_CONSUMER_GROUP, is_system_group, validate_group

__all__ = ["OWN_GROUPS", "SubscriptionGroupTable"]

_log = logging.getLogger(__name__)

OWN_GROUPS = frozenset(
    {
        TOOLS_CONSUMER_GROUP,
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
    }
)
"""The groups every broker has."""


class SubscriptionGroupTable:
    """All consumer groups of a broker; every change is on the disk before the call returns.

    Attributes:
        data_version: Counts the changes.
        journal: The groups that appeared since the table was written.
    """

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        self.data_version = DataVersion(timestamp=clock.now_ms(), counter=0)
        self._settings = settings
        self._clock = clock
        durable = settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._file = TableFile(settings.config_dir / "subscriptionGroup.json", durable=durable)
        self.journal = TableJournal(self._file.path, durable=durable)
        self._configs = {group: SubscriptionGroupConfig(group_name=group) for group in sorted(OWN_GROUPS)}

    def load(self) -> None:
        """Read ``subscriptionGroup.json``.

        Raises:
            DamagedTable: Neither the file nor its backup can be read.
        """
        stored = self._file.load(lambda data: decode_body(data, SubscriptionGroupWrapper))
        if stored is not None:
            self._configs.update(stored.subscription_group_table)
            self.data_version = stored.data_version
        for version, config in self.journal.read(self.data_version, SubscriptionGroupConfig):
            self._configs[config.group_name] = config
            self.data_version = version

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the group's configuration, or None when it does not exist."""
        return self._configs.get(group)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the group's configuration, created if ``autoCreateSubscriptionGroup`` and its name allow it."""
        config = self._configs.get(group)
        if config is None:
            self.create_missing([group])
            config = self._configs.get(group)
        return config

    def create_missing(self, groups: Iterable[str]) -> None:
        """Create those of the groups that do not exist, as `find` does; however many, they are one change."""
        created = [
            group for group in dict.fromkeys(groups) if group not in self._configs and self._may_create(group)
        ][: max(0, self._settings.max_groups - len(self._configs))]
        for group in created:
            self._configs[group] = SubscriptionGroupConfig(group_name=group)
            _log.info("consumer group %s created because it appeared", group)
        if created:
            self.data_version = self.data_version.next(self._clock.now_ms())
            try:
                self.journal.append(self.data_version, map(self._configs.__getitem__, created))
            except OSError as e:  # who only reads is served on a full disk too
                _log.error("consumer groups %s could not be noted, trying again: %s", created, e)

    def _may_create(self, group: str) -> bool:
        wanted = self._settings.auto_create_subscription_group or is_system_group(group)
        return wanted and _is_legal(group)

    def update(self, *configs: SubscriptionGroupConfig) -> None:
        """Create each group or replace its configuration; however many, they are one change.

        Raises:
            Refusal: There would be more than ``maxGroups``.
        """
        created = {config.group_name for config in configs} - self._configs.keys()
        if created and len(self._configs) + len(created) > self._settings.max_groups:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"there are {len(self._configs)} groups: see maxGroups of the broker",
            )
        for config in configs:
            known = config.group_name in self._configs
            _log.info("consumer group %s: %s", "changed" if known else "created", config)
            self._configs[config.group_name] = config
        if configs:
            self._changed()

    def delete(self, group: str) -> bool:
        """Forget the group; return whether there was one."""
        if self._configs.pop(group, None) is None:
            return False
        _log.info("consumer group %s deleted", group)
        self._changed()
        return True

    def wrapper(self) -> SubscriptionGroupWrapper:
        """Return the whole table as it goes to tools and the file."""
        return SubscriptionGroupWrapper(
            subscription_group_table=self._configs, data_version=self.data_version
        )

    def configs(self) -> Mapping[str, SubscriptionGroupConfig]:
        """Return every group by name; not to be changed through this."""
        return self._configs

    def save(self) -> None:
        """Write ``subscriptionGroup.json``."""
        self._file.write(encode_body(self.wrapper(), standard_json=True))
        self.journal.clear()

    def _changed(self) -> None:
        self.data_version = self.data_version.next(self._clock.now_ms())
        self.save()

    def __contains__(self, group: str) -> bool:
        return group in self._configs

    def __iter__(self) -> Iterator[str]:
        return iter(self._configs)

    def __len__(self) -> int:
        return len(self._configs)


def _is_legal(group: str) -> bool:
    try:
        validate_group(group)
    except ValueError:
        return False
    return True
