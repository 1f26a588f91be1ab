"""Judges topics and groups by the settings of bindings, for `streamkit doctor`. This module does no I/O."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from binders.kafka.binder_properties import PREFIX
from binders.kafka.properties import TopicProperties
from binders.kafka.topics import TopicView
from streamkit.findings import Finding, Severity, falls_behind, listed

__all__ = [
    "Bound",
    "BoundConsumer",
    "BoundProducer",
    "GroupView",
    "SeenTopics",
    "Terms",
    "judge_groups",
    "judge_topics",
]


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The settings of the binder that decide about topics.

    Attributes:
        brokers: The addresses of the brokers, separated by commas.
        creates: Whether topics that do not exist are created.
        enlarges: Whether topics get more partitions.
        min_partitions: Partitions of topics that are created or enlarged, at least.
        replicas: Replicas of each partition of topics that are created; -1: the brokers' own default.
    """

    brokers: str
    creates: bool = True
    enlarges: bool = False
    min_partitions: int = 1
    replicas: int = -1


@dataclass(frozen=True, kw_only=True)
class Bound(ABC):
    """A binding and a topic of it.

    Attributes:
        binding: The binding.
        topic: The topic.
        topic_properties: How the topic is made if it does not exist.
    """

    binding: str
    topic: str
    topic_properties: TopicProperties = field(default_factory=TopicProperties)

    @property
    @abstractmethod
    def partitions(self) -> int:
        """The partitions that the topic should have."""


@dataclass(frozen=True, kw_only=True)
class BoundProducer(Bound):
    """An output.

    Attributes:
        partition_count: Its setting of that name.
    """

    partition_count: int = 1

    @property
    def partitions(self) -> int:
        """The partitions without which the application does not start."""
        return self.partition_count


@dataclass(frozen=True, kw_only=True)
class BoundConsumer(Bound):
    """An input. Its topic may be a regular expression.

    Attributes:
        is_pattern: Whether it is one.
        group: The group that its instances share; None if each instance has a group of its own.
        joins: Whether its instances join the group, so that brokers know them as members.
        instances: The instances that share the topic's partitions.
        concurrency: The calls at the same time in each instance.
        ordered: Whether there is one call at a time for each partition.
        letters: The topic of its dead letters; None if it has none.
        needs_letters: Whether that topic must exist at the start.
    """

    is_pattern: bool = False
    group: str | None = None
    joins: bool = True
    instances: int = 1
    concurrency: int = 1
    ordered: bool = True
    letters: str | None = None
    needs_letters: bool = False

    @property
    def partitions(self) -> int:
        """The partitions without which some instances or calls stay idle."""
        return self.instances * (self.concurrency if self.ordered else 1)


@dataclass(frozen=True, kw_only=True)
class SeenTopics:
    """The topics of the bindings.

    Attributes:
        views: Those that exist, by name.
        configs: The configurations of some, by name and key.
        matched: The topics that each pattern matches.
    """

    views: Mapping[str, TopicView]
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    matched: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GroupView:
    """How far a group is at one moment.

    Attributes:
        group: The group.
        members: The number of its members; None if the brokers do not tell.
        lag: Messages that it has not consumed, in partitions for which it has committed an offset; None without any.
        stored: The sum of the ends of its partitions: what arrives makes it greater.
    """

    group: str
    members: int | None
    lag: int | None
    stored: int


def judge_topics(terms: Terms, bindings: Sequence[Bound], seen: SeenTopics) -> list[Finding]:
    """Return topics that are missing, cannot be used, or are other than the settings say.

    Args:
        terms: The binder's settings.
        bindings: The inputs and outputs.
        seen: The topics.
    """
    found: list[Finding] = []
    for each in bindings:
        if isinstance(each, BoundConsumer) and each.is_pattern:
            if not seen.matched[each.topic]:
                text = f"no topic matches {each.topic}, the pattern of binding {each.binding}"
                found.append(_finding(Severity.WARNING, text, "correct the pattern, or create a topic", each.binding))
            continue
        if isinstance(each, BoundConsumer):
            found.extend(_no_letters(terms, each, seen))
        view = seen.views.get(each.topic)
        if view is None:
            found.extend(_missing(terms, each))
        elif view.error is not None:
            text = f"topic {each.topic} of binding {each.binding} could not be described: {view.error}"
            found.append(_finding(Severity.UNKNOWN, text, None, each.binding, each.topic))
        else:
            found.extend(_leaderless(terms, view))
            found.extend(_small(terms, each, view))
            found.extend(_otherwise(terms, each, view, seen.configs.get(each.topic, {})))
    if bindings and not found:
        topics = {each.topic for each in bindings}
        created = topics - seen.views.keys() - seen.matched.keys()
        more = f"; the application creates {listed(created)}" if created else ""
        found.append(_finding(Severity.OK, f"the Kafka topics of all bindings fit them: {listed(topics)}{more}", None))
    return list(dict.fromkeys(found))


def judge_groups(
    terms: Terms,
    consumers: Sequence[BoundConsumer],
    before: Mapping[str, GroupView],
    after: Mapping[str, GroupView],
    seconds: float,
) -> list[Finding]:
    """Return groups that have lag and no members, and groups with members that fall behind.

    Args:
        terms: The binder's settings.
        consumers: The inputs.
        before: The groups at first.
        after: The groups later; the same for one look only.
        seconds: The time between.
    """
    found: list[Finding] = []
    for name, group in after.items():
        show = f"kafka-consumer-groups.sh --bootstrap-server {terms.brokers} --describe --group {name}"
        joins = all(each.joins for each in consumers if each.group == name)
        first = before[name]
        if group.lag is None:
            text = f"the lag of group {name} is not known: it has committed no offset"
            found.append(_finding(Severity.UNKNOWN, text, None, name, check="lag"))
        elif group.members is None and joins:
            text = f"the members of group {name} are not known, and it has {group.lag:,} message(s) to consume"
            found.append(_finding(Severity.UNKNOWN, text, show, name, check="lag"))
        elif group.lag and not group.members and joins:
            text = f"group {name} has no members, and {group.lag:,} message(s) to consume"
            found.append(_finding(Severity.WARNING, text, "start its application", name, check="lag"))
        elif first.lag is not None and falls_behind(
            first.lag, group.lag, arrived=group.stored - first.stored, seconds=seconds
        ):
            text = f"the lag of group {name} grew from {first.lag:,} to {group.lag:,} in {seconds:g} s"
            mend = f"add instances, up to the number of partitions, or look where they hang: {show}"
            found.append(_finding(Severity.WARNING, text, mend, name, check="lag"))
    if not found and after:
        text = f"no group on Kafka falls behind, or has lag and no members ({len(after)} group(s))"
        found.append(_finding(Severity.OK, text, None, check="lag"))
    return found


def _finding(severity: Severity, text: str, mend: str | None, *about: str, check: str = "bindings") -> Finding:
    return Finding(severity=severity, check=check, about=about, found=text, mend=mend)


def _topics_tool(terms: Terms, arguments: str) -> str:
    return f"kafka-topics.sh --bootstrap-server {terms.brokers} {arguments}"


def _missing(terms: Terms, each: Bound) -> Iterator[Finding]:
    if terms.creates:
        return
    text = (
        f"topic {each.topic} of binding {each.binding} does not exist, and auto-create-topics=false: the application "
        "does not start"
    )
    wanted = max(each.partitions, terms.min_partitions)
    mend = _topics_tool(terms, f"--create --topic {each.topic} --partitions {wanted}")
    yield _finding(Severity.ERROR, text, mend, each.binding, each.topic)


def _no_letters(terms: Terms, each: BoundConsumer, seen: SeenTopics) -> Iterator[Finding]:
    if each.letters is None or each.letters in seen.views or terms.creates:
        return
    severity = Severity.ERROR if each.needs_letters else Severity.WARNING
    what = "the application does not start" if each.needs_letters else "a rejected message stops its partition"
    text = (
        f"topic {each.letters}, for the dead letters of binding {each.binding}, does not exist, and "
        f"auto-create-topics=false: {what}"
    )
    mend = _topics_tool(terms, f"--create --topic {each.letters}")
    yield _finding(severity, text, mend, each.binding, each.letters)


def _leaderless(terms: Terms, view: TopicView) -> Iterator[Finding]:
    if view.without_leader:
        numbers = ", ".join(map(str, view.without_leader))
        text = f"topic {view.name} has partitions without a leader, which nobody can use: {numbers}"
        mend = f"start the brokers that have them: {_topics_tool(terms, f'--describe --topic {view.name}')}"
        yield _finding(Severity.ERROR, text, mend, view.name)


def _small(terms: Terms, each: Bound, view: TopicView) -> Iterator[Finding]:
    """Yield that a topic has too few partitions, unless the application adds them at its start."""
    if terms.enlarges:
        return
    wanted, found = each.partitions, view.partitions
    enlarge = _topics_tool(terms, f"--alter --topic {each.topic} --partitions {wanted}")
    if found < wanted and isinstance(each, BoundProducer):
        text = (
            f"binding {each.binding} asks for {wanted} partitions, and topic {each.topic} has {found}: the application "
            "does not start"
        )
        mend = f"lower partition-count, or {enlarge}"
        yield _finding(Severity.ERROR, text, mend, each.binding, each.topic)
    elif found < wanted and isinstance(each, BoundConsumer):
        what = f"{each.instances} instance(s)" + (f" with concurrency {each.concurrency}" if each.ordered else "")
        text = (
            f"binding {each.binding} has {what} for topic {each.topic} with {found} partition(s): "
            f"{wanted - found} of {wanted} stay idle"
        )
        mend = f"have fewer of them, or {enlarge}"
        yield _finding(Severity.WARNING, text, mend, each.binding, each.topic)
    if found < terms.min_partitions:
        text = (
            f"topic {each.topic} has {found} partition(s), and min-partition-count={terms.min_partitions} does not "
            "change that: it is for new topics"
        )
        mend = f"set {PREFIX}.auto-add-partitions=true, or lower min-partition-count"
        yield _finding(Severity.WARNING, text, mend, each.topic)


def _otherwise(terms: Terms, each: Bound, view: TopicView, configs: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what the settings would give a new topic, and this one has otherwise."""
    properties = each.topic_properties
    replicas = terms.replicas if properties.replication_factor is None else properties.replication_factor
    if view.replicas < replicas and not properties.replicas_assignments:
        text = (
            f"topic {each.topic} has partitions with {view.replicas} replica(s), and replication-factor={replicas} of "
            f"binding {each.binding} does not change that: it is for new topics"
        )
        mend = "add replicas with kafka-reassign-partitions.sh, or correct replication-factor"
        yield _finding(Severity.WARNING, text, mend, each.binding, each.topic)
    for key, wanted in properties.properties.items():
        found = configs.get(key)
        if found is not None and found != wanted:
            text = (
                f"topic {each.topic} has {key}={found}, and topic.properties.{key}={wanted} of binding {each.binding} "
                "does not change that: it is for new topics"
            )
            mend = (
                f"kafka-configs.sh --bootstrap-server {terms.brokers} --alter --entity-type topics "
                f"--entity-name {each.topic} --add-config {key}={wanted}"
            )
            yield _finding(Severity.WARNING, text, mend, each.binding, each.topic)
