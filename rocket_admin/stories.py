"""The story of a message: where it is stored, which groups got it, each delivery with its failure, and what comes next.

::

    orders               the record that the sender made
    %RETRY%kitchen       a copy for each redelivery to a group
    SCHEDULE_TOPIC_XXXX  the copy for a redelivery that is not due yet; its property REAL_TOPIC names the group's topic
    %DLQ%kitchen         the copy that is not delivered any more
    committed offsets    which of these records a group has passed

All copies keep the id that the sender gave the message, and brokers find them by it. A delivery is one delivery to a
member of the group, which may call its listener several times: those calls are not stored anywhere. What brokers do not
know is None here, or a sentence in `unknown`.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from rocket_admin.broker_answers import ask_masters
from rocket_admin.delayed_messages import level_delays
from rocket_admin.failure_causes import Cause, cause_of
from rocket_admin.messages import Progress, StoredMessage, broker_names, messages_with_id, named, origin_topic
from rocket_admin.subscribers import groups_of_topic
from rocket_admin.times import moment
from rocket_client import Admin, TopicNotFoundError
from rocket_remoting import RemotingError, ResponseError
from rocket_remoting.wire.bodies import ConsumerConnection, MessageModel, SubscriptionData
from rocket_remoting.wire.message import MessageExt, MessageQueue
from rocket_remoting.wire.properties import (
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_OUT_MS,
)
from rocket_remoting.wire.topics import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
    dlq_topic,
    is_system_group,
    retry_topic,
)

__all__ = ["Delivery", "GroupState", "GroupStory", "Story", "story"]

_GROUPS_AT_ONCE: Final = 16


class GroupState(StrEnum):
    """How far a group is with the message."""

    CONSUMED = "consumed"
    """The group's committed offset is beyond the message, and no copy waits for another delivery."""
    FILTERED = "filtered"
    """The same, but the group has not subscribed to the message's tag."""
    WAITING = "waiting"
    """The group's committed offset is at the message or before it: a member may have it now, or none has got it yet."""
    RETRY_WAITING = "waiting-for-redelivery"
    """A delivery has failed, and the next one is not due yet."""
    RETRY_DUE = "redelivery-due"
    """The next delivery is due: a member may have it now, or none has got it yet."""
    DEAD = "dead"
    """The group has given the message up: it is among the group's dead letters."""
    UNKNOWN = "unknown"
    """Brokers do not know: the members receive by broadcasting, or the group has not committed an offset."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One delivery of the message to a member of a group.

    Attributes:
        number: 1 for the first delivery; redelivery n is number n + 1.
        due_at: When it could begin: when its record was stored in its queue.
        failed_at: When its failure was stored; absent if it has not failed, or it is not known.
        outcome: `failed`, `consumed`, `pending` (due or under way), `scheduled` (not due yet), or `unknown`.
        cause: Why it failed; absent if it has not failed, or a client has not written it: Java's do not.
        record: The offset message id of the record that was delivered; absent if it is not stored any more.
    """

    number: int
    due_at: datetime | None
    failed_at: datetime | None
    outcome: str
    cause: Cause | None
    record: str | None


class GroupStory(msgspec.Struct, frozen=True, kw_only=True):
    """The message in one group: its state, its deliveries, and its dead letter.

    Attributes:
        group: The group.
        state: One of `GroupState`.
        detail: The same as a sentence.
        members: The number of connected members; absent if it is not known.
        committed: The group's offset in the queue of the message; absent if the group has committed none.
        ahead: The number of messages of the queue that come before this one; absent if the group is beyond it.
        redeliveries: The number of the last redelivery that is stored; 0 without any.
        next_delivery: When the next delivery is due; absent if none will come, or it is not known.
        deliveries: The deliveries that can be told.
        dead_letter: The offset message id of the dead letter; absent if there is none.
    """

    group: str
    state: GroupState
    detail: str
    members: int | None
    committed: int | None
    ahead: int | None
    redeliveries: int
    next_delivery: datetime | None
    deliveries: Sequence[Delivery]
    dead_letter: str | None


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """The story of a message.

    Attributes:
        message: The record in the topic that the message was sent to, or the oldest copy that is still stored; its
            body is whole.
        is_original: Whether it is that record.
        waits_until: When the message will reach its topic, if it is delayed and not due yet.
        groups: The groups that consume the topic, sorted by name.
        copies: All records of the message, by the time at which they were stored.
        unknown: What cannot be told about this message, a sentence each.
    """

    message: StoredMessage
    is_original: bool
    waits_until: datetime | None
    groups: Sequence[GroupStory]
    copies: Sequence[StoredMessage]
    unknown: Sequence[str]


async def story(
    admin: Admin,
    message_id: str,
    topic: str | None = None,
    groups: Iterable[str] | None = None,
    *,
    progress: Progress | None = None,
) -> Story | None:
    """Return the story of a message, or None if no record of it is found.

    Args:
        admin: A running admin.
        message_id: An offset message id, or the id that the sender gave the message.
        topic: The topic that it was sent to; by default the topics of applications are searched until one has it.
        groups: The groups to tell about; by default all that consume the topic.
        progress: Called with the number of topics that were searched, and with that of all; only without `topic`.

    Raises:
        TopicNotFoundError: The topic does not exist.
        RemotingError: A broker cannot be reached, or refuses.
    """
    found = await messages_with_id(admin, message_id, topic, progress=progress)
    search = _Search(admin, await broker_names(admin))
    if not found:
        # Delayed messages, and those of open transactions, have not reached their topic.
        aside = [await search.copies(each, message_id) for each in (SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC)]
        found = [message for messages in aside for message in messages]
    if not found:
        return None
    first = min(found, key=lambda message: message.store_timestamp)
    return await _Telling(admin, search, first).tell(groups)


class _Search(msgspec.Struct, frozen=True):
    """Finds the records of a message by the id that its sender gave it.

    Attributes:
        admin: The admin.
        names: The names of brokers by address.
    """

    admin: Admin
    names: Mapping[str, str]

    async def copies(self, topic: str, unique_key: str | None) -> list[MessageExt]:
        """Return the records in one topic by time; none if the topic does not exist or may not be queried."""
        if unique_key is None:
            return []
        try:
            found = await self.admin.query_by_unique_key(topic, unique_key)
        except (TopicNotFoundError, ResponseError):
            return []
        return sorted(named(found, self.names), key=lambda message: message.store_timestamp)

    async def record(self, offset_message_id: str) -> list[MessageExt]:
        """Return the record with this id; none if it is not there."""
        try:
            return named([await self.admin.view_message(offset_message_id)], self.names)
        except RemotingError:
            return []


class _Telling:
    """Collects what there is to know about one message."""

    def __init__(self, admin: Admin, search: _Search, message: MessageExt) -> None:
        """Begin with the record that was found first."""
        self._admin = admin
        self._search = search
        self._message = message
        self._unknown: list[str] = []
        self._levels: Mapping[int, timedelta] = {}
        self._scheduled: list[MessageExt] = []

    async def tell(self, groups: Iterable[str] | None) -> Story:
        topic, key = origin_topic(self._message), self._message.unique_key
        if key is None:
            self._unknown.append(
                "the sender gave the message no id, so its copies for redeliveries and dead letters cannot be found"
            )
        is_original = await self._find_original(topic)
        for each in (SCHEDULE_TOPIC, TIMER_TOPIC):
            self._scheduled += await self._search.copies(each, key)
        if self._scheduled:
            self._levels = await self._delays()
        delayed = [] if is_original else self._waiting_for(topic)
        names = sorted(await self._groups(topic) if groups is None else set(groups))
        turns = asyncio.Semaphore(_GROUPS_AT_ONCE)

        async def of(group: str) -> tuple[GroupStory, list[MessageExt]]:
            async with turns:
                return await self._of_group(group, is_original)

        told = await asyncio.gather(*map(of, names))
        if groups is None:
            told = [each for each in told if not _is_no_group(each[0], topic)]
        copies = [*self._scheduled, *(each for _, records in told for each in records)]
        if is_original:
            copies.append(self._message)
        copies.sort(key=lambda message: (message.store_timestamp, message.commit_log_offset))
        if not told:
            self._unknown.append(f"no group has consumed topic {topic!r} yet, as far as brokers know")
        return Story(
            message=StoredMessage.of(self._message, whole_body=True),
            is_original=is_original,
            waits_until=self._due_time(delayed[-1]) if delayed else None,
            groups=tuple(story for story, _ in told),
            copies=tuple(map(StoredMessage.of, copies)),
            unknown=tuple(dict.fromkeys(self._unknown)),
        )

    async def _find_original(self, topic: str) -> bool:
        """Find the record in the topic that the message was sent to; return whether it is still there."""
        message = self._message
        if message.topic == topic:
            return True
        found = await self._search.copies(topic, message.unique_key)
        origin = message.properties.get(PROPERTY_ORIGIN_MESSAGE_ID)
        if not found and origin is not None:
            found = await self._search.record(origin)
        if not found:
            self._unknown.append(f"topic {topic!r} does not have the message: it is deleted, or not stored there yet")
            return False
        self._message = found[0]
        return True

    async def _delays(self) -> Mapping[int, timedelta]:
        """Return the durations of the broker's delay levels by number; empty if they are not known."""
        try:
            settings = await self._admin.broker_settings()
        except RemotingError as error:
            self._unknown.append(f"when the next delivery is due: the broker does not show its delay levels ({error})")
            return {}
        texts = [each["messageDelayLevel"] for each in settings.values() if "messageDelayLevel" in each]
        return level_delays(texts[0]) if texts else {}

    async def _groups(self, topic: str) -> set[str]:
        found = await ask_masters(self._admin, lambda address: groups_of_topic(self._admin, address, topic))
        for failure in found.failures:
            self._unknown.append(f"the groups that broker {failure.broker_name} knows: {failure.reason}")
        return {group for groups in found.answers.values() for group in groups if not is_system_group(group)}

    async def _of_group(self, group: str, is_original: bool) -> tuple[GroupStory, list[MessageExt]]:
        key = self._message.unique_key
        retries = await self._search.copies(retry_topic(group), key)
        letters = await self._search.copies(dlq_topic(group), key)
        scheduled = self._waiting_for(retry_topic(group))
        passed: set[str] = set()
        for each in retries:
            committed = await self._committed(group, each.queue)
            if committed is not None and committed > each.queue_offset:
                passed.add(each.offset_message_id)
        records = _Records(
            group=group,
            message=self._message,
            is_original=is_original,
            members=await self._members(group),
            committed=await self._committed(group, self._message.queue) if is_original else None,
            scheduled={each.reconsume_times: each for each in scheduled},
            retries={each.reconsume_times: each for each in retries},
            letter=letters[-1] if letters else None,
            passed=passed,
        )
        waiting = records.scheduled.get(records.last)
        return records.story(None if waiting is None else self._due_time(waiting)), [*retries, *letters]

    async def _members(self, group: str) -> ConsumerConnection | None:
        try:
            return await self._admin.consumer_connections(group, self._message.broker_name or None)
        except (ResponseError, ValueError):  # no member is connected to the broker
            return None

    async def _committed(self, group: str, queue: MessageQueue) -> int | None:
        if not queue.broker_name:
            return None
        try:
            return await self._admin.committed_offset(queue, group)
        except (ResponseError, TopicNotFoundError) as error:
            self._unknown.append(f"the offset of group {group!r} in {queue}: {error}")
            return None

    def _waiting_for(self, topic: str) -> list[MessageExt]:
        """Return the records that wait, or have waited, for their time to come into a topic."""
        return [each for each in self._scheduled if each.properties.get(PROPERTY_REAL_TOPIC) == topic]

    def _due_time(self, waiting: MessageExt) -> datetime | None:
        """Return when a record that waits will be delivered."""
        at = waiting.properties.get(PROPERTY_TIMER_OUT_MS, "")
        if at.isdecimal():
            return moment(int(at))
        # Queue n of the schedule topic belongs to level n + 1.
        delay = self._levels.get(waiting.queue_id + 1)
        return None if delay is None else moment(waiting.store_timestamp) + delay


class _Records(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored about the message and one group.

    Attributes:
        group: The group.
        message: The record in the topic, or the oldest copy.
        is_original: Whether it is that record.
        members: The connected members and their subscriptions; None if there are none.
        committed: The group's offset in the queue of the message.
        scheduled: The copies that wait or have waited for their redelivery, by its number.
        retries: The copies in the retry topic, by the number of the redelivery.
        letter: The dead letter.
        passed: The ids of those in the retry topic that the group's offset is beyond.
    """

    group: str
    message: MessageExt
    is_original: bool
    members: ConsumerConnection | None
    committed: int | None
    scheduled: Mapping[int, MessageExt]
    retries: Mapping[int, MessageExt]
    letter: MessageExt | None
    passed: AbstractSet[str]

    @property
    def last(self) -> int:
        """The number of the last redelivery that is stored; 0 without any."""
        return max(0, *self.scheduled, *self.retries) if self.scheduled or self.retries else 0

    def story(self, next_delivery: datetime | None) -> GroupStory:
        state = self._state()
        is_scheduled = state is GroupState.RETRY_WAITING
        due = next_delivery if is_scheduled else None
        is_ahead = self.committed is not None and self.committed <= self.message.queue_offset
        return GroupStory(
            group=self.group,
            state=state,
            detail=self._detail(state),
            members=None if self.members is None else len(self.members.connection_set),
            committed=self.committed,
            ahead=self.message.queue_offset - self.committed if is_ahead and self.committed is not None else None,
            redeliveries=self.last,
            next_delivery=due,
            deliveries=tuple(self._delivery(number, state, due) for number in range(self.last + 1)),
            dead_letter=None if self.letter is None else self.letter.offset_message_id,
        )

    def _state(self) -> GroupState:
        if self.letter is not None:
            return GroupState.DEAD
        if self.last:
            again = self.retries.get(self.last)
            if again is None:
                return GroupState.RETRY_WAITING
            return GroupState.CONSUMED if again.offset_message_id in self.passed else GroupState.RETRY_DUE
        return self._state_of_original()

    def _state_of_original(self) -> GroupState:
        if self._is_broadcast or self.committed is None:
            return GroupState.UNKNOWN
        if self.committed <= self.message.queue_offset:
            return GroupState.WAITING
        return GroupState.FILTERED if self._is_filtered() else GroupState.CONSUMED

    @property
    def _is_broadcast(self) -> bool:
        return self.members is not None and self.members.message_model is MessageModel.BROADCASTING

    def _is_filtered(self) -> bool:
        known: Mapping[str, SubscriptionData] = {} if self.members is None else self.members.subscription_table
        data = known.get(self.message.topic)
        if data is None or data.expression_type != "TAG" or not data.tags_set:
            return False
        return (self.message.tags or "") not in data.tags_set

    def _detail(self, state: GroupState) -> str:
        count = f" after {_redeliveries(self.last)}" if self.last else ""
        texts = {
            GroupState.CONSUMED: f"consumed{count}",
            GroupState.FILTERED: "passed over: the group has not subscribed to the message's tag",
            GroupState.WAITING: self._waiting(),
            GroupState.RETRY_WAITING: f"redelivery {self.last} is not due yet",
            GroupState.RETRY_DUE: f"redelivery {self.last} is due, and no member has settled it yet",
            GroupState.DEAD: f"given up{count}: it is in {dlq_topic(self.group)}",
            GroupState.UNKNOWN: f"unknown: {self._reason()}",
        }
        return texts[state]

    def _reason(self) -> str:
        if not self.is_original:
            return "the record that the group consumes is not there"
        if self._is_broadcast:
            return "its members receive by broadcasting and keep their offsets themselves"
        return "the group has committed no offset in this queue"

    def _waiting(self) -> str:
        ahead = self.message.queue_offset - (self.committed or 0)
        before = "it is the next one of its queue" if not ahead else f"{ahead} of its queue come before it"
        if self.members is None:
            return f"not consumed: no member of the group is connected; {before}"
        return f"not settled: {before}"

    def _delivery(self, redelivery: int, state: GroupState, due: datetime | None) -> Delivery:
        """Return the delivery that is redelivery `redelivery`, or with 0 the first one."""
        record = self.retries.get(redelivery) if redelivery else (self.message if self.is_original else None)
        failure = self._failure(redelivery)
        scheduled_at = due if redelivery == self.last and redelivery else None
        if failure is not None:
            outcome = "failed"
        elif redelivery < self.last:
            outcome = "failed"  # there is a later redelivery, though its record is not there any more
        else:
            outcome = _OUTCOMES[state]
        return Delivery(
            number=redelivery + 1,
            due_at=scheduled_at if record is None else moment(record.store_timestamp),
            failed_at=self._failed_at(redelivery),
            outcome=outcome,
            cause=None if failure is None else cause_of(failure),
            record=None if record is None else record.offset_message_id,
        )

    def _failure(self, redelivery: int) -> MessageExt | None:
        """Return the record that the failure of a delivery has made."""
        made = self.scheduled.get(redelivery + 1) or self.retries.get(redelivery + 1)
        return self.letter if made is None and redelivery == self.last else made

    def _failed_at(self, redelivery: int) -> datetime | None:
        # A record of the retry topic is stored when it is due, and so later than the failure.
        made = self.scheduled.get(redelivery + 1)
        if made is None and redelivery == self.last:
            made = self.letter
        return None if made is None else moment(made.store_timestamp)


_OUTCOMES: Final = {
    GroupState.CONSUMED: "consumed",
    GroupState.FILTERED: "filtered",
    GroupState.WAITING: "pending",
    GroupState.RETRY_WAITING: "scheduled",
    GroupState.RETRY_DUE: "pending",
    GroupState.DEAD: "failed",
    GroupState.UNKNOWN: "unknown",
}


def _is_no_group(told: GroupStory, topic: str) -> bool:
    """Return whether the group does not exist: brokers of 5.x name the topic among the groups that subscribe to it."""
    # ConsumerManager.registerConsumer of 5.3.3 adds the subscription's topic to the groups of the topic.
    return told.group == topic and told.members is None and not told.committed and not told.redeliveries


def _redeliveries(count: int) -> str:
    return f"{count} redeliver{'y' if count == 1 else 'ies'}"
