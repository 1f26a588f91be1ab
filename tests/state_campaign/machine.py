"""Sequences of valid requests of several clients to one broker, restarts, kills and jumps of time.

Each rule sends what a client may send, and compares the answer with the `Model`. What every answer and every step
must fulfil is looked at in `Stage`: one answer with a known code, no exception in a handler, no step over 50 ms.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar, TypeVar

from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from rocket_remoting.batch import encode_batch
from rocket_remoting.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    CreateTopicListRequestBody,
    DataVersion,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageModel,
    ProducerData,
    RegisterBrokerBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigSerializeWrapper,
    UnlockBatchRequestBody,
    decode_body,
    encode_body,
)
from rocket_remoting.codes import RequestCode as Code
from rocket_remoting.codes import ResponseCode
from rocket_remoting.command import RemotingCommand
from rocket_remoting.headers import (
    CloneGroupOffsetRequestHeader,
    ConsumeMessageDirectlyResultRequestHeader,
    ConsumerSendMsgBackRequestHeader,
    CreateTopicRequestHeader,
    DeleteKVConfigRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    EndTransactionRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    PullMessageResponseHeader,
    PutKVConfigRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    QueryMessageRequestHeader,
    RecallMessageRequestHeader,
    RegisterBrokerRequestHeader,
    ResetOffsetRequestHeader,
    SendMessageResponseHeader,
    UnRegisterBrokerRequestHeader,
    UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    ViewMessageRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
)
from rocket_remoting.message import Message, MessageQueue
from rocket_remoting.message_id import parse_offset_id
from rocket_remoting.record import decode_records
from rocket_remoting.sys_flag import (
    PULL_COMMIT_OFFSET,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    TRANSACTION_COMMIT,
    TRANSACTION_NOT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from tests.end_to_end.raw_client import pull_header, send_header
from tests.state_campaign.broken import Broken
from tests.state_campaign.listings import BROKER_LISTINGS, NAME_SERVER_LISTINGS
from tests.state_campaign.model import LOCK_SECONDS, Expected, Half, Model, Sent
from tests.state_campaign.stage import CLIENTS, RESERVED_SECONDS, ClientLeft, Stage

__all__ = ["BrokerMachine", "Step"]

T = TypeVar("T")
Step = tuple[str, dict[str, Any]]

OK = ResponseCode.SUCCESS
BROKER = "broker-a"
PRODUCERS = "producers"
DELAYS = (0, 1, 5, 10, 30, 60, 120, 180, 240)
"""Seconds of the first delay levels."""
OUTCOMES = {"commit": TRANSACTION_COMMIT, "rollback": TRANSACTION_ROLLBACK, "unknown": TRANSACTION_NOT}
SETTINGS = [
    "autoCreateSubscriptionGroup=true", "channelExpiredTimeout=60000", "cleanResourceInterval=1000",
    "compressedRegister=true", "defaultQueryMaxNum=64", "defaultTopicQueueNums=3", "deleteWhen=00;12;23",
    "flushConsumerOffsetInterval=1000", "flushDelayOffsetInterval=1000", "longPollingEnable=false",
    "longPollingEnable=true", "maxTransferBytesOnMessageInMemory=1000", "maxTransferCountOnMessageInMemory=3",
    "notifyConsumerIdsChangedEnable=false", "refuseDifferentSubscriptions=true", "regionId=elsewhere",
    "shortPollingTimeMills=50", "traceOn=false", "transactionCheckInterval=1000", "transactionTimeOut=0",
    "filterSupportRetry=true", "autoCreateTopicEnable=false", "autoCreateTopicEnable=true",
    "useServerSideResetOffset=true", "useServerSideResetOffset=false", "noSuchKey=1", "maxMessageSize=1",
]  # fmt: skip
KEPT = (
    "broker._dispatcher._handlers", "broker._handlers", "broker.compiling", "broker.delays", "broker.filters",
    "broker.groups", "broker.halves", "broker.offsets", "broker.requests", "broker.settings", "broker.statistics",
    "broker.store", "broker.timers", "broker.topics", "name_server.kv_config", "name_server.routes._topics",
    "name_server.routes._routes",
)  # fmt: skip
"""Where tables are that keep entries when no client is there: each has a limit of its own."""
GONE_SECONDS = 200
"""All that clients leave behind has ended by then: locks after 60 s, and silent clients after 120 s."""

clients = st.integers(0, CLIENTS - 1)
topics = st.sampled_from(["orders", "orders", "orders", "bills", "bills", "wide", "%RETRY%g0"])
groups = st.sampled_from(["g0", "g1", "g2"])
queue_ids = st.sampled_from([0, 0, 0, 0, 0, 1, 2, 7, 999])
tags = st.sampled_from(["", "A", "B"])
outcomes = st.sampled_from(sorted(OUTCOMES))
subscriptions = st.sampled_from(["*", "A", "A || B", "sql: TAGS = 'A'", "sql: TAGS IS NULL OR number > 5"])


@dataclass
class Held:
    """A pull that may be held."""

    future: "asyncio.Future[RemotingCommand]"
    queue: tuple[str, int]
    offset: int
    deadline: float
    takes_all: bool


def step(**arguments: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Any]:
    """Declare a rule whose calls are kept in `BrokerMachine.steps`, except those that another rule makes."""

    def decorate(function: Callable[..., None]) -> Any:
        @wraps(function)
        def kept(self: "BrokerMachine", *values: Any, **named: Any) -> None:
            if self.is_in_step:
                function(self, *values, **named)
                return
            self.steps.append((function.__name__, named))
            self.is_in_step = True
            try:
                function(self, *values, **named)
            finally:
                self.is_in_step = False

        return rule(**arguments)(kept)

    return decorate


class BrokerMachine(RuleBasedStateMachine):
    """One broker and its clients, beside a model.

    Attributes:
        steps: The names and arguments of the rules that were called.
        is_in_step: Whether a rule is running.
        tolerated: Kinds of broken promises that end the example and are counted, for they are known.
        counts: What was done in all examples: requests, answers, and broken promises that are tolerated.
        slow_steps: What kept all clients waiting for too long in any example, and for how many milliseconds.
    """

    tolerated: ClassVar[set[str]] = set()
    counts: ClassVar[Counter[str]] = Counter()
    slow_steps: ClassVar[dict[str, int]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.is_in_step = True  # until `start` has ended

    @initialize(flush=st.sampled_from(["ASYNC_FLUSH", "ASYNC_FLUSH", "SYNC_FLUSH"]))
    def start(self, flush: str) -> None:
        self.stage = Stage(flush)
        self.model = Model()
        self.held: list[Held] = []
        self.under_way: list[asyncio.Future[RemotingCommand]] = []
        self.number = 0
        self.is_broken = False
        self.flush = flush
        self.base = self.stage.table_sizes()
        for topic, queues in (("orders", 1), ("bills", 3)):
            self.create_topic(0, topic, queues, 6)
        self.is_in_step = False

    def teardown(self) -> None:
        if not hasattr(self, "stage"):
            return
        self.is_in_step = True
        try:
            if not self.is_broken:
                self.everybody_leaves()
                self._guarded(self.stage.stop)
        finally:
            self._count()
            self.stage.close()

    # Topics and groups

    @step(
        client=clients,
        topic=topics,
        queues=st.sampled_from([1, 2, 8, 1000, 5000]),
        perm=st.sampled_from([6, 6, 6, 6, 6, 4, 2]),
    )
    def create_topic(self, client: int, topic: str, queues: int, perm: int) -> None:
        header = CreateTopicRequestHeader(
            topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=perm,
            topic_filter_type="SINGLE_TAG",
        )  # fmt: skip
        self.ask_ok(client, Code.UPDATE_AND_CREATE_TOPIC, header)
        self.model.topics[topic] = TopicConfig(
            topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=perm
        )

    @step(client=clients, number=st.integers(1, 60), queues=st.sampled_from([1, 16]))
    def create_topics(self, client: int, number: int, queues: int) -> None:
        configs = [
            TopicConfig(topic_name=f"many-{n}", read_queue_nums=queues, write_queue_nums=queues)
            for n in range(number)
        ]
        body = CreateTopicListRequestBody(topic_config_list=configs)
        self.ask_ok(client, Code.UPDATE_AND_CREATE_TOPIC_LIST, None, encode_body(body))

    @step(client=clients, topic=st.sampled_from(["bills", "wide", "%RETRY%g0"]))
    def delete_topic(self, client: int, topic: str) -> None:
        self.ask_ok(client, Code.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic))
        self.model.forget_topic(topic)

    @step(client=clients, group=groups, clean=st.booleans(), retries=st.sampled_from([0, 1, 16]))
    def create_or_delete_group(self, client: int, group: str, clean: bool, retries: int) -> None:
        if retries:
            config = SubscriptionGroupConfig(group_name=group, retry_max_times=retries)
            self.ask_ok(client, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, encode_body(config))
            return
        header = DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=clean)
        self.ask_ok(client, Code.DELETE_SUBSCRIPTIONGROUP, header)
        if clean:
            self.model.forget_offsets(lambda key: key[0] == group)

    # Sending

    @step(
        client=clients,
        topic=topics,
        queue_id=queue_ids,
        tag=tags,
        keys=st.sampled_from([0, 1, 3, 1000]),
        size=st.sampled_from([0, 10, 5000, 60_000]),
    )
    def send(self, client: int, topic: str, queue_id: int, tag: str, keys: int, size: int) -> None:
        """One message; those with many keys have them all in one property."""
        body = self.new_body(size)
        unique_key = f"U{self.number}"
        own = {"UNIQ_KEY": unique_key, "number": str(self.number % 10)} | ({"TAGS": tag} if tag else {})
        if keys:
            own["KEYS"] = " ".join(f"k{number}" for number in range(keys))
        answer = self.ask_send(client, topic, queue_id, body, own)
        if answer.code == OK:
            self.note(topic, queue_id, answer, [(body, tag, unique_key)])

    @step(client=clients, topic=topics, queue_id=queue_ids, number=st.sampled_from([1, 3, 40, 1500]))
    def send_batch(self, client: int, topic: str, queue_id: int, number: int) -> None:
        """Tiny messages."""
        bodies = [self.new_body(0) for _ in range(number)]
        answer = self.ask_send(
            client, topic, queue_id, encode_batch([Message(topic, body) for body in bodies]), {},
            code=Code.SEND_BATCH_MESSAGE, batch=True,
        )  # fmt: skip
        if answer.code == OK:
            self.note(topic, queue_id, answer, [(body, "", "") for body in bodies])

    @step(
        client=clients, topic=topics, queue_id=queue_ids, level=st.integers(0, 8), seconds=st.integers(1, 900)
    )
    def send_for_later(self, client: int, topic: str, queue_id: int, level: int, seconds: int) -> None:
        """A delay level, or a time where the level is 0."""
        body = self.new_body(10)
        own = {"UNIQ_KEY": f"U{self.number}"}
        own |= {"DELAY": str(level)} if level else {"TIMER_DELAY_SEC": str(seconds)}
        answer = self.ask_send(client, topic, queue_id, body, own)
        if answer.code == OK:
            due = self.stage.now + (DELAYS[level] if level else seconds)
            handle = answer.header(SendMessageResponseHeader).recall_handle
            self.model.expected.append(Expected(body, (topic, queue_id), due, self.stage.kills, handle))

    @step(client=clients, index=st.integers(0, 9))
    def recall(self, client: int, index: int) -> None:
        timed = [
            expected
            for expected in self.model.expected
            if expected.handle is not None and not expected.is_cancelled
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

    @step(client=clients, topic=topics, queue_id=queue_ids)
    def begin_transaction(self, client: int, topic: str, queue_id: int) -> None:
        body = self.new_body(10)
        key = f"U{self.number}"
        own = {"TRAN_MSG": "true", "PGROUP": PRODUCERS, "UNIQ_KEY": key}
        answer = self.ask_send(
            client, topic, queue_id, body, own, sys_flag=TRANSACTION_PREPARED, producer_group=PRODUCERS
        )
        if answer.code == OK:
            told = answer.header(SendMessageResponseHeader)
            self.model.halves[body] = Half(
                body, (topic, queue_id), told.queue_offset, told.msg_id, key, self.stage.now
            )

    @step(client=clients, index=st.integers(0, 9), outcome=outcomes)
    def end_transaction(self, client: int, index: int, outcome: str) -> None:
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
        was_checked = self.stage.now > half.at + 5
        self.require(
            (code == OK) == (half.outcome is None) or (was_checked and half.outcome is None),
            "end of a transaction", f"{outcome} of {half} was answered {code}",
        )  # fmt: skip
        if code == OK:
            half.outcome = outcome

    @step(client=clients, group=groups, topic=topics, level=st.sampled_from([-1, 0, 3]))
    def send_back(self, client: int, group: str, topic: str, level: int) -> None:
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

    # Reading

    @step(
        client=clients,
        group=groups,
        topic=topics,
        queue_id=queue_ids,
        back=st.sampled_from([0, 1, 5, 100, 10**6]),
        wanted=subscriptions,
        most=st.sampled_from([1, 32, 4096]),
        commits=st.booleans(),
    )
    def pull(
        self,
        client: int,
        group: str,
        topic: str,
        queue_id: int,
        back: int,
        wanted: str,
        most: int,
        commits: bool,
    ) -> None:
        """From so many messages before the end, at most to the first one."""
        first, end = (
            self.stage.store.min_offset(topic, queue_id),
            self.stage.store.max_offset(topic, queue_id),
        )
        offset = max(first, end - back)
        sys_flag = PULL_SUBSCRIPTION | (PULL_COMMIT_OFFSET if commits else 0)
        header = pull_header(
            topic, offset, consumer_group=group, queue_id=queue_id, max_msg_nums=most, sys_flag=sys_flag,
            commit_offset=offset, subscription=wanted.removeprefix("sql: "),
            expression_type="SQL92" if wanted.startswith("sql") else "TAG",
        )  # fmt: skip
        answer = self.ask(client, Code.PULL_MESSAGE, header)
        pulled = answer.code in {
            OK,
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ResponseCode.PULL_OFFSET_MOVED,
        }
        if commits and pulled and answer.remark != "OFFSET_RESET":
            self.model.committed[group, topic, queue_id] = offset
            self.model.doubtful.discard((group, topic, queue_id))
        if answer.code == OK:
            self.check_pulled(answer, (topic, queue_id), offset, wanted)
        elif wanted == "*" and queue_id < self.model.readable(topic) and answer.remark != "OFFSET_RESET":
            missed = [n for n in self.model.acknowledged[topic, queue_id] if n >= offset]
            self.require(
                not missed,
                "pull finds nothing",
                f"{answer.remark} at {offset} of {topic} {queue_id}, there is {missed[:3]}",
            )

    def check_pulled(self, answer: RemotingCommand, queue: tuple[str, int], offset: int, wanted: str) -> None:
        """See that a pull's answer has what it must have, as far as the model knows, and nothing else."""
        behind = answer.header(PullMessageResponseHeader).next_begin_offset
        got = {message.queue_offset: message for message in decode_records(answer.body)}
        self.require(
            all(offset <= n < behind for n in got), "pull", f"from {offset} to {behind}: {sorted(got)}"
        )
        for number, sent in self.model.acknowledged[queue].items():
            if offset <= number < behind and not wanted.startswith("sql"):
                fits = wanted == "*" or sent.tag in wanted.split(" || ")
                self.require(
                    (number in got) == fits,
                    "filter",
                    f"{sent} at {number} of {queue} pulled for {wanted}: {sorted(got)}",
                )
            if number in got:
                self.require(
                    bytes(got[number].body) == sent.body,
                    "other message in place",
                    f"{sent} at {number} of {queue}",
                )

    @step(
        client=clients,
        group=groups,
        topic=topics,
        queue_id=queue_ids,
        wanted=st.sampled_from(["*", "A"]),
        number=st.sampled_from([1, 1, 100]),
        seconds=st.integers(1, 60),
    )
    def hold(
        self, client: int, group: str, topic: str, queue_id: int, wanted: str, number: int, seconds: int
    ) -> None:
        """Pulls that wait at the end of a queue."""
        end = self.stage.store.max_offset(topic, queue_id)
        header = pull_header(
            topic, end, consumer_group=group, queue_id=queue_id, sys_flag=PULL_SUBSCRIPTION | PULL_SUSPEND,
            suspend_timeout_millis=seconds * 1000, subscription=wanted,
        )  # fmt: skip

        async def invoke() -> None:
            connection = (await self.stage.at_broker(client)).connection
            for _ in range(number):
                future = connection.invoke_async(Code.PULL_MESSAGE, header, timeout=10**6)
                future.add_done_callback(_take_note)
                self.held.append(
                    Held(future, (topic, queue_id), end, self.stage.now + seconds, wanted == "*")
                )

        self.run(invoke())

    @step(client=clients, topic=topics, index=st.integers(0, 9))
    def query_by_key(self, client: int, topic: str, index: int) -> None:
        """By a key that is one message's own, then by its offset id."""
        sent = [
            m
            for queue, messages in self.model.acknowledged.items()
            if queue[0] == topic
            for m in messages.values()
            if m.unique_key
        ]
        if not sent:
            return
        message = sent[-1 - index % len(sent)]
        is_kept = message.at > self.stage.now - RESERVED_SECONDS
        header = QueryMessageRequestHeader(
            topic=topic,
            key=message.unique_key,
            max_num=32,
            begin_timestamp=0,
            end_timestamp=2**60,
            unique_key_query=True,
        )
        answer = self.ask(client, Code.QUERY_MESSAGE, header)
        bodies = [bytes(found.body) for found in decode_records(answer.body)]
        self.require(
            not is_kept or message.body in bodies, "query by key", f"{message}: {answer.remark} {bodies}"
        )
        header_of_id = ViewMessageRequestHeader(offset=parse_offset_id(message.message_id)[2])
        viewed = self.ask(client, Code.VIEW_MESSAGE_BY_ID, header_of_id)
        if is_kept:
            self.require(
                viewed.code == OK and bytes(decode_records(viewed.body)[0].body) == message.body,
                "view by id",
                f"{message}: {viewed.remark}",
            )

    @step(
        client=clients,
        topic=topics,
        key=st.sampled_from(["k0", "k2", "k999", "none"]),
        begin=st.integers(-4000, 0),
        length=st.integers(0, 4000),
    )
    def query_by_time(self, client: int, topic: str, key: str, begin: int, length: int) -> None:
        first = self.stage.now_ms + begin * 1000
        header = QueryMessageRequestHeader(
            topic=topic, key=key, max_num=64, begin_timestamp=first, end_timestamp=first + length * 1000
        )
        answer = self.ask(client, Code.QUERY_MESSAGE, header)
        for message in decode_records(answer.body):
            self.require(message.topic == topic, "query by key", f"{message!r} for {key} of {topic}")

    # Offsets

    @step(
        client=clients,
        group=groups,
        topic=topics,
        queue_id=queue_ids,
        offset=st.sampled_from([0, 1, 3, 10**9]),
    )
    def commit(self, client: int, group: str, topic: str, queue_id: int, offset: int) -> None:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
        )
        answer = self.ask(client, Code.UPDATE_CONSUMER_OFFSET, header)
        if answer.code == OK and answer.remark is None:
            self.model.committed[group, topic, queue_id] = offset
            self.model.doubtful.discard((group, topic, queue_id))

    @step(client=clients, group=groups, topic=topics, queue_id=queue_ids)
    def query_offset(self, client: int, group: str, topic: str, queue_id: int) -> None:
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, set_zero_if_not_found=False
        )
        answer = self.ask(client, Code.QUERY_CONSUMER_OFFSET, header)
        found = answer.header(QueryConsumerOffsetResponseHeader).offset if answer.code == OK else None
        key = group, topic, queue_id
        if key not in self.model.doubtful:
            known = self.model.committed.get(key)
            self.require(found == known, "committed offset", f"{key} is at {found}, {known} was committed")
        elif found is not None:
            self.model.committed[key] = found

    @step(
        client=clients,
        group=groups,
        topic=topics,
        seconds=st.sampled_from([-1, 0, 60, 3600]),
        force=st.booleans(),
        queue_id=st.sampled_from([-1, -1, 0]),
    )
    def reset_offset(
        self, client: int, group: str, topic: str, seconds: int, force: bool, queue_id: int
    ) -> None:
        header = ResetOffsetRequestHeader(
            topic=topic, group=group, queue_id=queue_id, is_force=force,
            timestamp=-1 if seconds < 0 else self.stage.now_ms - seconds * 1000,
        )  # fmt: skip
        self.ask(client, Code.INVOKE_BROKER_TO_RESET_OFFSET, header)
        for number in range(self.model.readable(topic) or 8):
            self.doubt(group, topic, number)

    @step(client=clients, source=groups, clone=groups, topic=topics)
    def clone_offsets(self, client: int, source: str, clone: str, topic: str) -> None:
        header = CloneGroupOffsetRequestHeader(src_group=source, dest_group=clone, topic=topic, offline=True)
        self.ask(client, Code.CLONE_GROUP_OFFSET, header)
        for _, of, queue_id in [key for key in self.model.committed if key[:2] == (clone, topic)]:
            self.doubt(clone, of, queue_id)
        for _, of, queue_id in [key for key in self.model.committed if key[:2] == (source, topic)]:
            self.doubt(clone, of, queue_id)

    def doubt(self, group: str, topic: str, queue_id: int) -> None:
        """Take any offset of the group for right until the next commit."""
        self.model.doubtful.add((group, topic, queue_id))
        self.model.committed.setdefault((group, topic, queue_id), 0)

    # Groups and their members

    @step(
        client=clients,
        told=st.dictionaries(groups, st.dictionaries(topics, subscriptions, max_size=4), max_size=3),
        produces=st.booleans(),
        broadcasts=st.booleans(),
        wide=st.sampled_from([0, 0, 0, 300]),
    )
    def heartbeat(
        self, client: int, told: dict[str, dict[str, str]], produces: bool, broadcasts: bool, wide: int
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
                    )  # fmt: skip
                    for topic, text in (wanted | {f"topic-{n}": "*" for n in range(wide)}).items()
                ],
            )
            for group, wanted in told.items()
        ]
        producers = [ProducerData(group_name=PRODUCERS)] if produces else []
        body = HeartbeatData(
            client_id=f"client@{client}", consumer_data_set=consumers, producer_data_set=producers
        )
        answer = self.ask(client, Code.HEART_BEAT, None, encode_body(body))
        if answer.code == OK:
            for group in told:
                members = self.stage.embedded.broker.consumers.get(group)
                known = members.client_ids() if members is not None else []
                self.require(
                    f"client@{client}" in known, "member missing", f"client@{client} of {group}: {known}"
                )

    @step(client=clients, group=groups, produces=st.booleans())
    def unregister(self, client: int, group: str, produces: bool) -> None:
        header = UnregisterClientRequestHeader(
            client_id=f"client@{client}", consumer_group=group, producer_group=PRODUCERS if produces else None
        )
        self.ask_ok(client, Code.UNREGISTER_CLIENT, header)

    @step(client=clients, other=clients, group=groups, topic=topics)
    def ask_a_member(self, client: int, other: int, group: str, topic: str) -> None:
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
    def lock(self, client: int, group: str, topic: str, ids: set[int], many: bool) -> None:
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
    def unlock(self, client: int, group: str, topic: str) -> None:
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

    @step(client=clients, abruptly=st.booleans())
    def disconnect(self, client: int, abruptly: bool) -> None:
        self.run(self.stage.disconnect(client, abruptly=abruptly))

    # Tools

    @step(
        client=clients,
        codes=st.lists(st.sampled_from(sorted(BROKER_LISTINGS)), min_size=1, max_size=6),
        topic=topics,
        group=groups,
        number=st.integers(0, 5),
        waits=st.booleans(),
    )
    def list_at_the_broker(
        self, client: int, codes: list[Code], topic: str, group: str, number: int, waits: bool
    ) -> None:
        """Several at once; with ``waits`` false the next rules' requests come while these are handled."""
        for index, code in enumerate(codes):
            self.begin((client + index) % CLIENTS, code, BROKER_LISTINGS[code](topic, group, number))
        if waits:
            self.finish()

    @step(
        client=clients,
        code=st.sampled_from(sorted(NAME_SERVER_LISTINGS)),
        topic=topics,
        number=st.integers(0, 5),
    )
    def list_at_the_name_server(self, client: int, code: Code, topic: str, number: int) -> None:
        self.ask(client, code, NAME_SERVER_LISTINGS[code](topic, "", number), is_for_broker=False)

    @step(client=clients, entries=st.lists(st.sampled_from(SETTINGS), min_size=1, max_size=3))
    def update_settings(self, client: int, entries: list[str]) -> None:
        self.ask(client, Code.UPDATE_BROKER_CONFIG, None, "\n".join(entries).encode())

    @step(
        client=clients,
        code=st.sampled_from(
            [Code.CLEAN_EXPIRED_CONSUMEQUEUE, Code.DELETE_EXPIRED_COMMITLOG, Code.CLEAN_UNUSED_TOPIC]
        ),
    )
    def clean(self, client: int, code: Code) -> None:
        self.ask_ok(client, code)
        if code == Code.CLEAN_UNUSED_TOPIC:
            self.model.expected = [e for e in self.model.expected if e.queue[0] in self.model.topics]

    # The name server

    @step(
        client=clients,
        name=st.sampled_from(["foreign", "other"]),
        broker_id=st.integers(0, 2),
        number=st.sampled_from([0, 1, 200]),
        gone=st.booleans(),
    )
    def register_broker(self, client: int, name: str, broker_id: int, number: int, gone: bool) -> None:
        address = f"10.0.0.{broker_id}:10911"
        if gone:
            self.ask_ok(
                client,
                Code.UNREGISTER_BROKER,
                UnRegisterBrokerRequestHeader(
                    broker_name=name, broker_addr=address, cluster_name="C", broker_id=broker_id
                ),
                is_for_broker=False,
            )
            return
        configs = {f"{name}-{n}": TopicConfig(topic_name=f"{name}-{n}") for n in range(number)}
        version = DataVersion(timestamp=self.stage.now_ms, counter=self.number)
        body = RegisterBrokerBody(
            topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
                topic_config_table=configs, data_version=version
            )
        )
        header = RegisterBrokerRequestHeader(
            broker_name=name, broker_addr=address, cluster_name="C", ha_server_addr="", broker_id=broker_id
        )
        self.ask(client, Code.REGISTER_BROKER, header, encode_body(body), is_for_broker=False)

    @step(client=clients, name=st.sampled_from(["foreign", BROKER]), taken=st.booleans())
    def change_write_permission(self, client: int, name: str, taken: bool) -> None:
        code = Code.WIPE_WRITE_PERM_OF_BROKER if taken else Code.ADD_WRITE_PERM_OF_BROKER
        self.ask(client, code, WipeWritePermOfBrokerRequestHeader(broker_name=name), is_for_broker=False)

    @step(
        client=clients,
        namespace=st.sampled_from(["N", "ORDER_TOPIC_CONFIG"]),
        key=topics,
        value=st.sampled_from([None, "broker-a:1", "x" * 1000]),
    )
    def configure(self, client: int, namespace: str, key: str, value: str | None) -> None:
        if value is None:
            deleted = DeleteKVConfigRequestHeader(namespace=namespace, key=key)
            self.ask_ok(client, Code.DELETE_KV_CONFIG, deleted, is_for_broker=False)
            self.model.values.pop((namespace, key), None)
        else:
            put = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
            if self.ask(client, Code.PUT_KV_CONFIG, put, is_for_broker=False).code == OK:
                self.model.values[namespace, key] = value
        answer = self.ask(
            client,
            Code.GET_KV_CONFIG,
            GetKVConfigRequestHeader(namespace=namespace, key=key),
            is_for_broker=False,
        )
        found = answer.header(GetKVConfigResponseHeader).value if answer.code == OK else None
        self.require(
            found == self.model.values.get((namespace, key)),
            "key-value configuration",
            f"{namespace} {key}: {found}",
        )

    # Time, and the broker's life

    @step(seconds=st.sampled_from([0.1, 1.0, 10.0, 61.0, 200.0, 4000.0]))
    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))
        self.look_at_held_pulls()

    @step(is_killed=st.booleans())
    def restart(self, is_killed: bool) -> None:
        self.finish()
        self._guarded(self.stage.kill if is_killed else self.stage.restart)
        self.held.clear()
        if is_killed:
            self.model.broker_killed()
        for (group, topic, queue_id), offset in self.model.committed.items():
            end = self.stage.store.max_offset(topic, queue_id)
            self.model.committed[group, topic, queue_id] = min(offset, end)
        self.audit()

    @step()
    def audit(self) -> None:
        """Compare all queues with what was acknowledged."""
        self._guarded(
            lambda: self.model.audit(self.stage.store, self.stage.now, RESERVED_SECONDS, self.stage.kills)
        )

    @step()
    def everybody_leaves(self) -> None:
        """Nothing that belongs to a client stays in the tables."""
        self.finish()
        for client in range(CLIENTS):
            self.run(self.stage.disconnect(client))
        self.run(asyncio.sleep(GONE_SECONDS))
        self.held = [pull for pull in self.held if not pull.future.done()]
        self.require(not self.held, "held pull without an end", f"{self.held[:1]}")
        for path, size in self.stage.table_sizes().items():
            if not path.startswith(KEPT):
                self.require(
                    size <= self.base.get(path, 0),
                    f"leak in {path}",
                    f"{size} entries, {self.base.get(path, 0)} at the start",
                )
        self.audit()

    def look_at_held_pulls(self) -> None:
        """See that a pull is answered when a message has come that it wants, and when its time is up."""
        if not self.held:
            return
        self.run(asyncio.sleep(0.01))
        waiting = []
        for pull in self.held:
            if not pull.future.done():
                waiting.append(pull)
                end = self.stage.store.max_offset(*pull.queue)
                self.require(self.stage.now < pull.deadline + 1, "held pull without an end", f"{pull}")
                self.require(
                    not pull.takes_all or end <= pull.offset,
                    "held pull not woken",
                    f"{pull}, the queue ends at {end}",
                )
            elif pull.future.exception() is None:
                self._guarded(lambda answer=pull.future.result(): self.stage.check(Code.PULL_MESSAGE, answer))
        self.held = waiting

    # Inside

    def new_body(self, size: int) -> bytes:
        """Return a body that no other message has."""
        self.number += 1
        body = (b"%d " % self.number).ljust(size, b".")
        self.model.sent.add(body)
        return body

    def ask(
        self, client: int, code: int, header: Any = None, body: bytes = b"", *, is_for_broker: bool = True
    ) -> RemotingCommand:
        """Return the answer to a request."""
        answer = self.run(self.stage.ask(client, code, header, body, is_for_broker=is_for_broker))
        self.look_at_held_pulls()
        return answer

    def ask_ok(
        self, client: int, code: int, header: Any = None, body: bytes = b"", *, is_for_broker: bool = True
    ) -> RemotingCommand:
        """Return the answer to a request, which must be success."""
        answer = self.ask(client, code, header, body, is_for_broker=is_for_broker)
        self.require(
            answer.code == OK,
            f"refused {Code(code).name}",
            f"{ResponseCode(answer.code).name}: {answer.remark}",
        )
        return answer

    def ask_send(
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
        may_be_refused = topic.startswith("%") or queue_id >= self.model.writable(topic)
        self.require(
            answer.code == OK or may_be_refused, "message refused", f"{topic} {queue_id}: {answer.remark}"
        )
        return answer

    def note(
        self, topic: str, queue_id: int, answer: RemotingCommand, messages: list[tuple[bytes, str, str]]
    ) -> None:
        """Note messages that were acknowledged."""
        told = answer.header(SendMessageResponseHeader)
        ids = told.msg_id.split(",")
        for index, ((body, tag, unique_key), message_id) in enumerate(zip(messages, ids, strict=True)):
            sent = Sent(body, tag, self.stage.now, message_id, unique_key)
            self._guarded(
                lambda sent=sent, index=index: self.model.note_sent(
                    (topic, queue_id), told.queue_offset + index, sent
                )
            )

    def begin(self, client: int, code: int, header: Any) -> None:
        """Send a request, and look at its answer in `finish`."""

        async def ask() -> None:
            self.under_way.append(asyncio.ensure_future(self.stage.ask(client, code, header)))
            await asyncio.sleep(0)

        self.run(ask())

    def finish(self) -> None:
        """Return when all requests are answered."""
        under_way, self.under_way = self.under_way, []
        for future in under_way:
            self.run(_end(future))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the loop, and return its result."""
        return self._guarded(lambda: self.stage.run(work))

    def require(self, is_so: bool, kind: str, text: str) -> None:
        """Return if a promise was kept."""
        if not is_so:
            self._guarded(lambda: _break(kind, text))

    def _guarded(self, work: "Any") -> Any:
        """Return what the work returns; end the example quietly where a promise is broken that is tolerated."""
        try:
            return work()
        except Broken as broken:
            self.is_broken = True
            broken.flush, broken.steps = self.flush, list(self.steps)
            if broken.kind not in self.tolerated:
                raise
            self.counts[f"tolerated: {broken.kind}"] += 1
            reject()
        except BaseException:
            self.is_broken = True
            raise

    def _count(self) -> None:
        self.counts["examples"] += 1
        self.counts["requests"] += sum(self.stage.requests.values())
        self.counts["kills"] += self.stage.kills
        for step, milliseconds in self.stage.watch.slow_steps.items():
            self.slow_steps[step] = max(milliseconds, self.slow_steps.get(step, 0))
        for name, number in (self.stage.requests + self.stage.answers).items():
            self.counts[name] += number


def _break(kind: str, text: str) -> None:
    raise Broken(kind, text)


def _take_note(future: "asyncio.Future[RemotingCommand]") -> None:
    """Take note of how a future ended, so that no warning tells that nobody did."""
    if not future.cancelled():
        future.exception()


async def _end(future: "asyncio.Future[RemotingCommand]") -> None:
    with suppress(ClientLeft):
        await future
