"""Requests 208, 314 and 317: report the progress of groups, and copy the offsets of one group to another."""

from collections.abc import Iterable, Iterator

from rocket_broker.limits.refusal import check_group_name
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.requests.long_answer import long_answer
from rocket_broker.requests.request_steps import Steps
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    Entries,
    Items,
    Later,
    LongBody,
    OffsetWrapper,
)
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    CloneGroupOffsetRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
)
from rocket_remoting.wire.message import MessageQueue

__all__ = ["ConsumeStatsProcessor"]

Progress = Iterator[tuple[MessageQueue, OffsetWrapper] | None]
"""Queues with a group's progress in each; None lets the loop serve other requests."""


class ConsumeStatsProcessor:
    """Compares the consumer offsets of groups with the queues' ends."""

    def __init__(self, context: BrokerContext) -> None:
        self._broker_name = context.settings.broker_name
        self._broker_address = context.address
        self._store = context.store
        self._topics = context.topics
        self._groups = context.groups
        self._offsets = context.offsets
        self._consumers = context.consumers

    def of_group(self, connection: Connection, command: RemotingCommand) -> Steps:
        """GET_CONSUME_STATS (208): a group's progress in one topic or in all its topics."""
        header = command.header(GetConsumeStatsRequestHeader)
        group = header.consumer_group
        topics = [header.topic] if header.topic else self._offsets.topics_of(group)
        body = LongBody(ConsumeStats(offset_table={}), offset_table=Entries(self._progress(group, topics)))
        instead = "ask for single queues (QUERY_CONSUMER_OFFSET)" if header.topic else "name a topic"
        return long_answer(command, body, instead=instead)

    def of_all(self, connection: Connection, command: RemotingCommand) -> Steps:
        """GET_BROKER_CONSUME_STATS (317): the progress of every group."""
        only_ordered = command.header(GetConsumeStatsInBrokerHeader).is_order
        total = _Total()
        body = LongBody(
            ConsumeStatsList(consume_stats_list=[], broker_addr=self._broker_address),
            consume_stats_list=Items(
                Entries([(group, Items(self._stats(group, total, only_ordered=only_ordered)))])
                for group in list(self._groups)
            ),
            total_diff=Later(lambda: total.behind),
        )
        return long_answer(command, body, instead="ask for single groups (GET_CONSUME_STATS)")

    def clone(self, connection: Connection, command: RemotingCommand) -> Steps:
        """CLONE_GROUP_OFFSET (314): copy the offsets of one group to another."""
        header = command.header(CloneGroupOffsetRequestHeader)
        check_group_name(header.dest_group)
        self._topics.system.check_offsets(header.dest_group, header.topic or "")
        topics = [header.topic] if header.topic else self._offsets.topics_of(header.src_group)
        for topic in topics:
            yield
            consumed = header.offline or self._is_consumed(header.src_group, topic)
            if consumed and not self._topics.system.is_internal(topic):
                self._offsets.clone(header.src_group, header.dest_group, topic, connection)
        return RemotingCommand.response(command)

    def _stats(self, group: str, total: "_Total", *, only_ordered: bool) -> Iterator[LongBody | None]:
        """Yield the group's progress, a body for each topic; add its number of unconsumed messages to the total."""
        for topic in self._offsets.topics_of(group):
            yield None
            if self._is_consumed(group, topic, only_ordered):
                progress = total.counted(self._progress(group, [topic]))
                yield LongBody(ConsumeStats(offset_table={}), offset_table=Entries(progress))

    def _is_consumed(self, group: str, topic: str, only_ordered: bool = False) -> bool:
        """Return whether the topic exists and the group, if it has live members, subscribes to it."""
        config = self._topics.get(topic)
        if config is None or (only_ordered and not config.order):
            return False
        live = self._consumers.get(group)
        return live is None or not live.subscriptions or topic in live.subscriptions

    def _progress(self, group: str, topics: Iterable[str]) -> Progress:
        for topic in topics:
            yield None
            config = self._topics.get(topic)
            if config is not None and self._is_consumed(group, topic):
                for queue_id in range(config.read_queue_nums):
                    yield (
                        MessageQueue(topic, self._broker_name, queue_id),
                        self._offset(group, topic, queue_id),
                    )

    def _offset(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        reached = self._offsets.get(group, topic, queue_id) or 0
        stored_at = self._store.store_time(topic, queue_id, reached - 1) if reached > 0 else 0
        return OffsetWrapper(
            broker_offset=max(0, self._store.max_offset(topic, queue_id)),
            consumer_offset=reached,
            pull_offset=reached,
            last_timestamp=max(0, stored_at),
        )


class _Total:
    """The number of messages that all groups together have yet to consume."""

    def __init__(self) -> None:
        self.behind = 0

    def counted(self, progress: Progress) -> Progress:
        """Yield the entries unchanged, and add the unconsumed messages of each to `behind`."""
        for entry in progress:
            if entry is not None:
                self.behind += entry[1].broker_offset - entry[1].consumer_offset
            yield entry
