"""Who is in a group, and has which queue."""

from hypothesis import strategies as st

from rocket_remoting.wire.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageModel,
    ProducerData,
    SubscriptionData,
    UnlockBatchRequestBody,
    decode_body,
    encode_body,
)
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    UnregisterClientRequestHeader,
)
from rocket_remoting.wire.message import MessageQueue
from tests.state_campaign.conversation import (
    BROKER,
    OK,
    PRODUCERS,
    Conversation,
    clients,
    groups,
    step,
    subscriptions,
    topics,
)
from tests.state_campaign.model import LOCK_SECONDS

__all__ = ["Membership"]


class Membership(Conversation):
    """What members of groups do."""

    @step(
        client=clients,
        reported=st.dictionaries(groups, st.dictionaries(topics, subscriptions, max_size=4), max_size=3),
        produces=st.booleans(),
        broadcasts=st.booleans(),
        wide=st.sampled_from([0, 0, 0, 300]),
    )
    def heartbeat(
        self, *, client: int, reported: dict[str, dict[str, str]], produces: bool, broadcasts: bool, wide: int
    ) -> None:
        """Groups with their subscriptions, some with hundreds of topics."""
        consumers = [
            ConsumerData(
                group_name=group,
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                message_model=MessageModel.BROADCASTING if broadcasts else MessageModel.CLUSTERING,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                subscription_data_set=[
                    SubscriptionData(
                        topic=topic,
                        sub_string=text.removeprefix("sql: "),
                        sub_version=self.stage.now_ms,
                        expression_type="SQL92" if text.startswith("sql") else "TAG",
                    )
                    for topic, text in (wanted | {f"topic-{n}": "*" for n in range(wide)}).items()
                ],
            )
            for group, wanted in reported.items()
        ]
        producers = [ProducerData(group_name=PRODUCERS)] if produces else []
        body = HeartbeatData(client_id=f"client@{client}", consumer_data_set=consumers, producer_data_set=producers)
        answer = self.ask(client, Code.HEART_BEAT, None, encode_body(body))
        if answer.code == OK:
            for group in reported:
                members = self.stage.embedded.broker.consumers.get(group)
                known = members.client_ids() if members is not None else []
                self.require(f"client@{client}" in known, "member missing", f"client@{client} of {group}: {known}")

    @step(client=clients, group=groups, produces=st.booleans())
    def unregister(self, *, client: int, group: str, produces: bool) -> None:
        """Leave a group."""
        header = UnregisterClientRequestHeader(
            client_id=f"client@{client}", consumer_group=group, producer_group=PRODUCERS if produces else None
        )
        self.ask_ok(client, Code.UNREGISTER_CLIENT, header)

    @step(client=clients, other=clients, group=groups, topic=topics)
    def ask_a_member(self, *, client: int, other: int, group: str, topic: str) -> None:
        """What tools ask of a consumer; our clients leave it unanswered."""
        info = GetConsumerRunningInfoRequestHeader(consumer_group=group, client_id=f"client@{other}")
        self.begin(client, Code.GET_CONSUMER_RUNNING_INFO, info)
        for messages in [m for queue, m in self.model.acknowledged.items() if queue[0] == topic and m]:
            directly = ConsumeMessageDirectlyResultRequestHeader(
                consumer_group=group,
                client_id=f"client@{other}",
                msg_id=messages[max(messages)].message_id.split(",")[-1],
            )
            self.begin(client, Code.CONSUME_MESSAGE_DIRECTLY, directly)

    @step(client=clients, group=groups, topic=topics, ids=st.sets(st.integers(0, 9)), many=st.booleans())
    def lock(self, *, client: int, group: str, topic: str, ids: set[int], many: bool) -> None:
        """Lock queues of a topic, of which some may not exist."""
        ids |= set(range(500)) if many else set()
        queues = {MessageQueue(topic, BROKER, queue_id) for queue_id in ids}
        body = LockBatchRequestBody(consumer_group=group, client_id=f"client@{client}", mq_set=queues)
        answer = self.ask_ok(client, Code.LOCK_BATCH_MQ, None, encode_body(body))
        got = {queue.queue_id for queue in decode_body(answer.body, LockBatchResponseBody).lock_ok_mq_set}
        for queue_id in ids & set(range(self.model.readable(topic))) | got:
            key = group, (topic, queue_id)
            owner, until = self.model.locks.get(key, (f"client@{client}", 0.0))
            is_free = owner == f"client@{client}" or until <= self.stage.now
            self.require(
                (queue_id in got) == is_free,
                "lock",
                f"client@{client} asks for {key}, {owner} has it until {until}: {queue_id in got}",
            )
            if queue_id in got:
                self.model.locks[key] = f"client@{client}", self.stage.now + LOCK_SECONDS

    @step(client=clients, group=groups, topic=topics)
    def unlock(self, *, client: int, group: str, topic: str) -> None:
        """Give up all locks on queues of a topic."""
        mine = {
            key: lock
            for key, lock in self.model.locks.items()
            if key[0] == group and key[1][0] == topic and lock[0] == f"client@{client}"
        }
        queues = {MessageQueue(topic, BROKER, queue_id) for _, (_, queue_id) in mine}
        body = UnlockBatchRequestBody(consumer_group=group, client_id=f"client@{client}", mq_set=queues)
        self.ask_ok(client, Code.UNLOCK_BATCH_MQ, None, encode_body(body))
        for key in mine:
            del self.model.locks[key]
