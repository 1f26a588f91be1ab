"""The property filter of each group for each topic, kept in Apache's ``consumerFilter.json``.

Heartbeats register the filters. When a group's last member leaves, its filters are only marked as dead, so that they
apply again when the group comes back. A dead filter is dropped after ``filterDataCleanTimeSpan`` (a day), or earlier if
there are too many filters. Of a group's filters the one with the newest client version counts.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

import msgspec

from rocket_broker.files.table_file import TableFile
from rocket_broker.filter.bloom import BloomFilterData, bits_of
from rocket_broker.filter.sql import MAX_LENGTH, SqlError, SqlExpression, compile_sql
from rocket_broker.filter.subscription import is_tag_type
from rocket_broker.limits.owner_quota import OwnerQuota, owner_group
from rocket_broker.limits.refusal import Refusal
from rocket_broker.loop.loop_steps import collected, run_in_steps
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_remoting.clock import Clock
from rocket_remoting.session.connection import Connection
from rocket_remoting.steps import run_all
from rocket_remoting.wire.bodies import (
    Body,
    Entries,
    LongBody,
    SubscriptionData,
    decode_body,
    encode_in_pieces,
)
from rocket_remoting.wire.properties import PROPERTY_RETRY_TOPIC

__all__ = ["ConsumerFilter", "ConsumerFilterTable", "RetryFilter"]

logger = logging.getLogger(__name__)

SAVE_SECONDS = 10.0
MOST_COMPILED = 4 * MAX_LENGTH
"""Maximum number of characters that one heartbeat has compiled; the next heartbeat compiles further filters."""
MAX_FILTERS = 65_536
MAX_CHARACTERS = 1024 * 1024
"""Limits of all filters: their number, and the characters of their different expressions, which take some 80 MB when
compiled. Dead filters make room for new ones, the longest dead first; filters of live groups do not. One group, and one
address, has a quarter of the characters at most, of which a filter takes its length, but at least `SMALLEST`."""
SMALLEST = MAX_CHARACTERS // MAX_FILTERS
"""With this minimum, a quarter of the characters is also a quarter of the filters."""

_STEP = "writing the consumer filters"

_Compile = Callable[[str, Connection | None], SqlExpression]


class ConsumerFilter(Body):
    """A group's filter for a topic, as in the file.

    Attributes:
        born_time: When the broker registered it, in milliseconds since 1970.
        dead_time: When the group's last member left, in milliseconds since 1970; 0 while the group has members.
        client_version: Version of the subscription.
    """

    consumer_group: str = ""
    topic: str = ""
    expression: str = ""
    expression_type: str = ""
    born_time: int = 0
    dead_time: int = 0
    bloom_filter_data: BloomFilterData | None = None
    client_version: int = 0

    @property
    def is_dead(self) -> bool:
        """Whether the group has no live member."""
        return self.dead_time >= self.born_time


class _TopicFilters(Body):
    group_filter_data: dict[str, ConsumerFilter] = msgspec.field(default_factory=dict)
    topic: str = ""


class _Stored(Body):
    """``{"filterDataByTopic": {topic: {"groupFilterData": {group: filter}, "topic": topic}}}``"""

    filter_data_by_topic: dict[str, _TopicFilters] = msgspec.field(default_factory=dict)


class ConsumerFilterTable:
    """The property filters of all groups."""

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        compiling: _Compile = lambda text, connection: compile_sql(text),
    ) -> None:
        self._settings = settings
        self._compile = compiling
        self._clock = clock
        self._file = TableFile(settings.config_dir / "consumerFilter.json")
        self._groups: dict[str, dict[str, ConsumerFilter]] = {}
        self._compiled: dict[tuple[str, str], SqlExpression] = {}
        self._users: Counter[str] = Counter()
        self._characters = 0
        self._quota = OwnerQuota("characters of filters", lambda: MAX_CHARACTERS)
        self._owners: dict[tuple[str, str], tuple[str, ...]] = {}
        # Filters of groups without members, the longest dead first: all of them, and those of each owner.
        self._dead: dict[tuple[str, str], None] = {}
        self._dead_of: dict[str, dict[tuple[str, str], None]] = {}
        self._dirty = False

    def load(self) -> None:
        """Read ``consumerFilter.json``; all filters in it are dead until a heartbeat of their group comes.

        Raises:
            DamagedTable: The file and its backup are both unreadable.
            TableUnreadable: The file system refuses to read the file.
        """
        stored = self._file.load(lambda data: decode_body(data, _Stored))
        filters = [
            (group, topic, known)
            for topic, of_topic in (stored or _Stored()).filter_data_by_topic.items()
            for group, known in of_topic.group_filter_data.items()
        ]
        for group, topic, known in sorted(filters, key=lambda filter_: filter_[2].dead_time):
            try:
                self._keep(group, topic, known, compile_sql(known.expression), ())
            except SqlError as e:
                logger.warning("could not load the filter of group %s for %s: %s", group, topic, e)
        for group in self._groups:
            self.unregister(group)

    def register(
        self, group: str, subscriptions: Iterable[SubscriptionData], member: Connection | None = None
    ) -> Generator[None, None, None]:
        """Register the filters of a member's heartbeat, in steps; mark the group's other filters as dead."""
        filtered = {data.topic: data for data in subscriptions if not is_tag_type(data.expression_type)}
        known = self._groups.get(group, {})
        if not filtered and not known:
            return
        budget = MOST_COMPILED
        for topic, data in filtered.items():
            if budget > 0:
                budget -= self._register(group, topic, data, member)
            yield
        known = self._groups.get(group, {})
        for topic in known.keys() - filtered.keys():
            if topic in known:
                self._mark_dead(group, topic, known[topic])
            yield

    def unregister(self, group: str) -> None:
        """Mark the filters of a group without live members as dead."""
        for topic, known in self._groups.get(group, {}).items():
            self._mark_dead(group, topic, known)

    def get(self, group: str, topic: str) -> tuple[ConsumerFilter, SqlExpression] | None:
        """Return the group's filter for the topic with its compiled expression; None if there is none."""
        known = self._groups.get(group, {}).get(topic)
        return (known, self._compiled[group, topic]) if known is not None else None

    def save(self) -> None:
        """Write ``consumerFilter.json`` if a filter has changed since it was last written, in one step.

        Raises:
            OSError: The file cannot be written.
        """
        run_all(self._forget_long_dead())
        if self._dirty:
            self._dirty = False
            self._file.write(b"".join(encode_in_pieces(self._body())))

    async def write(self) -> None:
        """Write ``consumerFilter.json`` if a filter has changed since it was last written, in steps and in a thread.

        Raises:
            OSError: The file cannot be written.
        """
        await run_in_steps(_STEP, self._forget_long_dead())
        if self._dirty:
            self._dirty = False
            pieces = await run_in_steps(_STEP, collected(encode_in_pieces(self._body())))
            await self._file.write_and_sync(pieces)

    async def save_periodically(self) -> None:
        """Write the file every `SAVE_SECONDS`; runs until cancelled."""
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            try:
                await self.write()
            except BaseException as e:
                self._dirty = True
                if not isinstance(e, OSError):
                    raise
                logger.error("could not write the consumer filters, trying again: %s", e)

    def _register(self, group: str, topic: str, data: SubscriptionData, member: Connection | None) -> int:
        """Register one subscription; return the number of characters that were compiled."""
        peer = member.log_peer if member is not None else {}
        known = self._groups.get(group, {}).get(topic)
        text = data.sub_string or ""
        if known is not None:
            if data.sub_version < known.client_version:
                return 0
            if data.sub_version == known.client_version or known.expression == text:
                known.client_version = data.sub_version
                if known.is_dead:
                    known.dead_time = 0
                    self._forget_dead(group, topic)
                    self._dirty = True
                return 0
        try:
            compiled = self._compile(text, member)
        except Refusal:
            return MOST_COMPILED  # too much was compiled recently: the next heartbeat tries again
        except SqlError as e:
            if known is not None:
                self._drop(group, topic)  # the refusals of pull requests give the error
            logger.warning("group %s: invalid filter expression for %s: %s", group, topic, e, extra=peer)
            return len(text)
        owners = (owner_group(group), member.counted_as) if member is not None else ()
        if not self._make_room(text, owners):
            logger.warning(
                "group %s: the filter for %s, of %d characters, is not kept: the limit is reached",
                group, topic, len(text), extra=peer,
            )  # fmt: skip
            return len(text)
        logger.info("group %s filters %s by %s", group, topic, text, extra=peer)
        new = ConsumerFilter(
            consumer_group=group,
            topic=topic,
            expression=text,
            expression_type=data.expression_type or "",
            born_time=self._clock.now_ms(),
            bloom_filter_data=bits_of(group, topic),
            client_version=data.sub_version,
        )
        self._keep(group, topic, new, compiled, owners)
        return len(text)

    def _make_room(self, text: str, owners: tuple[str, ...]) -> bool:
        """Drop dead filters, the longest dead first, until one more filter fits; return whether it fits.

        If an owner has reached its quota, only dead filters of that owner are dropped.
        """
        while not self._has_room(text, owners):
            full = next((owner for owner in owners if self._quota.remaining(owner) < _size(text)), None)
            dead = self._dead if full is None else self._dead_of.get(full, {})
            oldest = next(iter(dead), None)
            if oldest is None:
                return False
            self._drop(*oldest)
        return True

    def _has_room(self, text: str, owners: tuple[str, ...]) -> bool:
        more = 0 if text in self._users else len(text)
        return (
            len(self._compiled) < MAX_FILTERS
            and self._characters + more <= MAX_CHARACTERS
            and all(self._quota.remaining(owner) >= _size(text) for owner in owners)
        )

    def _keep(
        self, group: str, topic: str, new: ConsumerFilter, compiled: SqlExpression, owners: tuple[str, ...]
    ) -> None:
        if (group, topic) in self._compiled:
            self._drop(group, topic)
        self._quota.count(_size(compiled.text), *owners)
        self._owners[group, topic] = owners
        if new.is_dead:
            self._note_dead(group, topic)
        self._groups.setdefault(group, {})[topic] = new
        self._compiled[group, topic] = compiled
        self._users[compiled.text] += 1
        if self._users[compiled.text] == 1:
            self._characters += len(compiled.text)
        self._dirty = True

    def _drop(self, group: str, topic: str) -> None:
        self._forget_dead(group, topic)
        del self._groups[group][topic]
        if not self._groups[group]:
            del self._groups[group]
        text = self._compiled.pop((group, topic)).text
        self._quota.count(-_size(text), *self._owners.pop((group, topic)))
        self._users[text] -= 1
        if not self._users[text]:
            del self._users[text]
            self._characters -= len(text)
        self._dirty = True

    def _mark_dead(self, group: str, topic: str, known: ConsumerFilter) -> None:
        if not known.is_dead:
            known.dead_time = max(self._clock.now_ms(), known.born_time)
            self._note_dead(group, topic)
            self._dirty = True

    def _note_dead(self, group: str, topic: str) -> None:
        self._dead[group, topic] = None
        for owner in self._owners.get((group, topic), ()):
            self._dead_of.setdefault(owner, {})[group, topic] = None

    def _forget_dead(self, group: str, topic: str) -> None:
        self._dead.pop((group, topic), None)
        for owner in self._owners.get((group, topic), ()):
            dead = self._dead_of.get(owner, {})
            dead.pop((group, topic), None)
            if not dead:
                self._dead_of.pop(owner, None)

    def _forget_long_dead(self) -> Generator[None, None, None]:
        limit = self._clock.now_ms() - self._settings.filter_data_clean_time_span
        for group, topic in list(self._dead):
            known = self._groups.get(group, {}).get(topic)
            if known is not None and known.is_dead and known.dead_time <= limit:
                self._drop(group, topic)
            yield

    def _body(self) -> LongBody:
        return LongBody(_Stored(), filter_data_by_topic=Entries(self._written_topics()))

    def _written_topics(self) -> Iterator[tuple[str, LongBody] | None]:
        """Yield each topic with its groups' filters; None lets the loop serve other clients."""
        by_topic: dict[str, dict[str, ConsumerFilter]] = {}
        for group, topic in list(self._compiled):
            known = self._groups.get(group, {}).get(topic)
            if known is not None:
                by_topic.setdefault(topic, {})[group] = known
            yield None
        for topic, filters in by_topic.items():
            yield topic, LongBody(_TopicFilters(topic=topic), group_filter_data=Entries(filters.items()))


def _size(text: str) -> int:
    """Return the number of characters that a filter takes of its owners' quotas."""
    return max(len(text), SMALLEST)


class RetryFilter:
    """Filters a group's retry topic by the group's filter for the message's original topic.

    Used only with ``filterSupportRetry``; otherwise every message of a retry topic is delivered.
    """

    __slots__ = ("_filters", "_group", "cost")

    def __init__(self, filters: ConsumerFilterTable, group: str) -> None:
        self._filters = filters
        self._group = group
        self.cost = 100
        """Comparisons of a long filter, since the group's filters may be any."""

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Return whether the group's present filter matches the message; True if the group has none for its topic."""
        known = self._filters.get(self._group, properties.get(PROPERTY_RETRY_TOPIC, ""))
        return known is None or known[1].matches(properties)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RetryFilter) and other._group == self._group

    def __hash__(self) -> int:
        return hash(self._group)
