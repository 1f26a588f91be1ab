"""Examines brokers, topics and groups for `streamkit doctor`: asks the admin client only, and changes nothing.

`diagnosis.py` judges what is found here.
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress

from binders.kafka.binder_properties import KafkaBinderProperties
from binders.kafka.diagnosis import (
    Bound,
    BoundConsumer,
    BoundProducer,
    GroupView,
    SeenTopics,
    Terms,
    judge_groups,
    judge_topics,
)
from binders.kafka.properties import KafkaConsumerProperties, KafkaProducerProperties
from binders.kafka.topics import Topics
from kafka import TopicPartition
from kafka.errors import KafkaError
from streamkit.binder.binder import ConsumerDestination, ProducerDestination
from streamkit.findings import Finding, Severity, listed

__all__ = ["Examination", "bound_consumer", "bound_producer", "check_addresses"]

_OFFSETS = "__consumer_offsets"
"""The topic in which brokers keep groups. Asking for a group would create it."""


async def check_addresses(addresses: Iterable[str], mend: str, seconds: float) -> dict[str, Finding | None]:
    """Return for each address the finding that nothing listens there, None if something does.

    Args:
        addresses: The addresses, each as `host:port`.
        mend: What to do if an address cannot be reached.
        seconds: How long a server may take to accept a connection.
    """

    async def check(address: str) -> Finding | None:
        try:
            host, _, port = address.rpartition(":")
            async with asyncio.timeout(seconds):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except TimeoutError:
            reason = f"nothing answers within {seconds:g} s"
        except OSError as error:  # a name that cannot be resolved has a negative number
            reason = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error)
        except ValueError as error:
            reason = str(error)
        else:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            return None
        text = f"Kafka broker {address} cannot be reached from here: {reason}"
        return Finding(severity=Severity.ERROR, check="brokers", about=(address,), found=text, mend=mend)

    distinct = list(dict.fromkeys(addresses))
    return dict(zip(distinct, await asyncio.gather(*map(check, distinct)), strict=True))


def bound_consumer(destination: ConsumerDestination, letters: str | None) -> BoundConsumer:
    """Return what is examined of an input.

    Args:
        destination: The input's destination.
        letters: Its dead-letter topic; None if it has none.
    """
    extended = destination.extended
    assert isinstance(extended, KafkaConsumerProperties)
    is_own = destination.group is None or extended.broadcast
    return BoundConsumer(
        binding=destination.binding,
        topic=destination.name,
        topic_properties=extended.topic,
        is_pattern=extended.destination_is_pattern,
        group=None if is_own else destination.group,
        joins=extended.auto_rebalance_enabled,
        instances=1 if is_own else destination.instance_count,
        concurrency=destination.properties.concurrency,
        ordered=destination.delivery.ordered,
        letters=letters,
        needs_letters=bool(extended.enable_dlq),
    )


def bound_producer(destination: ProducerDestination) -> BoundProducer:
    """Return what is examined of an output."""
    extended = destination.extended
    assert isinstance(extended, KafkaProducerProperties)
    return BoundProducer(
        binding=destination.binding,
        topic=destination.name,
        topic_properties=extended.topic,
        partition_count=destination.properties.partition_count,
    )


class Examination:
    """One examination of the brokers of a binder."""

    def __init__(
        self,
        topics: Topics,
        settings: KafkaBinderProperties,
        brokers: Sequence[str],
        consumers: Sequence[BoundConsumer],
        producers: Sequence[BoundProducer],
    ) -> None:
        """Make an examination.

        Args:
            topics: Asks the brokers.
            settings: The binder's settings.
            brokers: The addresses of the brokers in the settings.
            consumers: The inputs.
            producers: The outputs.
        """
        self._topics = topics
        self._terms = Terms(
            brokers=",".join(brokers),
            creates=settings.auto_create_topics,
            enlarges=settings.auto_add_partitions,
            min_partitions=settings.min_partition_count,
            replicas=settings.replication_factor,
        )
        self._brokers = brokers
        self._consumers = consumers
        self._producers = producers

    async def findings(self, watch: float, answer_within: float) -> list[Finding]:
        """Return what is wrong, and what is not.

        Args:
            watch: Seconds between the two measurements that show whether lag grows; 0 measures once.
            answer_within: Seconds that a broker may take to accept a connection.
        """
        found = await asyncio.gather(
            _asked("brokers", "the brokers", self._advertised(answer_within)),
            _asked("bindings", "the topics", self._bindings()),
            _asked("lag", "the groups", self._groups(watch)),
        )
        return [finding for each in found for finding in each]

    async def _advertised(self, seconds: float) -> list[Finding]:
        advertised = await self._topics.brokers()
        others = [address for address in advertised if address not in self._brokers]
        mend = (
            "start it; if it runs, set advertised.listeners in its server.properties to an address that clients reach"
        )
        found = await check_addresses(others, mend, seconds)
        findings = [finding for finding in found.values() if finding is not None]
        if findings:
            return findings
        text = f"Kafka brokers {listed(advertised)}: reachable from here, at the advertised addresses"
        return [Finding(severity=Severity.OK, check="brokers", about=tuple(advertised), found=text)]

    async def _bindings(self) -> list[Finding]:
        bindings: list[Bound] = [*self._consumers, *self._producers]
        matched = await self._matched()
        letters = {each.letters for each in self._consumers if each.letters is not None}
        views = await self._topics.views({each.topic for each in bindings} - matched.keys() | letters)
        configured = {each.topic for each in bindings if each.topic_properties.properties}
        existing = sorted(name for name in configured & views.keys() if views[name].error is None)
        configs = await self._topics.configs(existing)
        return judge_topics(self._terms, bindings, SeenTopics(views=views, configs=configs, matched=matched))

    async def _matched(self) -> Mapping[str, Sequence[str]]:
        """Return the topics that each pattern matches."""
        patterns = {each.topic for each in self._consumers if each.is_pattern}
        names = await self._topics.names() if patterns else []
        return {pattern: [name for name in names if re.match(pattern, name)] for pattern in patterns}

    async def _groups(self, watch: float) -> list[Finding]:
        first = await self._sample()
        if not first or not watch:
            return judge_groups(self._terms, self._consumers, first, first, 0.0)
        await asyncio.sleep(watch)
        return judge_groups(self._terms, self._consumers, first, await self._sample(), watch)

    async def _sample(self) -> dict[str, GroupView]:
        """Return how far each group of the inputs is in the topics that it consumes here."""
        groups = sorted({each.group for each in self._consumers if each.group is not None})
        if not groups or not await self._topics.views([_OFFSETS]):
            return {group: GroupView(group=group, members=0, lag=None, stored=0) for group in groups}
        members, committed = await asyncio.gather(self._topics.members(groups), self._topics.committed(groups))
        ends = await self._topics.ends(await self._partitions())
        topics = await self._topics_by_group()
        return {group: _view(group, members.get(group), committed[group], _of(topics[group], ends)) for group in groups}

    async def _partitions(self) -> list[TopicPartition]:
        names = {topic for topics in (await self._topics_by_group()).values() for topic in topics}
        views = await self._topics.views(names)
        return [
            TopicPartition(name, number)
            for name, view in views.items()
            for number in range(view.partitions)
            if number not in view.without_leader
        ]

    async def _topics_by_group(self) -> dict[str, set[str]]:
        matched = await self._matched()
        topics: dict[str, set[str]] = {}
        for each in self._consumers:
            if each.group is not None:
                topics.setdefault(each.group, set()).update(matched[each.topic] if each.is_pattern else [each.topic])
        return topics


def _of(topics: set[str], ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {key: end for key, end in ends.items() if key.topic in topics}


def _view(
    group: str, members: int | None, committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> GroupView:
    lags = [max(0, end - committed[key]) for key, end in ends.items() if key in committed]
    return GroupView(group=group, members=members, lag=sum(lags) if lags else None, stored=sum(ends.values()))


async def _asked(check: str, what: str, work: Awaitable[list[Finding]]) -> list[Finding]:
    """Return the findings of a check; if the brokers refuse it or do not answer, the finding that says so."""
    try:
        return await work
    except KafkaError as error:
        text = f"{what} were not examined: {error!r}"
        return [Finding(severity=Severity.WARNING, check=check, found=text)]
