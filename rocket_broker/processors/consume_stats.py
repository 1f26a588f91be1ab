"""Requests 208, 314 and 317: measure how far groups have consumed, and give one group the offsets of another."""

from collections.abc import Iterable, Iterator

from rocket_broker.clients.consumer_table import ConsumerTable
from rocket_broker.limits.refusal import check_group_name
from rocket_broker.requests.long_answer import long_answer
from rocket_broker.requests.request_steps import Steps
from rocket_broker.store.message_store import MessageStore
from rocket_broker.tables.consumer_offset_table import ConsumerOffsetTable
from rocket_broker.tables.subscription_group_table import SubscriptionGroupTable
from rocket_broker.tables.topic_table import TopicTable
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
"""Queues, and how far a group is in each; None is a pause."""


class ConsumeStatsProcessor:
    """Compares what groups have consumed with what there is."""

    def __init__(
        self,
        *,
        broker_name: str,
        broker_address: str,
        store: MessageStore,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        offsets: ConsumerOffsetTable,
        consumers: ConsumerTable,
    ) -> None:
        self._broker_name = broker_name
        self._broker_address = broker_address
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers

    def of_group(self, connection: Connection, command: RemotingCommand) -> Steps:
        """GET_CONSUME_STATS (208): how far a group is, in one topic or in all."""
        header = command.header(GetConsumeStatsRequestHeader)
        group = header.consumer_group
        topics = [header.topic] if header.topic else self._offsets.topics_of(group)
        body = LongBody(ConsumeStats(offset_table={}), offset_table=Entries(self._progress(group, topics)))
        instead = "ask for single queues (QUERY_CONSUMER_OFFSET)" if header.topic else "name a topic"
        return long_answer(command, body, instead=instead)

    def of_all(self, connection: Connection, command: RemotingCommand) -> Steps:
        """GET_BROKER_CONSUME_STATS (317): how far every group is."""
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
        """CLONE_GROUP_OFFSET (314): give one group the offsets of another."""
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
        """Yield the group's progress, a body for each topic; add to the total how far it is behind."""
        for topic in self._offsets.topics_of(group):
            yield None
            if self._is_consumed(group, topic, only_ordered):
                progress = total.counted(self._progress(group, [topic]))
                yield LongBody(ConsumeStats(offset_table={}), offset_table=Entries(progress))

    def _is_consumed(self, group: str, topic: str, only_ordered: bool = False) -> bool:
        """Whether the topic exists and the group, if it is alive, still subscribes to it."""
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
    """How far all groups are behind, in messages."""

    def __init__(self) -> None:
        self.behind = 0

    def counted(self, progress: Progress) -> Progress:
        """Yield the same, and count it."""
        for entry in progress:
            if entry is not None:
                self.behind += entry[1].broker_offset - entry[1].consumer_offset
            yield entry
