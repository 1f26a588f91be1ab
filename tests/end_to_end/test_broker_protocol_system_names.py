"""System topics and groups: permitted and refused requests."""

import asyncio
import signal
import time
from pathlib import Path

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.tables.system_names import INTERNAL_TOPICS, PREDEFINED_GROUPS, REPORT_TOPICS, SHARED_TOPICS
from rocket_remoting import Message, TcpTransport
from rocket_remoting.wire.batch import encode_batch
from rocket_remoting.wire.bodies import (
    CreateTopicListRequestBody,
    LockBatchRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    TopicConfig,
    encode_body,
)
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    CloneGroupOffsetRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    ResetOffsetRequestHeader,
)
from rocket_remoting.wire.message import MessageQueue
from rocket_remoting.wire.topics import TOPICS_CLOSED_TO_CLIENTS
from tests.end_to_end.broker_process import running
from tests.end_to_end.raw_client import COMMITTING, RawClient, send_header, with_broker
from tests.end_to_end.test_broker_process import store_with
from tests.end_to_end.test_broker_protocol_deduplicated import batch
from tests.end_to_end.transactions import GROUP, HALF, OP, Question, begin, end

OURS = "CID_RMQ_SYS_TRANS"
TOOLS = "TOOLS_CONSUMER"
FORBIDDEN = ResponseCode.NO_PERMISSION
INTERNAL = sorted({*INTERNAL_TOPICS, "rmq_sys_REVIVE_LOG_DefaultCluster"})
SHARED = sorted({*SHARED_TOPICS, "DefaultCluster", "broker-a", "DefaultCluster_REPLY_TOPIC", "rmq_sys_TRACE_DATA_cn"})
REPORTS = sorted(REPORT_TOPICS)


def make(embedded: EmbeddedBroker, topic: str) -> None:
    """Create a topic as the broker itself does."""
    embedded.broker.topics.create_by_send_back(topic, 1, 6)


async def lock(client: RawClient, topic: str, group: str = "g") -> RemotingCommand:
    """Return the answer to a lock request for the topic's first queue."""
    queues = {MessageQueue(topic, "broker-a", 0)}
    body = LockBatchRequestBody(consumer_group=group, client_id="c", mq_set=queues)
    return await client.ask(Code.LOCK_BATCH_MQ, None, body)


async def reset(client: RawClient, topic: str, group: str = "g", queue_id: int = -1) -> RemotingCommand:
    """Return the answer to a reset of the group's offsets to the topic's first message."""
    header = ResetOffsetRequestHeader(group=group, topic=topic, timestamp=0, is_force=True, queue_id=queue_id, offset=0)
    return await client.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, header)


async def clone(client: RawClient, source: str, target: str, topic: str | None = None) -> RemotingCommand:
    """Return the answer to a clone of a group's offsets."""
    header = CloneGroupOffsetRequestHeader(src_group=source, dest_group=target, topic=topic, offline=True)
    return await client.ask(Code.CLONE_GROUP_OFFSET, header)


# Topics


@pytest.mark.parametrize("topic", [*INTERNAL, *REPORTS])
def test_client_cannot_send_to_a_topic_of_the_broker(topic: str) -> None:
    """By none of the requests, and no topic is created."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        embedded.broker.topics.delete(topic)
        header = send_header(topic, {"REPLY_TO_CLIENT": "c"})
        for code in (Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.SEND_REPLY_MESSAGE_V2):
            body = encode_batch([Message(topic, b"hello")]) if code == Code.SEND_BATCH_MESSAGE else b"hello"
            answer = await client.ask(code, header, body)
            assert (answer.code, answer.remark) == (
                FORBIDDEN,
                f"Sending message to topic[{topic}] is forbidden.",
            )
        sent = batch(MessageQueue(topic, "broker-a", 0), 0, range(1))
        assert (await client.ask(sent.code, sent.header, bytes(sent.body))).code == FORBIDDEN
        assert topic not in embedded.broker.topics
        assert await client.end(topic) == 0

    with_broker(scene)


@pytest.mark.parametrize("topic", SHARED)
def test_shared_system_topic_can_be_used(topic: str) -> None:
    """By any group, in ordered mode too."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send(topic)
        assert (await client.pull(topic, sys_flag=COMMITTING, commit_offset=0)).bodies == [b"hello"]
        assert (await client.commit(1, topic=topic)).code == ResponseCode.SUCCESS
        assert (await lock(client, topic)).code == ResponseCode.SUCCESS
        assert (await reset(client, topic, queue_id=0)).code == ResponseCode.SUCCESS

    with_broker(scene)


@pytest.mark.parametrize("topic", REPORTS)
def test_topics_with_broker_reports_can_be_consumed(topic: str) -> None:
    """mqadmin's monitor is a push consumer of one."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        make(embedded, topic)
        assert (await client.pull(topic, sys_flag=COMMITTING)).code == ResponseCode.PULL_NOT_FOUND
        assert (await client.commit(0, topic=topic)).code == ResponseCode.SUCCESS

    with_broker(scene)


@pytest.mark.parametrize("topic", INTERNAL)
def test_only_tools_pull_from_an_internal_topic(topic: str) -> None:
    """As mqadmin's printMsg, without commits."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        make(embedded, topic)
        assert (await client.pull(topic, consumer_group=TOOLS)).code == ResponseCode.PULL_NOT_FOUND
        for group in ("g", OURS):
            pulled = await client.pull(topic, consumer_group=group)
            assert pulled.code == FORBIDDEN
            assert "the broker's own" in (pulled.remark or "")
        assert (await client.pull(topic, consumer_group=TOOLS, sys_flag=COMMITTING)).code == FORBIDDEN

    with_broker(scene)


@pytest.mark.parametrize("topic", INTERNAL)
def test_offsets_and_locks_of_internal_topics_are_refused(topic: str) -> None:
    """For any group, by every such request."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        make(embedded, topic)
        await client.send("orders")
        await client.commit(1)
        before = {key: dict(queues) for key, queues in embedded.broker.offsets.table().items()}
        answers = [
            await client.commit(9, group="g", topic=topic),
            await client.commit(9, group=TOOLS, topic=topic),
            await client.commit(9, group=OURS, topic=topic),
            await reset(client, topic),
            await reset(client, topic, queue_id=0),
            await clone(client, "g", "h", topic),
            await lock(client, topic),
        ]
        assert {answer.code for answer in answers} == {FORBIDDEN}
        assert {key: dict(queues) for key, queues in embedded.broker.offsets.table().items()} == before
        assert len(embedded.broker.locks) == 0

    with_broker(scene)


@pytest.mark.parametrize("topic", [*INTERNAL, *REPORTS, *SHARED])
def test_system_topic_cannot_be_configured_or_deleted(topic: str) -> None:
    """The answer is Apache's."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        make(embedded, topic)
        config = embedded.broker.topics.get(topic)
        with pytest.raises(AssertionError, match="conflict with system topic"):
            await client.create_topic(topic, 7)
        body = CreateTopicListRequestBody(topic_config_list=[TopicConfig(topic_name=topic)])
        answers = [
            await client.ask(Code.UPDATE_AND_CREATE_TOPIC_LIST, None, body),
            await client.ask(Code.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic)),
        ]
        assert {answer.code for answer in answers} == {ResponseCode.SYSTEM_ERROR}
        assert embedded.broker.topics.get(topic) == config

    with_broker(scene)


def test_client_and_broker_refuse_sends_to_the_same_topics() -> None:
    """The client's list is the broker's table."""
    assert TOPICS_CLOSED_TO_CLIENTS == INTERNAL_TOPICS | REPORT_TOPICS


def test_message_of_an_internal_topic_cannot_be_sent_back() -> None:
    """Its copy in a retry topic would be a readable half message."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await begin(client, embedded.broker.clock.now_ms())
        (half,) = await client.messages(HALF)
        answer = await client.send_back(half)
        assert answer.code == FORBIDDEN
        assert await client.end("%RETRY%g") == 0

    with_broker(scene)


# Groups


def test_client_cannot_consume_as_a_system_group() -> None:
    """No pull, offset, lock or redelivery; neither the group nor its retry topic is created."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        sent = await client.send("orders")
        (message,) = await client.messages("orders")
        group = "CID_RMQ_SYS_x"
        answers = [
            await client.commit(1, group=group),
            await reset(client, "orders", group),
            await clone(client, "g", group, "orders"),
            await clone(client, "g", group),
            await lock(client, "orders", group),
            await client.send_back(message, group),
            await client.try_send(f"%RETRY%{group}", reconsume_times=1),
        ]
        assert {answer.code for answer in answers} == {FORBIDDEN}
        assert (await client.pull("orders", consumer_group=group)).code == FORBIDDEN
        reported = await client.heartbeat(
            consumers={group: {"orders": "*"}, "g": {"orders": "*"}}, expected=ResponseCode.SYSTEM_ERROR
        )
        assert f"the consumer group[{group}] is the broker's own" in (reported.remark or "")
        assert list(embedded.broker.consumers) == ["g"]
        assert group not in embedded.broker.groups
        assert sent.queue_offset == 0

    with_broker(scene)


@pytest.mark.parametrize("group", [*sorted(PREDEFINED_GROUPS), OURS])
def test_system_group_cannot_be_configured_or_deleted(group: str) -> None:
    """mqadmin could not pull any more."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        config = SubscriptionGroupConfig(group_name=group, consume_enable=False)
        answers = [
            await client.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, encode_body(config)),
            await client.ask(
                Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
                None,
                SubscriptionGroupList(group_config_list=[config]),
            ),
            await client.ask(
                Code.DELETE_SUBSCRIPTIONGROUP,
                DeleteSubscriptionGroupRequestHeader(group_name=group, remove_offset=True),
            ),
        ]
        assert {answer.code for answer in answers} == {FORBIDDEN}
        assert (group in embedded.broker.groups) == (group in PREDEFINED_GROUPS)

    with_broker(scene)


@pytest.mark.parametrize("group", sorted(PREDEFINED_GROUPS))
def test_predefined_group_can_consume(group: str) -> None:
    """As tools do, with commits."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        await client.heartbeat(consumers={group: {"orders": "*"}})
        assert (await client.pull(consumer_group=group)).bodies == [b"hello"]
        assert (await client.commit(1, group=group)).code == ResponseCode.SUCCESS

    with_broker(scene)


def test_system_group_offsets_are_not_cloned() -> None:
    """A clone of its own group's offsets copies none."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        half = await begin(client, embedded.broker.clock.now_ms())
        await end(client, half)
        await asyncio.sleep(61)
        assert await client.committed(group=OURS, topic=HALF) == 1
        assert (await clone(client, OURS, "h")).code == ResponseCode.SUCCESS
        assert embedded.broker.offsets.topics_of("h") == []

    with_broker(scene, channelExpiredTimeout="100000000")


@pytest.mark.promise
@pytest.mark.slow
def test_forged_commit_cannot_lose_a_half_message(tmp_path: Path) -> None:
    """It is refused, so the next broker checks the acknowledged half message and accepts its commit."""
    settings = store_with(
        tmp_path, transactionCheckInterval="200", transactionTimeOut="200", flushConsumerOffsetInterval="100"
    )

    offsets = tmp_path / "store" / "config" / "consumerOffset.json"

    async def before(address: str) -> None:
        client = await RawClient.connect(TcpTransport(), address)
        await begin(client, int(time.time() * 1000))
        await client.create_topic("orders")
        codes = [(await client.commit(99_999, group=OURS, topic=topic)).code for topic in (HALF, OP)]
        assert codes == [FORBIDDEN, FORBIDDEN]
        await client.commit(1)
        while not offsets.exists() or b"orders@g" not in offsets.read_bytes():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)
        await client.connection.close()

    async def after(address: str) -> None:
        asked: asyncio.Queue[RemotingCommand] = asyncio.Queue()
        client = await RawClient.connect(TcpTransport(), address, answer=asked.put_nowait)
        await client.heartbeat(producers=(GROUP,))
        answer = ResponseCode.SYSTEM_ERROR
        while answer != ResponseCode.SUCCESS:  # an answer that comes after the next check is refused
            question = Question(await asked.get())
            answer = ResponseCode((await question.answer(client)).code)
        assert [message.body for message in await client.messages("orders")] == [b"hello"]
        await client.connection.close()

    with running("broker", *settings, cwd=tmp_path) as broker:
        asyncio.run(before(broker.address()))
        broker.signal(signal.SIGKILL)
    with running("broker", *settings, cwd=tmp_path) as broker:
        asyncio.run(after(broker.address()))
