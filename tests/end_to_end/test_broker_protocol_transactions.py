"""Transactions over the wire: half messages, ends, checks and messages put aside."""

import asyncio
import re
from pathlib import Path

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.transaction.check_service import LOOKED_AT_ONCE, TransactionCheckService
from rocket_client import Admin, ClientSettings
from rocket_remoting import MemoryTransport, TcpTransport
from rocket_remoting.wire.bodies import KVTable, decode_body
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import ResponseError
from rocket_remoting.wire.headers import ResumeCheckHalfMessageRequestHeader
from rocket_remoting.wire.message_id import create_offset_id
from rocket_remoting.wire.sys_flag import TRANSACTION_COMMIT, TRANSACTION_NOT, TRANSACTION_ROLLBACK
from streamkit.testing.virtual_time import VirtualTime
from tests.end_to_end.raw_client import RawClient, Scene
from tests.end_to_end.raw_client import with_broker as with_any_broker
from tests.end_to_end.transactions import (
    GROUP,
    HALF,
    OP,
    PUT_ASIDE,
    Question,
    begin,
    end,
    end_header,
    questions,
)

MINUTE = 60.0
HOUR = 60 * MINUTE


def with_broker(scene: Scene[None], **settings: str) -> None:
    """Run the scene with a broker that expires no client."""
    with_any_broker(scene, channelExpiredTimeout="100000000", **settings)


def now_ms(embedded: EmbeddedBroker) -> int:
    """Return the broker's wall-clock time."""
    return embedded.broker.clock.now_ms()


def test_half_message_is_invisible_until_it_is_committed() -> None:
    """It is in the half topic with its target; the answer has the offsets for the end."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders", queues=2)
        half = await begin(client, now_ms(embedded), TAGS="A", KEYS="k", mine="x")
        assert (half.queue_offset, half.transaction_id) == (0, "id-1")
        assert await client.messages() == []
        (waiting,) = await client.messages(HALF)
        assert waiting.sys_flag == 0
        assert waiting.properties == {
            "TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": "id-1", "TAGS": "A", "KEYS": "k", "mine": "x",
            "CLUSTER": "DefaultCluster", "MSG_REGION": "DefaultRegion", "REAL_TOPIC": "orders", "REAL_QID": "0",
        }  # fmt: skip

        assert (await end(client, half)).code == ResponseCode.SUCCESS
        (message,) = await client.messages()
        assert message.body == b"hello"
        assert message.sys_flag == TRANSACTION_COMMIT
        assert message.prepared_transaction_offset == waiting.commit_log_offset
        assert message.properties == waiting.properties
        assert (message.born_timestamp, message.born_host) == (waiting.born_timestamp, waiting.born_host)
        (op,) = await client.messages(OP)
        assert (op.tags, op.body) == ("d", b"0")

    with_broker(scene)


def test_rollback_leaves_only_its_op_message() -> None:
    """The message is neither delivered nor checked."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.heartbeat(producers=(GROUP,))
        half = await begin(client, now_ms(embedded))
        assert (await end(client, half, commit_or_rollback=TRANSACTION_ROLLBACK)).code == 0
        await asyncio.sleep(10 * MINUTE)
        assert await client.messages() == []
        assert questions(client) == []
        assert [op.body for op in await client.messages(OP)] == [b"0"]

    with_broker(scene)


def test_committed_message_has_its_tag_and_queue() -> None:
    """Its sender's queue, at the next offset."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders", queues=3)
        for number in range(3):
            half = await client.send(
                "orders",
                f"{number}".encode(),
                queue_id=2,
                producer_group=GROUP,
                properties={"TRAN_MSG": "true", "PGROUP": GROUP, "TAGS": "AB"[number % 2]},
                born_timestamp=now_ms(embedded),
            )
            assert half.queue_id == 2
            await end(client, half)
        pulled = await client.pull("orders", queue_id=2, subscription="A")
        assert [(m.body, m.queue_offset) for m in pulled.messages] == [(b"0", 0), (b"2", 2)]

    with_broker(scene)


@pytest.mark.parametrize(
    ("changed", "remark"),
    [
        ({"producer_group": "others"}, "The producer group wrong: others instead of producers"),
        ({"tran_state_table_offset": 7}, "The transaction state table offset wrong: 7 instead of 0"),
        ({"commit_log_offset": 99_999}, "Find prepared transaction message failed: no half message at 99999"),
        ({"commit_log_offset": -1}, "Find prepared transaction message failed: no half message at -1"),
        ({"transaction_id": "id-2"}, "The transaction id wrong: id-2 instead of id-1"),
        ({"commit_or_rollback": 5}, "commitOrRollback field wrong: 5"),
    ],
)
def test_end_for_another_transaction_is_refused(changed: dict[str, object], remark: str) -> None:
    """With Apache's code and remark and the reason; the transaction stays open."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        half = await begin(client, now_ms(embedded))
        answer = await end(client, half, **changed)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert answer.remark.startswith(remark)
        assert await client.end(OP) == 0
        assert (await end(client, half)).code == ResponseCode.SUCCESS

    with_broker(scene)


def test_end_for_a_plain_message_is_refused() -> None:
    """Otherwise any message could be stored twice by its offset."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        plain = await client.send(properties={"PGROUP": GROUP})
        answer = await end(client, plain)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert await client.end() == 1

    with_broker(scene)


@pytest.mark.parametrize("first", [TRANSACTION_COMMIT, TRANSACTION_ROLLBACK])
def test_transaction_can_end_once(first: int) -> None:
    """Whoever repeats an end, or changes their mind, changes nothing: no second message, no late commit."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        half = await begin(client, now_ms(embedded))
        await end(client, half, commit_or_rollback=first)
        stored = await client.end()
        for outcome in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK) * 2:
            answer = await end(client, half, commit_or_rollback=outcome)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "has ended" in (answer.remark or "")
        assert await client.end() == stored == (1 if first == TRANSACTION_COMMIT else 0)
        assert await client.end(OP) == 1

    with_broker(scene)


def test_unknown_end_leaves_the_transaction_to_a_check() -> None:
    """Nothing is stored; the next round checks, and its answer commits."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.heartbeat(producers=(GROUP,))
        half = await begin(client, now_ms(embedded))
        assert (await end(client, half, commit_or_rollback=TRANSACTION_NOT)).code == ResponseCode.SUCCESS
        await asyncio.sleep(MINUTE + 1)
        (question,) = questions(client)
        assert (await question.answer(client)).code == ResponseCode.SUCCESS
        assert len(await client.messages()) == 1

    with_broker(scene)


def test_check_has_the_original_message() -> None:
    """With its topic and ids, and the offsets for the answer."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.heartbeat(producers=(GROUP,))
        half = await begin(client, now_ms(embedded), KEYS="k", TRANSACTION_ID="mine")
        await asyncio.sleep(MINUTE + 1)
        (question,) = questions(client)
        header, message = question.header, question.message
        assert (header.msg_id, header.transaction_id, header.topic) == ("id-1", "id-1", "orders")
        assert header.offset_msg_id == create_offset_id(*message.store_host, header.commit_log_offset)
        assert header.tran_state_table_offset == half.queue_offset + 1  # stored anew
        assert (message.topic, message.body, message.keys) == ("orders", b"hello", "k")
        assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
        assert message.properties["TRANSACTION_ID"] == "mine"
        assert message.queue_offset == header.tran_state_table_offset

    with_broker(scene)


def test_producers_own_end_is_valid_after_a_check() -> None:
    """A long local transaction is ended by the offsets of its first answer."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.heartbeat(producers=(GROUP,))
        half = await begin(client, now_ms(embedded))
        await asyncio.sleep(3 * MINUTE + 1)
        first, _, last = questions(client)
        assert (await end(client, half)).code == ResponseCode.SUCCESS
        assert (await end(client, half)).code == ResponseCode.SYSTEM_ERROR
        assert (await first.answer(client)).code == ResponseCode.SYSTEM_ERROR
        assert (await last.answer(client)).code == ResponseCode.SYSTEM_ERROR
        assert len(await client.messages()) == 1
        await asyncio.sleep(3 * MINUTE)
        assert len(questions(client)) == 3

    with_broker(scene)


def test_transaction_is_put_aside_after_fifteen_checks() -> None:
    """One a minute; then the message is in TRANS_CHECK_MAX_TIME_TOPIC with all its properties."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.heartbeat(producers=(GROUP,))
        await begin(client, now_ms(embedded), KEYS="k")
        await asyncio.sleep(1)
        for times in range(1, 16):
            await asyncio.sleep(MINUTE)
            asked = questions(client)
            assert len(asked) == times
            assert asked[-1].message.properties["TRANSACTION_CHECK_TIMES"] == str(times)
        assert await client.messages(PUT_ASIDE) == []
        await asyncio.sleep(MINUTE)
        (message,) = await client.messages(PUT_ASIDE)
        assert message.properties["TRANSACTION_CHECK_TIMES"] == "15"
        assert (message.properties["REAL_TOPIC"], message.keys) == ("orders", "k")
        await asyncio.sleep(10 * MINUTE)
        assert len(questions(client)) == 15
        answer = await questions(client)[-1].answer(client)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert await client.messages() == []

    with_broker(scene)


def test_put_aside_message_can_be_resumed() -> None:
    """By request 323 with its id: checks start again from the first."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.heartbeat(producers=(GROUP,))
        await begin(client, now_ms(embedded))
        await asyncio.sleep(2 * MINUTE + 1)
        (aside,) = await client.messages(PUT_ASIDE)
        header = ResumeCheckHalfMessageRequestHeader(topic=PUT_ASIDE, msg_id=aside.offset_message_id)
        await client.ask_ok(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
        client.pushed.clear()
        await asyncio.sleep(MINUTE)
        (question,) = questions(client)
        assert question.message.properties["TRANSACTION_CHECK_TIMES"] == "1"
        assert (await question.answer(client)).code == ResponseCode.SUCCESS
        assert len(await client.messages()) == 1

    with_broker(scene, transactionCheckMax="1")


@pytest.mark.parametrize("message_id", ["", "zz", "7F00000100002A9F00000000000F4240"])
def test_only_put_aside_messages_can_be_resumed(message_id: str) -> None:
    """Other ids are refused, and nothing is stored."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        plain = await client.send()
        for wrong in (message_id, plain.msg_id):
            header = ResumeCheckHalfMessageRequestHeader(msg_id=wrong)
            answer = await client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
            assert answer.code == ResponseCode.SYSTEM_ERROR
        assert await client.end(HALF) == 0

    with_broker(scene)


def test_live_producers_of_the_group_are_checked_in_turn() -> None:
    """One that left is not asked any more."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        transport = embedded.broker.transport
        others = [await RawClient.connect(transport, embedded.broker_address) for _ in range(2)]
        for number, other in enumerate(others):
            await other.heartbeat(f"p@{number}", producers=(GROUP,))
        await client.heartbeat("stranger", producers=("strangers",))
        await begin(client, now_ms(embedded))
        await asyncio.sleep(4 * MINUTE + 1)
        assert [len(questions(other)) for other in others] == [2, 2]
        await others[0].connection.close()
        await asyncio.sleep(2 * MINUTE)
        assert [len(questions(other)) for other in others] == [2, 4]
        assert questions(client) == []

    with_broker(scene)


def test_transaction_waits_for_a_producer_of_its_group() -> None:
    """An hour without one costs no check, others are checked meanwhile, and the group's next producer decides."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        half = await begin(client, now_ms(embedded))
        await client.heartbeat("other", producers=("others",))
        await begin(client, now_ms(embedded), key="id-2", PGROUP="others")
        await asyncio.sleep(1.5 * HOUR + 1)
        assert [question.header.msg_id for question in questions(client)] == ["id-2"] * 15
        (aside,) = await client.messages(PUT_ASIDE)
        assert aside.unique_key == "id-2"
        # It is stored again once an hour, not in each round.
        assert await client.end(HALF) == 2 + 15 + 1
        client.pushed.clear()
        producer = await RawClient.connect(embedded.broker.transport, embedded.broker_address)
        await producer.heartbeat("p@1", producers=(GROUP,))
        await asyncio.sleep(MINUTE + 1)
        (question,) = questions(producer)
        assert question.message.properties["TRANSACTION_CHECK_TIMES"] == "1"
        assert (await end(producer, half)).code == ResponseCode.SUCCESS
        assert [message.unique_key for message in await client.messages()] == ["id-1"]

    with_broker(scene)


def test_transaction_without_a_producer_is_put_aside_after_days(caplog: pytest.LogCaptureFixture) -> None:
    """The log and the run-time figures say so; the id in the log makes the broker check it again, for as long."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await begin(client, now_ms(embedded))
        await asyncio.sleep(HOUR)
        assert await figures(client) == ("1", "0")
        await asyncio.sleep(2 * MINUTE)
        assert await figures(client) == ("0", "1")
        (aside,) = await client.messages(PUT_ASIDE)
        settings = ClientSettings(name_servers=embedded.name_server_address)
        async with Admin(settings, transport=embedded.broker.transport, clock=embedded.broker.clock) as admin:
            (call,) = re.findall(r"streamkit transaction resume (\w+)", caplog.text)
            assert call == aside.offset_message_id
            await admin.resume_transaction(call)
            with pytest.raises(ResponseError):
                await admin.resume_transaction(aside.offset_message_id[:-1] + "1")
        assert await figures(client) == ("1", "1")
        await client.heartbeat(producers=(GROUP,))
        await asyncio.sleep(2 * MINUTE)
        question, *_ = questions(client)
        assert question.message.properties["TRANSACTION_CHECK_TIMES"] == "1"

    async def figures(client: RawClient) -> tuple[str, str]:
        answer = await client.ask_ok(RequestCode.GET_BROKER_RUNTIME_INFO, None)
        table = decode_body(answer.body, KVTable).table
        return table["transactionsPending"], table["transactionsPutAside"]

    with_broker(scene, transactionProducerWaitHours="1")


def test_young_transaction_is_not_checked() -> None:
    """For transactionTimeOut, since its producer may still be working."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.heartbeat(producers=(GROUP,))
        await asyncio.sleep(55)
        await begin(client, now_ms(embedded))
        await asyncio.sleep(6)
        assert questions(client) == []
        await asyncio.sleep(MINUTE)
        assert len(questions(client)) == 1

    with_broker(scene, transactionTimeOut="6000")


def test_message_may_set_its_own_check_immunity_time() -> None:
    """CHECK_IMMUNITY_TIME_IN_SECONDS blocks no others, uses up no check, and the end is valid meanwhile."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.heartbeat(producers=(GROUP,))
        slow = await begin(client, now_ms(embedded), key="slow", CHECK_IMMUNITY_TIME_IN_SECONDS="150")
        await begin(client, now_ms(embedded), key="usual")
        await asyncio.sleep(2 * MINUTE + 1)
        assert [q.header.msg_id for q in questions(client)] == ["usual", "usual"]
        await asyncio.sleep(MINUTE)
        question = questions(client)[-1]
        assert {q.header.msg_id for q in questions(client)} == {"slow", "usual"}
        (asked,) = [q for q in questions(client) if q.header.msg_id == "slow"]
        assert asked.message.properties["TRANSACTION_CHECK_TIMES"] == "1"
        assert asked.message.properties["TRAN_PREPARED_QUEUE_OFFSET"] == str(slow.queue_offset)
        assert (await end(client, slow)).code == ResponseCode.SUCCESS
        assert question.header.msg_id in ("slow", "usual")
        assert len(await client.messages()) == 1

    with_broker(scene)


def test_transaction_older_than_the_retention_time_is_put_aside() -> None:
    """fileReservedTime: without further checks."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.heartbeat(producers=(GROUP,))
        await begin(client, now_ms(embedded) - 73 * 3_600_000)
        await asyncio.sleep(MINUTE + 1)
        assert questions(client) == []
        assert len(await client.messages(PUT_ASIDE)) == 1

    with_broker(scene)


def test_half_messages_can_be_refused_by_a_setting() -> None:
    """rejectTransactionMessage can be changed while the broker runs; plain messages are accepted."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        half = {"TRAN_MSG": "true", "PGROUP": GROUP}
        answer = await client.try_send(properties=half)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "sending transaction message is forbidden" in (answer.remark or "")
        await client.send()

    with_broker(scene, rejectTransactionMessage="true")


@pytest.mark.parametrize(
    ("properties", "sys_flag"),
    [({"TRAN_MSG": "true", "DELAY": "3"}, 4), ({}, 4), ({}, 8), ({"TRAN_MSG": "false"}, 12)],
)
def test_inconsistent_half_message_is_refused(properties: dict[str, str], sys_flag: int) -> None:
    """A delayed one, or one transactional only by its flag: stored plainly it would be delivered early."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        answer = await client.try_send(properties=properties, sys_flag=sys_flag)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert (await client.end(HALF), await client.end()) == (0, 0)

    with_broker(scene)


def test_redelivery_with_the_half_message_property_is_no_half_message() -> None:
    """Clients before 4.6.1 send transactional messages back so."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send(
            "%RETRY%g",
            properties={"TRAN_MSG": "true", "PGROUP": GROUP, "DELAY": "1"},
            reconsume_times=1,
            sys_flag=4,
        )
        await asyncio.sleep(2)
        (message,) = await client.messages("%RETRY%g")
        assert message.sys_flag == 0

    with_broker(scene)


def test_transactions_survive_a_restart(tmp_path: Path) -> None:
    """Pending ones are checked; ended ones stay ended, also after a late end."""

    settings = {"channelExpiredTimeout": "100000000", "serverChannelMaxIdleTimeSeconds": "0"}

    async def main(time: VirtualTime) -> None:
        transport = MemoryTransport()

        def broker() -> EmbeddedBroker:
            return EmbeddedBroker(tmp_path, transport=transport, clock=time.clock, settings=settings)

        async with broker() as embedded:
            client = await RawClient.connect(transport, embedded.broker_address)
            halves = [await begin(client, now_ms(embedded), key=f"id-{n}") for n in range(4)]
            await end(client, halves[0])
            await end(client, halves[2], commit_or_rollback=TRANSACTION_ROLLBACK)
            await client.connection.close()
        async with broker() as embedded:
            client = await RawClient.connect(transport, embedded.broker_address)
            for ended in (halves[0], halves[2]):
                assert (await end(client, ended)).code == ResponseCode.SYSTEM_ERROR
            assert (await end(client, halves[1])).code == ResponseCode.SUCCESS
            await client.heartbeat(producers=(GROUP,))
            await asyncio.sleep(MINUTE + 1)
            (question,) = questions(client)
            assert question.header.msg_id == "id-3"
            assert (await question.answer(client)).code == ResponseCode.SUCCESS
            keys = [message.unique_key for message in await client.messages()]
            assert keys == ["id-0", "id-1", "id-3"]
            await asyncio.sleep(2 * MINUTE)
            committed = [await client.committed(group="CID_RMQ_SYS_TRANS", topic=t) for t in (HALF, OP)]
            assert committed == [await client.end(HALF), await client.end(OP)]
            await client.connection.close()

    with VirtualTime() as time:
        time.run(main(time))


def test_oneway_ends_are_served_and_their_refusals_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """A flood of wrong ones stores nothing and fills no log."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        half = await begin(client, now_ms(embedded))
        for _ in range(1000):
            wrong = end_header(half, producer_group="others")
            client.connection.invoke_oneway(RequestCode.END_TRANSACTION, wrong)
        client.connection.invoke_oneway(RequestCode.END_TRANSACTION, end_header(half))
        assert await client.end() == 1
        assert await client.end(OP) == 1

    with_broker(scene)
    assert caplog.text.count("The producer group wrong") == 1


def test_round_of_many_checks_yields_to_other_work() -> None:
    """A thousand open transactions are checked in small steps."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.heartbeat(producers=(GROUP,))
        for number in range(1000):
            await begin(client, now_ms(embedded), key=f"id-{number}")
        checks = TransactionCheckService(
            settings=embedded.broker.settings,
            clock=embedded.broker.clock,
            halves=embedded.broker.halves,
            producers=embedded.broker.producers,
            statistics=embedded.broker.statistics,
        )
        await asyncio.sleep(7)
        round_ = asyncio.ensure_future(checks.check())
        steps = 0
        while not round_.done():
            await asyncio.sleep(0)
            steps += 1
        assert steps >= 1000 // LOOKED_AT_ONCE
        assert embedded.broker.halves.end == 2000
        await client.end()  # behind the questions
        assert len(questions(client)) == 1000

    with_broker(scene)


def test_checks_and_answers_over_sockets(tmp_path: Path) -> None:
    """On the real clock with a short interval: checked, answered, delivered."""

    async def main() -> None:
        keys = {
            "transactionCheckInterval": "100",
            "transactionTimeOut": "50",
            "transactionCheckMax": "10000",
        }
        async with EmbeddedBroker(tmp_path, settings=keys) as embedded:
            asked: asyncio.Queue[RemotingCommand] = asyncio.Queue()
            client = await RawClient.connect(TcpTransport(), embedded.broker_address, answer=asked.put_nowait)
            await client.heartbeat(producers=(GROUP,))
            await begin(client, now_ms(embedded))
            async with asyncio.timeout(60):
                question = Question(await asked.get())
                while (await question.answer(client)).code != ResponseCode.SUCCESS:
                    question = Question(await asked.get())
            assert [message.unique_key for message in await client.messages()] == ["id-1"]
            await client.connection.close()

    asyncio.run(main())
