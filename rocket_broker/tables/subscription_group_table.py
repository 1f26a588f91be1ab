"""The consumer groups this broker knows and what each may do, kept in Apache's ``subscriptionGroup.json``.

A small table is written at each change. A change of a large one is a line in ``subscriptionGroup.json.log``
(`TableJournal`), and the table is written a little later, in steps.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from rocket_broker.files.table_file import TableFile
from rocket_broker.files.table_journal import NO_TABLE, TableJournal
from rocket_broker.limits.refusal import Refusal
from rocket_broker.limits.shares import Shares
from rocket_broker.loop.loop_steps import collected, run_in_steps
from rocket_broker.settings.broker_settings import BrokerSettings, FlushDiskType
from rocket_broker.tables.system_names import PREDEFINED_GROUPS
from rocket_remoting.clock import Clock
from rocket_remoting.wire.bodies import (
    DataVersion,
    Entries,
    LongBody,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    decode_body,
    encode_in_pieces,
)
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.topics import validate_group

__all__ = ["SubscriptionGroupTable"]

logger = logging.getLogger(__name__)

_MOST_LOGGED = 20
"""Groups of one request of which the log tells: a line takes as long as making the group."""


class SubscriptionGroupTable:
    """All consumer groups of a broker; every change is on the disk before the call returns.

    Attributes:
        data_version: Counts the changes.
        journal: What has changed since the table was written.
    """

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        self.data_version = DataVersion(timestamp=clock.now_ms(), counter=0)
        self._settings = settings
        self._clock = clock
        durable = settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._file = TableFile(settings.config_dir / "subscriptionGroup.json", durable=durable)
        self.journal = TableJournal(self._file.path, durable=durable)
        self._configs = {
            group: SubscriptionGroupConfig(group_name=group) for group in sorted(PREDEFINED_GROUPS)
        }
        self._shares = Shares("groups of this broker (maxGroups)", lambda: settings.max_groups)
        self._owners: dict[str, str] = {}

    def load(self) -> None:
        """Read ``subscriptionGroup.json``.

        Raises:
            DamagedTable: Neither the file nor its backup can be read.
        """
        stored = self._file.load(lambda data: decode_body(data, SubscriptionGroupWrapper))
        if stored is not None:
            self._configs.update(stored.subscription_group_table)
            self.data_version = stored.data_version
        for change in self.journal.read(self.data_version if stored else NO_TABLE, SubscriptionGroupConfig):
            if change.entry is not None:
                self._configs[change.entry.group_name] = change.entry
            else:
                self._configs.pop(change.removed, None)
            self.data_version = change.version

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the group's configuration, or None when it does not exist."""
        return self._configs.get(group)

    def find(self, group: str, owner: str = "") -> SubscriptionGroupConfig | None:
        """Return the group's configuration, created if ``autoCreateSubscriptionGroup`` and its name allow it.

        Args:
            group: The group's name.
            owner: Whose share a new group counts to.

        Raises:
            Refusal: There are ``maxGroups`` already, or the owner has its share of them.
        """
        config = self._configs.get(group)
        if config is None and self._may_create(group):
            self._check_room({group}, owner, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
            self._add([group], owner)
            config = self._configs[group]
        return config

    def create_missing(self, groups: Iterable[str], owner: str = "") -> None:
        """Create those of the groups that do not exist, as `find` does; however many, they are one change.

        Those are left out for which ``maxGroups``, or the owner's share of them, leaves no room: `find` says why.
        """
        missing = [
            group for group in dict.fromkeys(groups) if group not in self._configs and self._may_create(group)
        ]
        room = min(self._settings.max_groups - len(self._configs), self._shares.room(owner))
        self._add(missing[: max(0, room)], owner)

    def _add(self, groups: Sequence[str], owner: str) -> None:
        if not groups:
            return
        self._own(groups, owner)
        for group in groups:
            self._configs[group] = SubscriptionGroupConfig(group_name=group)
        for group in groups[:_MOST_LOGGED]:
            logger.info("consumer group %s created because it appeared", group)
        if len(groups) > _MOST_LOGGED:
            logger.info("and %d consumer groups more, in the same request", len(groups) - _MOST_LOGGED)
        try:
            self._note([*map(self._configs.__getitem__, groups)])
        except OSError as e:  # who only reads is served on a full disk too
            logger.error("%d consumer groups could not be noted, trying again: %s", len(groups), e)

    def _own(self, groups: Collection[str], owner: str) -> None:
        """Note whose the new groups are."""
        self._shares.count(len(groups), owner)
        if owner:
            self._owners.update(dict.fromkeys(groups, owner))

    def _check_room(
        self, new: Collection[str], owner: str, code: ResponseCode = ResponseCode.SYSTEM_ERROR
    ) -> None:
        if new and len(self._configs) + len(new) > self._settings.max_groups:
            raise Refusal(
                code,
                f"subscription group [{min(new)}] does not exist and is not made: this broker has {len(self._configs)} "
                f"groups, at most {self._settings.max_groups} (maxGroups)",
            )
        self._shares.check(len(new), owner, code=code)

    def _may_create(self, group: str) -> bool:
        return self._settings.auto_create_subscription_group and _is_legal(group)

    def update(self, *configs: SubscriptionGroupConfig, owner: str = "") -> None:
        """Create each group or replace its configuration; however many, they are one change.

        Raises:
            Refusal: There would be more than ``maxGroups``, or more of them the owner's than its share.
        """
        created = {config.group_name for config in configs if config.group_name not in self._configs}
        self._check_room(created, owner)
        self._own(created, owner)
        for config in configs[:_MOST_LOGGED]:
            known = config.group_name in self._configs
            logger.info("consumer group %s: %s", "changed" if known else "created", config)
        if len(configs) > _MOST_LOGGED:
            logger.info("and %d consumer groups more, in the same request", len(configs) - _MOST_LOGGED)
        self._configs.update((config.group_name, config) for config in configs)
        if configs:
            self._note(configs)

    def delete(self, group: str) -> bool:
        """Forget the group; return whether there was one."""
        if self._configs.pop(group, None) is None:
            return False
        self._shares.count(-1, self._owners.pop(group, ""))
        logger.info("consumer group %s deleted", group)
        self._note(removed=[group])
        return True

    def body(self) -> LongBody:
        """Return the whole table, of now, as it goes to tools and the file."""
        wrapper = SubscriptionGroupWrapper(subscription_group_table={}, data_version=self.data_version)
        return LongBody(wrapper, subscription_group_table=Entries(list(self._configs.items())))

    def configs(self) -> Mapping[str, SubscriptionGroupConfig]:
        """Return every group by name; not to be changed through this."""
        return self._configs

    def save(self) -> None:
        """Write ``subscriptionGroup.json`` in one go, as long as no clients wait.

        Raises:
            OSError: The file cannot be written.
        """
        self.journal.begin_merge(self.data_version)
        self._file.write(b"".join(encode_in_pieces(self.body(), standard_json=True)))
        self.journal.end_merge()

    async def write(self) -> None:
        """Write ``subscriptionGroup.json``, in steps and by a thread.

        Raises:
            OSError: The file cannot be written.
        """
        self.journal.begin_merge(self.data_version)
        pieces = encode_in_pieces(self.body(), standard_json=True)
        await self._file.write_and_sync(
            await run_in_steps("the table of consumer groups is written", collected(pieces))
        )
        self.journal.end_merge()

    def _note(self, configs: Sequence[SubscriptionGroupConfig] = (), *, removed: Sequence[str] = ()) -> None:
        self.data_version = self.data_version.next(self._clock.now_ms())
        self.journal.note(self.save, len(self._configs), self.data_version, configs, removed=removed)

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
