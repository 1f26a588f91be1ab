"""Policies of RocketMQ 5.3: the actions that a user may take on resources, decided by the most precise entry.

::

    Custom   Topic:orders     Pub, Sub   10.0.0.0/8   Allow    a resource, literally
             Topic:orders-*   Sub                     Deny     all that begin so; a longer beginning comes first
             Topic:*          Sub                     Allow    all of one type
             *                Get                     Allow    everything
    Default  Topic:*          Pub                     Deny     asked only if no entry of Custom matches

An entry matches a request if it names the resource, one of the request's actions (or All), and the address of the
client. Of the entries that match, the first in the order above decides; of two for the same resource, Deny does. No
entry: no permission. This module does no I/O.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from typing import NamedTuple, TypeVar, cast

from rocket_broker.settings.networks import Networks
from rocket_remoting.wire.bodies import AclInfo, PolicyEntryInfo, PolicyInfo
from rocket_remoting.wire.topics import DLQ_PREFIX, REPLY_TOPIC_POSTFIX, TOPICS_CLOSED_TO_CLIENTS, is_dead_letter_topic

__all__ = [
    "OWN_CLUSTER",
    "Access",
    "Action",
    "Decision",
    "InvalidPolicy",
    "Policies",
    "PolicyType",
    "Resource",
    "ResourceType",
    "UserStatus",
    "UserType",
    "checked_policies",
    "named",
    "spelled_pattern",
    "user_of",
]

MAX_NAME = 255
"""Maximum number of characters of a user's name, a password, or the name of a resource."""
MAX_SOURCES = 100
"""Maximum number of addresses in one entry."""

E = TypeVar("E", bound=StrEnum)


class InvalidPolicy(ValueError):  # noqa: N818 - a state, not a mistake
    """A policy is wrong; the text is Apache's."""


class Action(StrEnum):
    """The kinds of access to a resource."""

    UNKNOWN = "Unknown"
    ALL = "All"
    ANY = "Any"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class ResourceType(StrEnum):
    """The kinds of resources; no request is about a namespace or an unknown resource."""

    UNKNOWN = "Unknown"
    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Decision(StrEnum):
    """Whether an entry allows or denies the requests that it matches."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(StrEnum):
    """The two policies of a user; the second is asked if the first has no matching entry."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class UserType(StrEnum):
    """A super user needs no policies."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(StrEnum):
    """Requests of a disabled user are refused."""

    ENABLE = "enable"
    DISABLE = "disable"


def named(members: type[E], text: str | None) -> E | None:
    """Return the member of an enumeration with this name, in any case; None if there is none."""
    return cast(E | None, _by_name(members).get((text or "").lower()))


@cache
def _by_name(members: type[StrEnum]) -> Mapping[str, StrEnum]:
    return {member.lower(): member for member in members}


def user_of(subject: str | None) -> str | None:
    """Return the user's name in a subject such as ``User:alice``; None if it is the subject of no user."""
    kind, colon, name = (subject or "").partition(":")
    return name if colon and kind.lower() == "user" else None


class Resource(NamedTuple):
    """The object of a request: its type and its name."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


OWN_CLUSTER = Resource(ResourceType.CLUSTER, "")
"""The cluster of the broker that checks the request, whatever its name is."""


class Access(NamedTuple):
    """An access that a request needs: one of the actions on the resource."""

    resource: Resource
    actions: tuple[Action, ...]


def spelled_pattern(text: str | None) -> str | None:
    """Return the text of a pattern as Apache spells it, such as ``Topic:orders``, ``Group:kit*``, ``Topic:*`` or ``*``.

    None if the text has none of these forms.
    """
    kind, _, name = (text or "").partition(":")
    type_ = ResourceType.ANY if text == "*" else named(ResourceType, kind)
    if type_ is None:
        return None
    if type_ is ResourceType.ANY:
        return "*"
    return f"{type_}:{name.partition('*')[0]}*" if name.endswith("*") else f"{type_}:{name}"


class _Entry(NamedTuple):
    actions: frozenset[str]
    sources: Networks | None
    decision: Decision

    def matches(self, actions: Collection[Action], host: str) -> bool:
        if Action.ALL not in self.actions and self.actions.isdisjoint(actions):
            return False
        return self.sources is None or self.sources.have(host)


class _Policy:
    """The entries of one policy by the texts of their patterns, so that many entries take no longer than one."""

    def __init__(self, entries: Iterable[PolicyEntryInfo]) -> None:
        self._entries: dict[str, list[_Entry]] = defaultdict(list)
        lengths: set[int] = set()
        for info in entries:
            pattern = info.resource or ""
            sources = Networks(info.source_ips) if info.source_ips else None
            entry = _Entry(frozenset(info.actions or ()), sources, Decision(info.decision or Decision.DENY))
            self._entries[pattern].append(entry)
            name = pattern.partition(":")[2]
            if name.endswith("*") and name != "*":
                lengths.add(len(name) - 1)
        for same in self._entries.values():
            same.sort(key=lambda entry: entry.decision is Decision.ALLOW)
        self._lengths = sorted(lengths, reverse=True)

    def decide(self, access: Access, host: str) -> Decision | None:
        for pattern in self._patterns_of(access.resource):
            for entry in self._entries.get(pattern, ()):
                if entry.matches(access.actions, host):
                    return entry.decision
        return None

    def _patterns_of(self, resource: Resource) -> Iterator[str]:
        """Yield the patterns that cover a resource, the most precise first."""
        type_, name = resource
        yield f"{type_}:{name}"
        # Some topics have messages of all topics, also of those that the user is denied.
        shortest = 1
        if type_ is ResourceType.TOPIC:
            if name in TOPICS_CLOSED_TO_CLIENTS or name.endswith(f"_{REPLY_TOPIC_POSTFIX}"):
                return
            if is_dead_letter_topic(name):
                shortest = len(DLQ_PREFIX)
        for length in self._lengths:
            if shortest <= length <= len(name):
                yield f"{type_}:{name[:length]}*"
        if shortest == 1:
            yield f"{type_}:*"
            yield "*"


class Policies:
    """The policies of one user, for decisions.

    Args:
        acl: The policies, checked by `checked_policies`.
    """

    def __init__(self, acl: AclInfo) -> None:
        policies = acl.policies or ()
        self._policies = [
            _Policy(entry for policy in policies if policy.policy_type == type_ for entry in policy.entries or ())
            for type_ in (PolicyType.CUSTOM, PolicyType.DEFAULT)
        ]

    def decide(self, access: Access, host: str) -> Decision | None:
        """Return the decision about an access of a client at this address; None if no entry matches."""
        for policy in self._policies:
            decision = policy.decide(access, host)
            if decision is not None:
                return decision
        return None


def checked_policies(policies: Iterable[PolicyInfo]) -> list[PolicyInfo]:
    """Return policies with all names spelled as Apache spells them.

    As on Apache's broker, a policy without a type is Custom, a policy without entries is left out, and so is an action
    that does not exist.

    Raises:
        InvalidPolicy: A policy is wrong.
    """
    checked = [
        PolicyInfo(
            policy_type=named(PolicyType, policy.policy_type) or PolicyType.CUSTOM,
            entries=[_checked_entry(entry) for entry in policy.entries],
        )
        for policy in policies
        if policy.entries
    ]
    if not checked:
        raise InvalidPolicy("The policies is empty.")
    return checked


def _checked_entry(entry: PolicyEntryInfo) -> PolicyEntryInfo:
    pattern = spelled_pattern(entry.resource)
    if pattern is None:
        raise InvalidPolicy("The resource is null.")
    if len(pattern.partition(":")[2]) > MAX_NAME:
        raise InvalidPolicy(f"The resource has more than {MAX_NAME} characters.")
    actions = [action for text in entry.actions or () if (action := named(Action, text)) is not None]
    if not actions:
        raise InvalidPolicy("The actions is empty.")
    if Action.ANY in actions:
        raise InvalidPolicy("The actions can not be Any.")
    decision = named(Decision, entry.decision)
    sources = _checked_sources(entry.source_ips or [])
    if decision is None:
        raise InvalidPolicy("The decision is null or illegal.")
    return PolicyEntryInfo(
        resource=pattern, actions=list(dict.fromkeys(actions)), source_ips=sources, decision=decision
    )


def _checked_sources(sources: list[str]) -> list[str] | None:
    if len(sources) > MAX_SOURCES:
        raise InvalidPolicy(f"An entry has more than {MAX_SOURCES} source ips.")
    if not all(map(str.strip, sources)):
        raise InvalidPolicy("The source ip is empty.")
    try:
        Networks(sources)
    except ValueError:
        raise InvalidPolicy("The source ip is invalid.") from None
    return sources or None
