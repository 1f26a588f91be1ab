"""Looks at the topics, records and groups of the brokers, for consoles.

Records are read by a consumer without a group, which commits nothing and is closed after each read.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar

from binders.kafka.binder_properties import KafkaBinderProperties
from binders.kafka.client_config import Config
from binders.kafka.clients import Admin, ClientMaker, connect_consumer
from binders.kafka.connecting import Interruption
from binders.kafka.topics import Topics
from kafka import TopicPartition
from kafka.errors import KafkaError, UnknownTopicOrPartitionError
from streamkit.binder.exploring import Explorer, Group, GroupMember, GroupPartition, Partition, Record, Topic
from streamkit.errors import BinderError, BinderUnavailable

__all__ = ["KafkaExplorer"]

R = TypeVar("R")

_ANSWER_SECONDS: Final = 5.0
"""Seconds that brokers may take to accept the client, and to answer."""
_POLL_MS: Final = 100
_LAST_MS: Final = 253_402_300_800_000
"""Milliseconds from 1970 until the year 10000, which dates do not reach."""
_MOST_PARTITIONS: Final = 64
"""Partitions whose newest records are read; those behind them are left out."""


class KafkaExplorer(Explorer):
    """Looks at the brokers of one binder."""

    def __init__(self, name: str, address: str, clients: ClientMaker, settings: KafkaBinderProperties) -> None:
        """Create it without connecting.

        Args:
            name: The name of the binder.
            address: The addresses of the brokers in the settings.
            clients: Makes the clients.
            settings: The binder's settings.
        """
        self.address = address
        self._name = name
        self._clients = clients
        self._settings = settings
        self._connecting = asyncio.Lock()
        self._topics: Topics | None = None

    async def topics(self) -> Sequence[Topic]:
        """Return all topics."""
        described = await self._ask(lambda topics: topics.all_described())
        return [
            Topic(
                name=each["name"],
                partitions=len(each["partitions"]),
                replicas=min((len(one["replica_nodes"]) for one in each["partitions"]), default=0),
                without_leader=sum(one["leader_id"] < 0 for one in each["partitions"]),
                is_internal=bool(each["is_internal"]),
            )
            for each in described
        ]

    async def partitions(self, topic: str) -> Sequence[Partition] | None:
        """Return the partitions of a topic; None if there is no such topic."""
        return await self._ask(partial(_partitions_of, topic=topic))

    async def groups(self) -> Sequence[Group]:
        """Return all consumer groups."""
        listed = await self._ask(lambda topics: topics.all_groups())
        return [Group(name=each["group_id"], state=each.get("group_state") or None) for each in listed]

    async def members(self, group: str) -> Sequence[GroupMember]:
        """Return the members of a group that exists."""
        described = await self._ask(lambda topics: topics.group(group))
        return [
            GroupMember(
                client_id=each["client_id"],
                host=each["client_host"].removeprefix("/"),
                partitions=tuple(_assigned(each["member_assignment"])),
            )
            for each in described["members"]
        ]

    async def positions(self, group: str) -> Sequence[GroupPartition]:
        """Return how far a group that exists is, in each partition in which it has committed an offset."""

        async def ask(topics: Topics) -> Sequence[GroupPartition]:
            committed = (await topics.committed([group]))[group]
            ends = await _offsets(topics.ends, committed)
            return [
                GroupPartition(topic=key.topic, number=key.partition, committed=offset, end=ends.get(key))
                for key, offset in committed.items()
            ]

        return await self._ask(ask)

    async def newest(self, topic: str, limit: int, *, seconds: float) -> Sequence[Record]:
        """Return the newest records of a topic, the newest first."""
        partitions = await self.partitions(topic)
        ranges = {
            TopicPartition(topic, each.number): (max(each.begin, each.end - limit), each.end)
            for each in (partitions or ())[:_MOST_PARTITIONS]
            if each.begin is not None and each.end is not None and each.begin < each.end and each.leader is not None
        }
        records = await self._read(ranges, seconds) if ranges else []
        records.sort(key=lambda record: (record.timestamp, record.partition, record.offset), reverse=True)
        return [_record(each) for each in records[:limit]]

    async def record(self, topic: str, partition: int, offset: int, *, seconds: float) -> Record | None:
        """Return the record at an offset; None if there is none, or it does not arrive within `seconds` seconds."""
        for each in await self.partitions(topic) or ():
            if each.number == partition and each.begin is not None and each.end is not None:
                if not each.begin <= offset < each.end:
                    return None
                records = await self._read({TopicPartition(topic, partition): (offset, offset + 1)}, seconds)
                return next((_record(found) for found in records if found.offset == offset), None)
        return None

    async def close(self) -> None:
        """Disconnect."""
        topics, self._topics = self._topics, None
        if topics is not None:
            await topics.close()

    async def _ask(self, question: Callable[[Topics], Awaitable[R]]) -> R:
        """Return the answer to a question; connect before the first one.

        Raises:
            BinderError: The brokers are away, or refuse.
        """
        try:
            async with self._connecting:
                if self._topics is None:
                    self._topics = await Topics.connected(self._connect, self._settings)
            return await question(self._topics)
        except KafkaError as error:
            raise self._failed(error) from error

    def _connect(self, interruption: Interruption) -> Admin:
        return self._clients.admin(interruption, answer_within=_ANSWER_SECONDS)

    def _failed(self, error: KafkaError) -> BinderError:
        text = f"binder {self._name!r} cannot ask the Kafka brokers at {self.address}: {error!r}"
        return BinderUnavailable(text, binder=self._name)

    async def _read(self, ranges: Mapping[TopicPartition, tuple[int, int]], seconds: float) -> list[Any]:
        """Return the records of partitions in ranges of offsets."""
        try:
            return await asyncio.to_thread(_read_ranges, self._clients.reader_config(), ranges, seconds)
        except KafkaError as error:
            raise self._failed(error) from error


async def _partitions_of(topics: Topics, topic: str) -> Sequence[Partition] | None:
    found = next((each for each in await topics.all_described([topic]) if not each["error_code"]), None)
    if found is None:
        return None
    led = {TopicPartition(topic, each["partition_index"]): each["leader_id"] for each in found["partitions"]}
    asked = [key for key, leader in led.items() if leader >= 0]
    begins, ends = await asyncio.gather(_offsets(topics.begins, asked), _offsets(topics.ends, asked))
    return [
        Partition(
            number=key.partition,
            begin=begins.get(key),
            end=ends.get(key),
            leader=str(leader) if leader >= 0 else None,
        )
        for key, leader in sorted(led.items())
    ]


async def _offsets(
    ask: Callable[[Iterable[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]],
    partitions: Iterable[TopicPartition],
) -> Mapping[TopicPartition, int]:
    """Return offsets of partitions; none at all if one of them is gone, which the brokers refuse as a whole."""
    try:
        return await ask(partitions)
    except UnknownTopicOrPartitionError:
        return {}


def _read_ranges(config: Config, ranges: Mapping[TopicPartition, tuple[int, int]], seconds: float) -> list[Any]:
    """Return the records of partitions in ranges of offsets that arrive within `seconds` seconds; this blocks."""
    records: list[Any] = []
    with closing(connect_consumer(config)) as consumer:
        until = monotonic() + seconds
        consumer.assign(list(ranges))
        for key, (begin, _) in ranges.items():
            consumer.seek(key, begin)
        open_ = dict(ranges)
        while open_ and monotonic() < until:
            for key, found in consumer.poll(timeout_ms=_POLL_MS).items():
                records += [each for each in found if each.offset < ranges[key][1]]
            # Offsets without a record, such as those of transactions' marks, are passed over by the position only.
            open_ = {key: (begin, end) for key, (begin, end) in open_.items() if consumer.position(key) < end}
            consumer.pause(*(key for key in ranges if key not in open_))
    return records


def _record(record: Any) -> Record:
    return Record(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        time=datetime.fromtimestamp(record.timestamp / 1000, UTC) if 0 <= record.timestamp < _LAST_MS else None,
        key=record.key,
        headers=tuple((name, value or b"") for name, value in record.headers),
        body=record.value,
    )


def _assigned(assignment: Any) -> Iterable[str]:
    """Yield the partitions in a member's assignment; none if it is not of Kafka's consumer protocol."""
    if isinstance(assignment, Mapping):
        for each in assignment.get("assigned_partitions") or ():
            for number in each["partitions"]:
                yield f"{each['topic']}-{number}"
