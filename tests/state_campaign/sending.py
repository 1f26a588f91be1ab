"""Topics, and what producers send to them."""

from functools import partial
from typing import Any

from hypothesis import strategies as st

from rocket_remoting.wire.batch import encode_batch
from rocket_remoting.wire.bodies import (
    CreateTopicListRequestBody,
    SubscriptionGroupConfig,
    TopicConfig,
    encode_body,
)
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    ConsumerSendMsgBackRequestHeader,
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    EndTransactionRequestHeader,
    RecallMessageRequestHeader,
    SendMessageResponseHeader,
)
from rocket_remoting.wire.message import Message
from rocket_remoting.wire.message_id import parse_offset_id
from rocket_remoting.wire.sys_flag import (
    TRANSACTION_COMMIT,
    TRANSACTION_NOT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from tests.end_to_end.raw_client import send_header
from tests.state_campaign.conversation import (
    OK,
    PRODUCERS,
    Conversation,
    clients,
    groups,
    queue_ids,
    step,
    topics,
)
from tests.state_campaign.model import Expected, Half, Sent

__all__ = ["Sending"]

DELAYS = (0, 1, 5, 10, 30, 60, 120, 180, 240)
"""Seconds of the first delay levels."""
OUTCOMES = {"commit": TRANSACTION_COMMIT, "rollback": TRANSACTION_ROLLBACK, "unknown": TRANSACTION_NOT}
CHECKED_SECONDS = 5.0
"""A half message that is older may have been put aside after a check."""


class Sending(Conversation):
    """What producers do."""

    @step(
        client=clients,
        topic=topics,
        queues=st.sampled_from([1, 2, 8, 1000, 5000]),
        perm=st.sampled_from([6, 6, 6, 6, 6, 4, 2]),
    )
    def create_topic(self, *, client: int, topic: str, queues: int, perm: int) -> None:
        """Create a topic, or change one."""
        self.make_topic(client, topic, queues, perm)

    def make_topic(self, client: int, topic: str, queues: int, perm: int) -> None:
        """Create a topic, or change one."""
        header = CreateTopicRequestHeader(
            topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=perm,
            topic_filter_type="SINGLE_TAG",
        )  # fmt: skip
        self.ask_ok(client, Code.UPDATE_AND_CREATE_TOPIC, header)
        self.model.topics[topic] = TopicConfig(
            topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=perm
        )

    @step(client=clients, number=st.integers(1, 60), queues=st.sampled_from([1, 16]))
    def create_topics(self, *, client: int, number: int, queues: int) -> None:
        """Many topics at once."""
        configs = [
            TopicConfig(topic_name=f"many-{n}", read_queue_nums=queues, write_queue_nums=queues) for n in range(number)
        ]
        body = CreateTopicListRequestBody(topic_config_list=configs)
        self.ask_ok(client, Code.UPDATE_AND_CREATE_TOPIC_LIST, None, encode_body(body))

    @step(client=clients, topic=st.sampled_from(["bills", "wide", "%RETRY%g0"]))
    def delete_topic(self, *, client: int, topic: str) -> None:
        """Delete a topic with its messages and offsets; the topic ``orders`` stays."""
        self.ask_ok(client, Code.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic))
        self.model.forget_topic(topic)

    @step(client=clients, group=groups, clean=st.booleans(), retries=st.sampled_from([0, 1, 16]))
    def create_or_delete_group(self, *, client: int, group: str, clean: bool, retries: int) -> None:
        """Delete a group where ``retries`` is 0, else create or change it."""
        if retries:
            config = SubscriptionGroupConfig(group_name=group, retry_max_times=retries)
            self.ask_ok(client, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, encode_body(config))
            return
        header = DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=clean)
        self.ask_ok(client, Code.DELETE_SUBSCRIPTIONGROUP, header)
        if clean:
            self.model.forget_offsets(lambda key: key[0] == group)

    @step(
        client=clients,
        topic=topics,
        queue_id=queue_ids,
        tag=st.sampled_from(["", "A", "B"]),
        keys=st.sampled_from([0, 1, 3, 1000]),
        size=st.sampled_from([0, 10, 5000, 60_000]),
    )
    def send(self, *, client: int, topic: str, queue_id: int, tag: str, keys: int, size: int) -> None:
        """One message; those with many keys have them all in one property."""
        body = self.new_body(size)
        unique_key = self.unique_key
        own = {"UNIQ_KEY": unique_key, "number": unique_key[-1]} | ({"TAGS": tag} if tag else {})
        if keys:
            own["KEYS"] = " ".join(f"k{number}" for number in range(keys))
        answer = self.ask_send(client, topic, queue_id, body, own)
        if answer.code == OK:
            self.note(topic, queue_id, answer, [(body, tag, unique_key)])

    @step(client=clients, number=st.integers(2, 8), size=st.sampled_from([10, 60_000]))
    def send_several(self, *, client: int, number: int, size: int) -> None:
        """Messages one after the other: a file of the commit log has two of the large ones."""
        for _ in range(number):
            body = self.new_body(size)
            answer = self.ask_send(client, "orders", 0, body, {"UNIQ_KEY": self.unique_key})
            if answer.code == OK:
                self.note("orders", 0, answer, [(body, "", self.unique_key)])

    @step(client=clients, topic=topics, queue_id=queue_ids, number=st.sampled_from([1, 3, 40, 1500]))
    def send_batch(self, *, client: int, topic: str, queue_id: int, number: int) -> None:
        """Tiny messages."""
        bodies = [self.new_body(0) for _ in range(number)]
        answer = self.ask_send(
            client, topic, queue_id, encode_batch([Message(topic, body) for body in bodies]), {},
            code=Code.SEND_BATCH_MESSAGE, batch=True,
        )  # fmt: skip
        if answer.code == OK:
            self.note(topic, queue_id, answer, [(body, "", "") for body in bodies])

    @step(client=clients, topic=topics, queue_id=queue_ids, level=st.integers(0, 8), seconds=st.integers(1, 900))
    def send_for_later(self, *, client: int, topic: str, queue_id: int, level: int, seconds: int) -> None:
        """A delay level, or a time where the level is 0."""
        body = self.new_body(10)
        own = {"UNIQ_KEY": self.unique_key}
        own |= {"DELAY": str(level)} if level else {"TIMER_DELAY_SEC": str(seconds)}
        answer = self.ask_send(client, topic, queue_id, body, own)
        if answer.code == OK:
            due = self.stage.now + (DELAYS[level] if level else seconds)
            handle = answer.header(SendMessageResponseHeader).recall_handle
            self.model.expected.append(Expected(body, (topic, queue_id), due, self.stage.kills, handle))

    @step(client=clients, index=st.integers(0, 9))
    def recall(self, *, client: int, index: int) -> None:
        """Take a timed message back; one that is due in a moment may come all the same."""
        timed = [
            expected for expected in self.model.expected if expected.handle is not None and not expected.is_cancelled
        ]
        if not timed:
            return
        expected = timed[index % len(timed)]
        header = RecallMessageRequestHeader(
            topic=expected.queue[0], recall_handle=expected.handle or "", producer_group=PRODUCERS
        )
        answer = self.ask(client, Code.RECALL_MESSAGE, header)
        if answer.code == OK and expected.kills == self.stage.kills and expected.due > self.stage.now + 3:
            expected.is_cancelled = True
        elif answer.code == OK:
            self.model.expected.remove(expected)

    @step(client=clients, topic=topics, queue_id=queue_ids)
    def begin_transaction(self, *, client: int, topic: str, queue_id: int) -> None:
        """Send a half message."""
        body = self.new_body(10)
        key = self.unique_key
        own = {"TRAN_MSG": "true", "PGROUP": PRODUCERS, "UNIQ_KEY": key}
        answer = self.ask_send(
            client, topic, queue_id, body, own, sys_flag=TRANSACTION_PREPARED, producer_group=PRODUCERS
        )
        if answer.code == OK:
            reported = answer.header(SendMessageResponseHeader)
            self.model.halves[body] = Half(
                body, (topic, queue_id), reported.queue_offset, reported.msg_id, key, self.stage.now
            )

    @step(client=clients, index=st.integers(0, 9), outcome=st.sampled_from(sorted(OUTCOMES)))
    def end_transaction(self, *, client: int, index: int, outcome: str) -> None:
        """End a transaction: once, and as its first end says."""
        halves = list(self.model.halves.values())
        if not halves:
            return
        half = halves[index % len(halves)]
        header = EndTransactionRequestHeader(
            producer_group=PRODUCERS,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=parse_offset_id(half.message_id)[2],
            commit_or_rollback=OUTCOMES[outcome],
            msg_id=half.unique_key,
            transaction_id=half.unique_key,
        )
        code = self.ask(client, Code.END_TRANSACTION, header).code
        if outcome == "unknown":
            return
        may_fail = half.outcome is not None or self.stage.now > half.at + CHECKED_SECONDS
        is_right = half.outcome is None if code == OK else may_fail
        self.require(is_right, "end of a transaction", f"{outcome} of {half} was answered {code}")
        if code == OK:
            half.outcome = outcome

    @step(client=clients, group=groups, topic=topics, level=st.sampled_from([-1, 0, 3]))
    def send_back(self, *, client: int, group: str, topic: str, level: int) -> None:
        """Give the latest message of a topic back."""
        sent = [
            message
            for queue, messages in self.model.acknowledged.items()
            if queue[0] == topic
            for message in messages.values()
        ]
        if not sent:
            return
        message_id = sent[-1].message_id.split(",")[-1]
        header = ConsumerSendMsgBackRequestHeader(
            offset=parse_offset_id(message_id)[2], group=group, delay_level=level, origin_topic=topic,
            origin_msg_id=message_id,
        )  # fmt: skip
        self.ask(client, Code.CONSUMER_SEND_MSG_BACK, header)

    def ask_send(  # noqa: PLR0917 - what every message has
        self,
        client: int,
        topic: str,
        queue_id: int,
        body: bytes,
        own: dict[str, str],
        code: int = Code.SEND_MESSAGE_V2,
        **fields: Any,
    ) -> RemotingCommand:
        """Send, and return the answer, which is success where the model says that the queue exists."""
        header = send_header(topic, own, queue_id=queue_id, born_timestamp=self.stage.now_ms, **fields)
        answer = self.ask(client, code, header, body)
        may_fail = topic.startswith("%") or queue_id >= self.model.writable(topic)
        self.require(answer.code == OK or may_fail, "message refused", f"{topic} {queue_id}: {answer.remark}")
        return answer

    def note(self, topic: str, queue_id: int, answer: RemotingCommand, messages: list[tuple[bytes, str, str]]) -> None:
        """Note messages that were acknowledged: body, tag and unique key of each."""
        reported = answer.header(SendMessageResponseHeader)
        ids = reported.msg_id.split(",")
        self.require(len(ids) == len(messages), "ids of a batch", f"{len(ids)} for {len(messages)} messages")
        for offset, ((body, tag, key), message_id) in enumerate(zip(messages, ids, strict=True), reported.queue_offset):
            sent = Sent(body, tag, self.stage.now, message_id, key)
            self.guarded(partial(self.model.note_sent, (topic, queue_id), offset, sent))
