"""The policies of users of 5.3's access control, in ``acls.json``; Apache's broker keeps them in a RocksDB."""

import logging
from collections.abc import Mapping, Sequence

from rocket_broker.limits.owner_quota import OwnerQuota
from rocket_broker.limits.refusal import Refusal
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.tables.journaled_table import JournaledTable
from rocket_remoting.clock import Clock
from rocket_remoting.wire.bodies import (
    AclInfo,
    Body,
    DataVersion,
    Entries,
    LongBody,
    PolicyEntryInfo,
    PolicyInfo,
    decode_body,
    encode_body,
)
from rocket_remoting.wire.codes import ResponseCode

__all__ = ["MAX_ACL", "MAX_ACLS", "AclTable"]

logger = logging.getLogger(__name__)

MAX_ACL = 64 * 1024
"""Bytes of JSON of one user's policies, some 800 entries, which take 20 ms to check and to write."""
MAX_ACLS = 8 * 1024 * 1024
"""Bytes of JSON of all policies together."""


class _AclFile(Body, kw_only=True):
    acls: dict[str, AclInfo]
    data_version: DataVersion


class AclTable(JournaledTable[AclInfo]):
    """The policies by subject, such as ``User:alice``, as `checked_policies` returns them."""

    _KIND = "acl"
    _LIMIT = "maxUsers"
    _STANDARD_JSON = True
    _type = AclInfo

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        super().__init__(
            settings, clock, file="acls.json", configs={}, quota=OwnerQuota("acls (maxUsers)", self._limit)
        )
        self._sizes: dict[str, int] = {}

    def load(self) -> bool:
        found = super().load()
        self._measure()
        return found

    def _replace_all(self, configs: Mapping[str, AclInfo], version: DataVersion) -> None:
        super()._replace_all(configs, version)
        self._measure()

    def _measure(self) -> None:
        self._sizes = {subject: len(encode_body(acl)) for subject, acl in self._configs.items()}

    def merge(self, subject: str, policies: Sequence[PolicyInfo]) -> None:
        """Add policies to those of a subject; an entry for the same resource replaces the former one.

        Raises:
            Refusal: The policies would be too large.
            OSError: The change could not be written; it applies in memory, and the file is written later.
        """
        old = self._configs.get(subject)
        merged = list(policies) if old is None else _merged(old.policies or [], policies)
        self._replace(AclInfo(subject=subject, policies=merged))

    def delete_entry(self, subject: str, policy_type: str, resource: str) -> None:
        """Delete the entry for a resource from a policy of a subject, if there is one.

        Raises:
            OSError: The change could not be written; it applies in memory, and the file is written later.
        """
        acl = self._configs[subject]
        left: list[PolicyInfo] = []
        for policy in acl.policies or ():
            entries = list(policy.entries or ())
            found = _index(entries, resource) if policy.policy_type == policy_type else None
            if found is not None:
                del entries[found]
            if entries:
                left.append(PolicyInfo(policy_type=policy.policy_type, entries=entries))
        if left:
            self._replace(AclInfo(subject=subject, policies=left))
        else:
            self.delete(subject)

    def delete(self, name: str) -> bool:
        self._sizes.pop(name, None)
        return super().delete(name)

    def _replace(self, acl: AclInfo) -> None:
        subject = self._name_of(acl)
        self._check_capacity([subject], owner="")
        size = len(encode_body(acl))
        others = sum(self._sizes.values()) - self._sizes.get(subject, 0)
        for what, asked, most in ((subject, size, MAX_ACL), ("all users", others + size, MAX_ACLS)):
            if asked > most:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"the policies of {what} would have {asked} bytes, at most {most}: use prefixes, as Topic:orders-*",
                )
        self._sizes[subject] = size
        logger.info("policies of %s changed: %d bytes", subject, size)
        self._put([acl])

    def body(self) -> LongBody:
        wrapper = _AclFile(acls={}, data_version=self.data_version)
        return LongBody(wrapper, acls=Entries(list(self._configs.items())))

    def _decoded(self, data: bytes) -> tuple[Mapping[str, AclInfo], DataVersion]:
        stored = decode_body(data, _AclFile)
        return stored.acls, stored.data_version

    def _name_of(self, config: AclInfo) -> str:
        return config.subject or ""

    def _limit(self) -> int:
        return self._settings.max_users

    def _unknown(self, name: str) -> str:
        return f"acl of {name} does not exist"


def _merged(old: Sequence[PolicyInfo], new: Sequence[PolicyInfo]) -> list[PolicyInfo]:
    merged = [PolicyInfo(policy_type=policy.policy_type, entries=list(policy.entries or ())) for policy in old]
    for policy in new:
        same = next((each for each in merged if each.policy_type == policy.policy_type), None)
        if same is None:
            merged.append(PolicyInfo(policy_type=policy.policy_type, entries=list(policy.entries or ())))
            continue
        entries = same.entries = same.entries or []
        places = {entry.resource: at for at, entry in reversed(list(enumerate(entries)))}
        for entry in policy.entries or ():
            at = places.setdefault(entry.resource, len(entries))
            entries[at : at + 1] = [entry]
    return merged


def _index(entries: Sequence[PolicyEntryInfo], resource: str | None) -> int | None:
    return next((at for at, entry in enumerate(entries) if entry.resource == resource), None)
