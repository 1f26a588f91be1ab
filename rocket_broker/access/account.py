"""Accounts with their rights on topics and groups, and the rules that all files of accounts make together.

A group is named by its retry topic, ``%RETRY%<group>``, as in Apache's access control. So a right on a group is also
the right on its retry topic.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from rocket_broker.access.remote_address import AddressPattern
from rocket_remoting.wire.bodies import DataVersion
from rocket_remoting.wire.topics import (
    DLQ_PREFIX,
    REPLY_TOPIC_POSTFIX,
    RETRY_PREFIX,
    TOPICS_CLOSED_TO_CLIENTS,
    is_dead_letter_topic,
    is_retry_topic,
    retry_topic,
)

__all__ = ["ANY", "DENY", "MIN_KEY", "PUB", "SUB", "AccessRules", "Account", "Right", "parse_permission"]

DENY = 0
PUB = 1
"""Send to a topic."""
SUB = 2
"""Read from a topic; be a member of a group."""
ANY = PUB | SUB
"""As the need of a request, `PUB` or `SUB`; as the right of an account, both."""

MIN_KEY = 7
"""Characters that access keys and secret keys have at least, as in Apache's broker."""

_PERMISSIONS = {"DENY": DENY, "PUB": PUB, "SUB": SUB, "PUB|SUB": ANY, "SUB|PUB": ANY}

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
"""Every account may send its traces to this topic."""


def parse_permission(text: str) -> int | None:
    """Return the permission of a text such as ``PUB|SUB``; None if there is no such permission."""
    return _PERMISSIONS.get(text.strip())


class Right(msgspec.Struct, frozen=True):
    """A right that a request needs, or that an account has.

    Attributes:
        resource: A topic, or the retry topic of a group.
        permission: `PUB`, `SUB` or `ANY`.
    """

    resource: str
    permission: int

    @property
    def is_group(self) -> bool:
        """Whether the resource is a group."""
        return is_retry_topic(self.resource)

    @property
    def is_of_producers(self) -> bool:
        """Whether the right is to produce in a group: it is needed only if an account has it by the group's name."""
        return self.is_group and self.permission == PUB

    def __str__(self) -> str:
        return f"group:{self.resource.removeprefix(RETRY_PREFIX)}" if self.is_group else f"topic:{self.resource}"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An account of ``plain_acl.yml``."""

    access_key: str
    secret_key: str
    white_list: tuple[AddressPattern, ...] = ()
    """Requests from these addresses need no signature and no rights."""
    admin: bool = False
    """Whether the account may administrate; without `rights` it has all rights, too."""
    default_topic_permission: int = DENY
    default_group_permission: int = DENY
    rights: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Permissions by topic, and by retry topic of a group."""

    def __repr__(self) -> str:
        """Return the name and no secret."""
        return f"Account({self.access_key!r})"

    def has(self, right: Right) -> bool:
        """Return whether the account has a right."""
        if self.admin and not self.rights:
            return True
        if right.resource == TRACE_TOPIC and right.permission == PUB:
            return True
        if right.is_group:
            default = self.default_group_permission
        elif right.resource in self.rights or self._reaches(right.resource):
            default = self.default_topic_permission
        else:
            default = DENY
        return bool(self.rights.get(right.resource, default) & right.permission)

    def _reaches(self, topic: str) -> bool:
        """Return whether the default permission is for a topic: not if it has messages of topics that may be denied.

        Those are the broker's own topics with messages that wait, replies, and dead letters of groups that the account
        may not join.
        """
        if is_dead_letter_topic(topic):
            return self.has(Right(retry_topic(topic.removeprefix(DLQ_PREFIX)), SUB))
        return topic not in TOPICS_CLOSED_TO_CLIENTS and not topic.endswith(f"_{REPLY_TOPIC_POSTFIX}")


class AccessRules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of all files together; they are replaced as a whole."""

    white_list: tuple[AddressPattern, ...] = ()
    """Requests from these addresses need no signature and no rights."""
    accounts: Mapping[str, Account] = msgspec.field(default_factory=dict)
    """The accounts by access key."""
    files: Mapping[str, Path] = msgspec.field(default_factory=dict)
    """The file of each account, by access key."""
    versions: Mapping[Path, DataVersion] = msgspec.field(default_factory=dict)
    """The version of each file."""
    producer_groups: Collection[str] = ()
    """The retry topics of the groups on which an account has `PUB` by the group's name."""
