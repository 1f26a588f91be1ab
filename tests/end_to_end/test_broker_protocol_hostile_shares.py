"""Limits per address: a greedy client is refused with the reason, while a client at another address is served."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from rocket_broker.clients import heartbeat_limits, queue_locks
from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.filter import consumer_filter_table
from rocket_broker.filter.sql import MAX_LENGTH
from rocket_broker.processors import relay, reply
from rocket_broker.pulling import pull_request_hold
from rocket_broker.tables import consumer_offset_table
from rocket_broker.transaction import pending
from rocket_broker.writing import new_queues
from rocket_remoting import MemoryTransport, Message
from rocket_remoting.wire.batch import encode_batch
from rocket_remoting.wire.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    SubscriptionGroupConfig,
    decode_body,
    encode_body,
)
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    CloneGroupOffsetRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from rocket_remoting.wire.message import MessageQueue
from rocket_remoting.wire.sys_flag import TRANSACTION_ROLLBACK
from streamkit.testing.virtual_time import VirtualTime
from tests.end_to_end.raw_client import COMMITTING, HELD, RawClient, pull_header, send_header
from tests.end_to_end.transactions import GROUP, begin, end

BUSY, ERROR, OK = ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS
GREEDY, HEALTHY = "127.0.0.2", "127.0.0.3"


class Stage:
    """A broker with clients at several addresses."""

    def __init__(self, embedded: EmbeddedBroker, network: MemoryTransport) -> None:
        self.embedded = embedded
        self.broker = embedded.broker
        self._network = network

    async def client(self, host: str, *, answer: Callable[[RemotingCommand], Any] = lambda request: None) -> RawClient:
        """Return a client with its own connection from the address."""
        return await RawClient.connect(self._network.at(host), self.embedded.broker_address, answer=answer)


Scene = Callable[[Stage, RawClient, RawClient], Coroutine[Any, Any, None]]


def on_stage(scene: Scene, **settings: str) -> None:
    """Run the scene with a greedy and a healthy client, in virtual time."""
    keys = {"serverChannelMaxIdleTimeSeconds": "0", "channelExpiredTimeout": "100000000"} | settings

    async def main(clock: Any) -> None:
        network = MemoryTransport()
        async with EmbeddedBroker(transport=network, clock=clock, settings=keys) as embedded:
            stage = Stage(embedded, network)
            await scene(stage, await stage.client(GREEDY), await stage.client(HEALTHY))

    with VirtualTime() as time:
        time.run(main(time.clock))


def is_share(answer: RemotingCommand, code: ResponseCode, owner: str = f"address {GREEDY}") -> bool:
    """Return whether the answer says that the owner's share is used up."""
    return answer.code == code and (answer.remark or "").startswith(f"{owner} has ")


async def lock(client: RawClient, group: str, *queues: MessageQueue) -> RemotingCommand:
    """Return the answer to a lock request."""
    wish = LockBatchRequestBody(consumer_group=group, client_id="c", mq_set=set(queues))
    return await client.ask(Code.LOCK_BATCH_MQ, None, wish)


def locked(answer: RemotingCommand) -> set[MessageQueue]:
    """Return the queues that a client holds."""
    assert answer.code == OK, answer.remark
    return decode_body(answer.body, LockBatchResponseBody).lock_ok_mq_set


# Topics and groups


def test_topics_per_address_are_limited() -> None:
    """However they are created; a deleted topic frees its place, and the broker's own machine has no limit."""

    async def scene(stage: Stage, greedy: RawClient, healthy: RawClient) -> None:
        for number in range(7):
            await greedy.send(f"sent-{number}")
        await greedy.create_topic("made")
        await greedy.send("%RETRY%made")
        await greedy.heartbeat(consumers={"g": {"made": "*"}})
        assert is_share(await greedy.try_send("sent-8"), ResponseCode.TOPIC_NOT_EXIST)
        with pytest.raises(AssertionError, match="maxTopics"):
            await greedy.create_topic("another")
        await greedy.heartbeat(consumers={"h": {"made": "*"}})
        assert "%RETRY%h" not in stage.broker.topics
        await greedy.send("made")
        (message,) = await greedy.messages("made")
        assert is_share(await greedy.send_back(message, "h"), ERROR)
        await greedy.send("sent-0")
        await healthy.send("orders")
        await healthy.create_topic("others")
        await healthy.heartbeat(consumers={"i": {"orders": "*"}})
        assert "%RETRY%i" in stage.broker.topics
        await healthy.ask_ok(Code.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="sent-0"))
        await greedy.send("sent-8")
        local = await stage.client("127.0.0.1")
        for number in range(11):
            await local.send(f"local-{number}")

    on_stage(scene, maxTopics="40")


def test_loaded_topics_have_no_owner(tmp_path: Any) -> None:
    """After a restart their creators are unknown; only the total is limited."""

    async def main(clock: Any) -> None:
        network = MemoryTransport()
        for _ in range(2):
            keys = {"maxTopics": "32"}
            async with EmbeddedBroker(tmp_path, transport=network, clock=clock, settings=keys) as embedded:
                greedy = await Stage(embedded, network).client(GREEDY)
                before = len(embedded.broker.topics)
                answers = [await greedy.try_send(f"topic-{before + number}") for number in range(9)]
                assert [answer.code for answer in answers] == [OK] * 8 + [ResponseCode.TOPIC_NOT_EXIST]
                await greedy.connection.close()

    with VirtualTime() as time:
        time.run(main(time.clock))


def test_groups_per_address_are_limited() -> None:
    """Each kind of request gets the reason."""

    async def scene(stage: Stage, greedy: RawClient, healthy: RawClient) -> None:
        await greedy.send()
        await greedy.heartbeat(consumers={f"g{number}": {"orders": "*"} for number in range(20)})
        made = [group for group in stage.broker.groups if group.startswith("g")]
        assert len(made) == 10
        unknown = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        config = encode_body(SubscriptionGroupConfig(group_name="tool"))
        header = pull_header("orders", 0, consumer_group="another")
        assert is_share(await greedy.ask(Code.PULL_MESSAGE, header), unknown)
        assert is_share(await greedy.commit(1, group="another"), unknown)
        assert is_share(await greedy.ask(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config), ERROR)
        assert (await greedy.pull(consumer_group=made[0])).bodies == [b"hello"]
        assert (await healthy.pull(consumer_group="honest")).bodies == [b"hello"]
        await healthy.ask_ok(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, config)
        gone = DeleteSubscriptionGroupRequestHeader(group_name=made[0])
        await healthy.ask_ok(Code.DELETE_SUBSCRIPTIONGROUP, gone)
        assert (await greedy.pull(consumer_group="another")).bodies == [b"hello"]

    on_stage(scene, maxGroups="40")


def test_new_queues_per_address_are_limited_in_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Creating a queue's file blocks all clients:

    of existing topics too, and no topic is created that would get none.
    """
    monkeypatch.setattr(new_queues, "AT_ONCE", 10)
    monkeypatch.setattr(new_queues, "A_SECOND", 2)

    async def scene(stage: Stage, greedy: RawClient, healthy: RawClient) -> None:
        await greedy.create_topic("wide", 100)
        answers = [await greedy.try_send("wide", queue_id=queue) for queue in range(8)]
        answers += [await greedy.try_send(f"flood-{number}") for number in range(4)]
        assert [answer.code for answer in answers] == [OK] * 10 + [BUSY] * 2
        assert f"address {GREEDY} created too many queues recently" in (answers[-1].remark or "")
        assert "flood-2" not in stage.broker.topics
        batch = encode_batch([Message("wide", b"x")])
        in_batch = await greedy.ask(Code.SEND_BATCH_MESSAGE, send_header("wide", queue_id=9), batch)
        assert in_batch.code == BUSY
        assert await greedy.end("wide", 9) == 0
        await greedy.send("wide", queue_id=0)
        for _ in range(20):  # a queue counts once, though its messages come later
            await healthy.send("waiting", properties={"DELAY": "5"})
        for number in range(5):
            await healthy.send(f"honest-{number}")
        local = await stage.client("127.0.0.1")
        for number in range(11):
            await local.send(f"local-{number}")
        await asyncio.sleep(1)
        answers = [await greedy.try_send(f"later-{number}") for number in range(3)]
        assert [answer.code for answer in answers] == [OK, OK, BUSY]

    on_stage(scene)


def test_new_queues_per_address_are_limited_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their files take disk space for good."""
    monkeypatch.setattr(new_queues, "MOST", 10)

    async def scene(stage: Stage, greedy: RawClient, healthy: RawClient) -> None:
        answers = [await greedy.try_send(f"flood-{number}") for number in range(12)]
        assert [answer.code for answer in answers] == [OK] * 10 + [BUSY] * 2
        await asyncio.sleep(11)
        answers = [await greedy.try_send(f"later-{number}") for number in range(2)]
        assert [answer.code for answer in answers] == [OK, BUSY]
        await healthy.send("orders")

    on_stage(scene)


# Offsets and locks


def test_offsets_per_address_and_group_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Commits, commits of pulls, and clones; existing ones can be updated."""
    monkeypatch.setattr(consumer_offset_table, "MAX_OFFSETS", 40)

    async def scene(stage: Stage, greedy: RawClient, healthy: RawClient) -> None:
        await greedy.create_topic("orders", 20)
        for number in range(10):
            assert (await greedy.commit(1, group=f"forged-{number}")).code == OK
        assert is_share(await greedy.commit(1, group="forged-10"), ERROR)
        pulled = await greedy.pull(consumer_group="forged-11", sys_flag=COMMITTING, commit_offset=1)
        assert pulled.code == ResponseCode.PULL_NOT_FOUND
        assert await greedy.committed(group="forged-11") is None
        copy = CloneGroupOffsetRequestHeader(src_group="forged-1", dest_group="forged-12", topic="orders", offline=True)
        assert is_share(await greedy.ask(Code.CLONE_GROUP_OFFSET, copy), ERROR)
        assert (await greedy.commit(2, group="forged-1")).code == OK
        answers = [await healthy.commit(1, group="honest", queue_id=queue) for queue in range(10)]
        assert {answer.code for answer in answers} == {OK}
        local = await stage.client("127.0.0.1")
        assert is_share(await local.commit(1, group="honest", queue_id=10), ERROR, "group honest")
        assert (await local.commit(1, group="other")).code == OK
        gone = DeleteSubscriptionGroupRequestHeader(group_name="forged-1", remove_offset=True)
        await local.ask_ok(Code.DELETE_SUBSCRIPTIONGROUP, gone)
        assert (await greedy.commit(1, group="forged-10")).code == OK

    on_stage(scene)


def test_locks_per_address_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused request has the reason; locks that were granted, in it or before, are held."""
    monkeypatch.setattr(queue_locks, "MAX_LOCKS", 2048)
    queues = [MessageQueue("orders", "broker-a", number) for number in range(1024)]

    async def scene(stage: Stage, greedy: RawClient, healthy: RawClient) -> None:
        await greedy.create_topic("orders", 1024)
        first = await lock(greedy, "g0", *queues[:300])
        assert locked(first) == set(queues[:300])
        second = await lock(greedy, "g1", *queues)
        assert len(locked(second)) == 212
        assert (second.remark or "").startswith(f"address {GREEDY} has 512 queue locks")
        assert is_share(await lock(greedy, "g2", *queues), ERROR)
        assert locked(await lock(greedy, "g0", *queues[:300])) == set(queues[:300])
        assert locked(await lock(healthy, "h", *queues[:512])) == set(queues[:512])
        local = await stage.client("127.0.0.1")
        of_group = await lock(local, "h", *queues[512:])
        assert (of_group.code, of_group.remark) == (
            ERROR, "group h has 512 queue locks, one group has at most 512",
        )  # fmt: skip
        await asyncio.sleep(75)
        assert len(stage.broker.locks) == 0
        assert len(locked(await lock(greedy, "g2", *queues))) == 512

    on_stage(scene)


# Heartbeats, filters, pulls


def test_subscription_memory_per_address_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all its connections; a closed one frees its share."""
    monkeypatch.setattr(heartbeat_limits, "MAX_TOTAL", 400_000)
    wide = {f"topic-{number}": "*" for number in range(80)}

    async def scene(stage: Stage, greedy: RawClient, healthy: RawClient) -> None:
        await greedy.heartbeat("c", consumers={"g": wide})
        more = await stage.client(GREEDY)
        assert is_share(await more.heartbeat("d", consumers={"h": wide}, expected=ERROR), ERROR)
        await healthy.heartbeat("e", consumers={"h": wide})
        await greedy.connection.close()
        await asyncio.sleep(1)
        await more.heartbeat("d", consumers={"i": wide})

    on_stage(scene)


def test_filters_per_address_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own dead filters are removed first, those of others are not."""
    monkeypatch.setattr(consumer_filter_table, "MAX_CHARACTERS", 400)

    async def scene(stage: Stage, greedy: RawClient, healthy: RawClient) -> None:
        async def tell(who: RawClient, group: str) -> bool:
            text = f"name = '{group:<30}'"
            await who.heartbeat(group, consumers={group: {"orders": text}}, expression_type="SQL92")
            return stage.broker.filters.get(group, "orders") is not None

        await healthy.send()
        leaving = await stage.client(GREEDY)
        former = await stage.client(HEALTHY)
        assert await tell(former, "former")
        await former.connection.close()
        assert [await tell(leaving, "first"), await tell(greedy, "second")] == [True, True]
        assert not await tell(greedy, "third")
        assert await tell(healthy, "honest")
        header = pull_header("orders", 0, consumer_group="third", sys_flag=0, sub_version=1)
        answer = await greedy.ask(Code.PULL_MESSAGE, header)
        assert answer.code == ResponseCode.FILTER_DATA_NOT_EXIST
        assert "the limit of filters is reached, for this group, this address" in (answer.remark or "")
        await leaving.connection.close()
        await asyncio.sleep(1)
        assert await tell(greedy, "third")
        assert stage.broker.filters.get("first", "orders") is None
        assert stage.broker.filters.get("former", "orders") is not None

    on_stage(scene)


def test_compilation_per_address_is_limited() -> None:
    """All its connections share one measure, for pulls and heartbeats."""

    async def scene(stage: Stage, greedy: RawClient, healthy: RawClient) -> None:
        long = "a = '" + "y" * (MAX_LENGTH - 20) + "' OR b = {}"
        await healthy.send()
        codes = []
        for number in range(8):
            one = await stage.client(GREEDY)
            pulled = await one.pull(subscription=long.format(number), expression_type="SQL92")
            codes.append(pulled.code)
        assert codes[:4].count(BUSY) == 0
        assert set(codes[4:]) == {BUSY}
        for number in range(8, 30):
            reported = {f"g{number}": {"orders": long.format(number)}}
            await greedy.heartbeat(consumers=reported, expression_type="SQL92")
        pulled = await healthy.pull(subscription=long.format(31), expression_type="SQL92")
        assert pulled.code == ResponseCode.PULL_RETRY_IMMEDIATELY  # looked for, and not found

    on_stage(scene)


def test_held_pulls_per_address_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """By memory over all connections; others are held and answered."""
    monkeypatch.setattr(pull_request_hold, "MAX_BYTES", 40 * pull_request_hold.PULL_SIZE)

    async def scene(stage: Stage, greedy: RawClient, healthy: RawClient) -> None:
        await healthy.send()
        more = await stage.client(GREEDY)
        asked = [asyncio.create_task(who.pull(offset=1, **_held())) for who in (greedy, more) for _ in range(6)]
        await asyncio.sleep(1)
        refused = [task.result() for task in asked if task.done()]
        assert {pulled.code for pulled in refused} == {BUSY}
        assert f"address {GREEDY} has" in (refused[0].remark or "")
        waiting = asyncio.create_task(healthy.pull(offset=1, **_held()))
        await asyncio.sleep(1)
        await healthy.send(body=b"next")
        assert (await waiting).bodies == [b"next"]
        assert [(await task).bodies for task in asked if task.result() not in refused] == [[b"next"]] * 9

    on_stage(scene)


def _held() -> Mapping[str, Any]:
    return {"sys_flag": HELD, "suspend_timeout_millis": 10_000_000}


# Transactions, and what waits for clients


def test_transactions_per_address_and_group_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pending ones count; each end frees a place, a check does not."""
    monkeypatch.setattr(pending, "MAX_PENDING", 12)

    async def scene(stage: Stage, greedy: RawClient, healthy: RawClient) -> None:
        now = stage.broker.clock.now_ms()

        async def half(who: RawClient, group: str) -> RemotingCommand:
            properties = {"TRAN_MSG": "true", "PGROUP": group, "UNIQ_KEY": "k"}
            return await who.try_send(producer_group=group, sys_flag=4, born_timestamp=now, properties=properties)

        for number in range(3):
            assert (await half(greedy, f"p{number}")).code == OK
        assert is_share(await half(greedy, "p9"), ERROR)
        first = await begin(healthy, now)
        assert [(await half(healthy, GROUP)).code for _ in range(2)] == [OK, OK]
        local = await stage.client("127.0.0.1")
        assert is_share(await half(local, GROUP), ERROR, f"group {GROUP}")
        assert (await half(local, "local")).code == OK
        await asyncio.sleep(200)
        assert stage.broker.halves.pending.count == 7
        assert is_share(await half(greedy, "p9"), ERROR)
        await asyncio.sleep(3600)
        assert stage.broker.halves.pending.count == 0
        assert (await half(greedy, "p9")).code == OK
        ended = await begin(local, stage.broker.clock.now_ms())
        await end(local, ended, commit_or_rollback=TRANSACTION_ROLLBACK)
        assert stage.broker.halves.pending.count == 1
        assert first.queue_offset == 3

    on_stage(scene, transactionProducerWaitHours="1")


def test_tool_requests_per_address_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most a quarter of the pending requests to consumers."""
    monkeypatch.setattr(relay, "MAX_CALLS", 16)

    async def scene(stage: Stage, greedy: RawClient, healthy: RawClient) -> None:
        await healthy.heartbeat("silent", consumers={"g": {"orders": "*"}})
        ready = await stage.client(HEALTHY, answer=RemotingCommand.response)
        await ready.heartbeat("ready", consumers={"g": {"orders": "*"}})
        silent = GetConsumerRunningInfoRequestHeader(consumer_group="g", client_id="silent")
        asked = [asyncio.create_task(greedy.ask(Code.GET_CONSUMER_RUNNING_INFO, silent)) for _ in range(6)]
        await asyncio.sleep(1)
        assert [is_share(task.result(), BUSY) for task in asked if task.done()] == [True, True]
        header = GetConsumerRunningInfoRequestHeader(consumer_group="g", client_id="ready")
        assert (await healthy.ask(Code.GET_CONSUMER_RUNNING_INFO, header)).code == OK
        await asyncio.gather(*asked)
        assert (await greedy.ask(Code.GET_CONSUMER_RUNNING_INFO, header)).code == OK

    on_stage(scene)


def test_replies_per_address_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """To clients that do not answer: by number and bytes."""
    monkeypatch.setattr(reply, "MAX_PUSHES", 16)
    monkeypatch.setattr(reply, "MAX_PUSHED_BYTES", 16_000)

    async def scene(stage: Stage, greedy: RawClient, healthy: RawClient) -> None:
        silent = await stage.client(HEALTHY)
        await silent.heartbeat("silent", producers=("p",))
        ready = await stage.client(HEALTHY, answer=RemotingCommand.response)
        await ready.heartbeat("ready", producers=("p",))

        def to(asker: str) -> Any:
            return send_header("DefaultCluster_REPLY_TOPIC", {"REPLY_TO_CLIENT": asker})

        code = Code.SEND_REPLY_MESSAGE_V2
        asked = [asyncio.create_task(greedy.ask(code, to("silent"), b"x")) for _ in range(6)]
        await asyncio.sleep(1)
        assert [is_share(task.result(), BUSY) for task in asked if task.done()] == [True, True]
        assert (await healthy.ask(code, to("ready"), b"x")).code == OK
        await asyncio.gather(*asked)
        assert is_share(await greedy.ask(code, to("silent"), bytes(5000)), BUSY)
        assert (await greedy.ask(code, to("ready"), bytes(4000))).code == OK

    on_stage(scene)
