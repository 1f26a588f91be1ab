"""Equal requests to Apache's broker and ours: equal answers and stored messages."""

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from rocket_broker.embedded import EmbeddedBroker
from rocket_remoting import Message, MessageQueue, TcpTransport
from rocket_remoting.wire.batch import encode_batch
from rocket_remoting.wire.bodies import (
    ConsumeStats,
    GroupList,
    LockBatchRequestBody,
    LockBatchResponseBody,
    QueryCorrectionOffsetBody,
    TopicStatsTable,
    UnlockBatchRequestBody,
    decode_body,
    encode_body,
)
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.headers import (
    GetConsumerListByGroupRequestHeader,
    GetConsumeStatsRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumerOffsetRequestHeader,
    QueryCorrectionOffsetHeader,
    QueryTopicConsumeByWhoRequestHeader,
    ReplyMessageRequestHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from rocket_remoting.wire.properties import decode_properties
from tests.end_to_end.raw_client import RawClient, pull_header, send_header
from tests.peer.apache import ApacheBroker
from tests.peer.stage import DELAY_LEVELS

NEVER_COMPARED = {"MSG_REGION", "TRACE_ON", "UNIQ_KEY"}
"""Properties that a 5.x broker adds to what it stores."""
ONLY_4_9 = {
    "a topic's name",
    "a queue the topic has not",
    "pulls of queues out of range",
    "a reset without offsets",
}
"""What 5.x answers with another code."""


class Case:
    """A client of one of the brokers, with its own names, because brokers live longer than a test."""

    def __init__(self, client: RawClient, name: str) -> None:
        self.client = client
        self.topic = f"answers-{name}"
        self.group = f"group-{name}"
        self.queue = MessageQueue(self.topic, "broker-a", 0)

    def plain(self, value: object) -> Any:
        """Return the value without what differs between two brokers by nature."""
        if isinstance(value, dict):
            return {self.plain(key): self.plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.plain(item) for item in value]
        text = str(value).replace(self.topic, "TOPIC").replace(self.group, "GROUP")
        return re.sub(r"/?127\.0\.0\.1:[0-9]+|[0-9A-F]{32,}|[0-9]{13}", "…", text)

    async def code(self, code: int, header: Header | None = None, body: bytes = b"") -> int:
        """Return the answer's code."""
        return (await self.client.ask(code, header, body)).code

    async def stored(self, count: int, queue_id: int = 0, topic: str | None = None) -> list[Any]:
        """Return the queue's messages once there are so many; Apache's broker adds them after its answers."""
        topic = topic or self.topic
        while await self.client.end(topic, queue_id) < count:  # noqa: ASYNC110 - brokers tell nobody
            await asyncio.sleep(0.05)
        messages = await self.client.messages(topic, queue_id)
        return [
            (m.body, m.flag, m.sys_flag, m.reconsume_times, without(m.properties), m.born_timestamp) for m in messages
        ]

    async def pulled(self, offset: int = 0, **fields: Any) -> Any:
        """Return a pull's code, bodies and offsets."""
        fields = {"consumer_group": self.group} | fields
        pulled = await self.client.pull(self.topic, offset, **fields)
        if not pulled.remark or pulled.code not in (0, 19, 20, 21):
            return pulled.code, pulled.bodies
        header = pulled.header
        return pulled.code, pulled.bodies, header.next_begin_offset, header.min_offset, header.max_offset


def without(properties: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name not in NEVER_COMPARED}


async def plain_messages(case: Case) -> Any:
    header = send_header(case.topic, {"TAGS": "A", "KEYS": "k", "mine": "x"}, flag=5)
    await case.client.ask_ok(Code.SEND_MESSAGE_V2, header, b"hello")
    batch = encode_batch([Message(case.topic, bytes([n + 65]), tags="B") for n in range(3)])
    await case.client.ask_ok(Code.SEND_BATCH_MESSAGE, send_header(case.topic, batch=True), batch)
    return await case.stored(4)


async def topics_names(case: Case) -> Any:
    names = ["no good", "", "x" * 128, "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"]
    return [await case.code(Code.SEND_MESSAGE_V2, send_header(name), b"x") for name in names]


async def unknown_default_topic(case: Case) -> Any:
    return await case.code(Code.SEND_MESSAGE_V2, send_header(case.topic + "-no", default_topic="unknown"), b"x")


async def queue_out_of_range(case: Case) -> Any:
    return await case.code(Code.SEND_MESSAGE_V2, send_header(case.topic, queue_id=99), b"x")


async def too_large(case: Case) -> Any:
    header = send_header(case.topic)
    header.properties = "a\x01" + "x" * 32_766 + "\x02"
    return [
        await case.code(Code.SEND_MESSAGE_V2, send_header(case.topic), bytes(4 * 1024 * 1024 + 1)),
        await case.code(Code.SEND_MESSAGE_V2, header, b"x"),
    ]


async def pulls(case: Case) -> Any:
    wanted = [
        await case.pulled(),
        await case.pulled(offset=2, max_msg_nums=1),
        await case.pulled(offset=4),
        await case.pulled(offset=9),
        await case.pulled(offset=-1),
        await case.pulled(queue_id=1),
        await case.pulled(queue_id=1, offset=7),
        await case.pulled(subscription="A"),
        await case.pulled(subscription="Z"),
        await case.pulled(subscription="||"),
        await case.pulled(sys_flag=0),
    ]
    unknown = pull_header(case.topic + "-no", 0, consumer_group=case.group)
    return [*wanted, await case.code(Code.PULL_MESSAGE, unknown)]


async def pulls_out_of_range(case: Case) -> Any:
    return [await case.pulled(queue_id=99), await case.pulled(queue_id=-1)]


async def members_and_locks(case: Case) -> Any:
    listed = GetConsumerListByGroupRequestHeader(consumer_group=case.group)
    before = await case.code(Code.GET_CONSUMER_LIST_BY_GROUP, listed)
    await case.client.heartbeat("me", consumers={case.group: {case.topic: "*"}})
    body = (await case.client.ask_ok(Code.GET_CONSUMER_LIST_BY_GROUP, listed)).body
    held = []
    for who in ("a", "b"):
        wish = LockBatchRequestBody(consumer_group=case.group, client_id=who, mq_set={case.queue})
        answer = await case.client.ask_ok(Code.LOCK_BATCH_MQ, None, wish)
        held.append(len(decode_body(answer.body, LockBatchResponseBody).lock_ok_mq_set))
    newer = await case.pulled(sys_flag=0, sub_version=99)
    return before, body, held, await case.pulled(sys_flag=0), newer


async def locks_given_up(case: Case) -> Any:
    queues = {case.queue, MessageQueue(case.topic, "broker-a", 1)}

    async def locked(who: str, mq_set: set[MessageQueue]) -> list[int]:
        wish = LockBatchRequestBody(consumer_group=case.group, client_id=who, mq_set=mq_set)
        answer = await case.client.ask_ok(Code.LOCK_BATCH_MQ, None, wish)
        return sorted(queue.queue_id for queue in decode_body(answer.body, LockBatchResponseBody).lock_ok_mq_set)

    async def unlock(who: str) -> int:
        wish = UnlockBatchRequestBody(consumer_group=case.group, client_id=who, mq_set=queues)
        return await case.code(Code.UNLOCK_BATCH_MQ, None, encode_body(wish))

    return [
        await locked("lock-a", queues), await locked("lock-b", queues), await locked("lock-a", {case.queue}),
        await unlock("lock-b"), await locked("lock-b", queues),
        await unlock("lock-a"), await locked("lock-b", queues),
        await unlock("lock-b"), await unlock("lock-b"),
    ]  # fmt: skip


async def offsets(case: Case) -> Any:
    query = QueryConsumerOffsetRequestHeader(consumer_group=case.group, topic=case.topic, queue_id=0)
    new = (await case.client.ask(Code.QUERY_CONSUMER_OFFSET, query)).ext_fields
    await case.client.commit(2, group=case.group, topic=case.topic)
    known = (await case.client.ask(Code.QUERY_CONSUMER_OFFSET, query)).ext_fields
    spans = []
    for queue_id in (0, 1):
        asked = {"topic": case.topic, "queue_id": queue_id}
        for code, header in (
            (Code.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(**asked)),
            (Code.GET_MIN_OFFSET, GetMinOffsetRequestHeader(**asked)),
            (Code.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequestHeader(**asked, timestamp=0)),
        ):
            spans.append((await case.client.ask(code, header)).ext_fields)
    return new, known, spans


async def given_back(case: Case) -> Any:
    (message, *_) = await case.client.messages(case.topic)
    await case.client.send_back(message, case.group, delay_level=1)
    await case.client.send_back(message, case.group, delay_level=-1)
    answer = await case.client.send_back(message, case.group, offset=10**10)
    retry, dead = f"%RETRY%{case.group}", f"%DLQ%{case.group}"
    return answer.code, await case.stored(1, topic=retry), await case.stored(1, topic=dead)


async def delayed(case: Case) -> Any:
    for queue_id, level, wait in ((2, "1", "true"), (3, "-1", "false")):
        properties = {"DELAY": level, "WAIT": wait, "TAGS": "D"}
        await case.client.send(case.topic, b"later", properties=properties, queue_id=queue_id)
    at_once = await case.stored(1, queue_id=3)
    return await case.stored(1, queue_id=2), at_once[0][4].get("DELAY")  # 5.x keeps WAIT as well


async def statistics(case: Case) -> Any:
    stats = GetTopicStatsInfoRequestHeader(topic=case.topic)
    spans = (await case.client.fetch(Code.GET_TOPIC_STATS_INFO, TopicStatsTable, stats)).offset_table
    progress = GetConsumeStatsRequestHeader(consumer_group=case.group, topic=case.topic)
    reached = (await case.client.fetch(Code.GET_CONSUME_STATS, ConsumeStats, progress)).offset_table
    who = QueryTopicConsumeByWhoRequestHeader(topic=case.topic)
    return (
        sorted((queue.queue_id, span.min_offset, span.max_offset) for queue, span in spans.items()),
        sorted((queue.queue_id, offset.broker_offset, offset.consumer_offset) for queue, offset in reached.items()),
        case.group in (await case.client.fetch(Code.QUERY_TOPIC_CONSUME_BY_WHO, GroupList, who)).group_list,
        await case.code(Code.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic=case.topic + "-no")),
    )


async def found(case: Case) -> Any:
    (message, *_) = await case.client.messages(case.topic)
    view = ViewMessageRequestHeader(offset=message.commit_log_offset)
    return await case.code(Code.VIEW_MESSAGE_BY_ID, view), await case.code(9999)


async def replies(case: Case) -> Any:
    topic = "DefaultCluster_REPLY_TOPIC"
    await case.client.heartbeat(f"asker-{case.topic}", producers=(case.group,))
    answers = []
    for asker in (None, "nobody", f"asker-{case.topic}"):
        properties = {"REPLY_TO_CLIENT": asker} if asker else {}
        answer = await case.client.ask(Code.SEND_REPLY_MESSAGE_V2, send_header(topic, properties), b"42")
        answers.append((answer.code, answer.remark))
    (push,) = [request for request in case.client.pushed if request.code == Code.PUSH_REPLY_MESSAGE_TO_CLIENT]
    header = push.header(ReplyMessageRequestHeader)
    properties = without(decode_properties(header.properties or ""))
    return answers, bytes(push.body), header.topic, header.queue_id, properties


async def corrections(case: Case) -> Any:
    header = QueryCorrectionOffsetHeader(filter_groups="", compare_group="nobody", topic=case.topic)
    body = await case.client.fetch(Code.QUERY_CORRECTION_OFFSET, QueryCorrectionOffsetBody, header)
    return body.correction_offsets


async def reset_without_offsets(case: Case) -> Any:
    header = ResetOffsetRequestHeader(topic=case.topic, group=case.group + "-no", timestamp=0, is_force=True)
    return await case.code(Code.INVOKE_BROKER_TO_RESET_OFFSET, header)


CASES: dict[str, Callable[[Case], Awaitable[Any]]] = {
    "plain messages and a batch": plain_messages,
    "a topic's name": topics_names,
    "a default topic that is unknown": unknown_default_topic,
    "a queue the topic has not": queue_out_of_range,
    "too large a message": too_large,
    "pulls": pulls,
    "pulls of queues out of range": pulls_out_of_range,
    "members and locks": members_and_locks,
    "locks given up": locks_given_up,
    "offsets": offsets,
    "messages given back": given_back,
    "delayed messages": delayed,
    "statistics": statistics,
    "messages found": found,
    "a reset without offsets": reset_without_offsets,
    "replies": replies,
    "corrections": corrections,
}


async def answers(address: str) -> dict[str, Any]:
    """Return the broker's answers to the cases, in order."""
    client = await RawClient.connect(TcpTransport(), address, answer=RemotingCommand.response)
    case = Case(client, secrets.token_hex(4))
    results = {name: case.plain(await run(case)) for name, run in CASES.items()}
    await client.connection.close()
    return results


async def our_answers() -> dict[str, Any]:
    """Return our broker's answers."""
    async with EmbeddedBroker(settings={"messageDelayLevel": DELAY_LEVELS}) as embedded:
        return await answers(embedded.broker_address)


def test_our_broker_answers_as_apaches(apache_broker: ApacheBroker) -> None:
    """Codes, offsets, and every property of stored messages."""

    async def both() -> tuple[dict[str, Any], dict[str, Any]]:
        return await asyncio.gather(answers(apache_broker.address), our_answers())

    theirs, ours = asyncio.run(both())
    for name in CASES:
        if name not in ONLY_4_9 or apache_broker.version.startswith("4.9"):
            assert ours[name] == theirs[name], name
