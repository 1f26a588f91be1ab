"""A broker that refuses messages because its disk is full or slow: answers, and what waits for space."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from rocket_broker.embedded import EmbeddedBroker
from rocket_remoting import Message, TcpTransport
from rocket_remoting.wire.batch import encode_batch
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import RecallMessageRequestHeader, SendMessageResponseHeader
from rocket_remoting.wire.sys_flag import TRANSACTION_ROLLBACK
from tests.end_to_end.raw_client import RawClient, send_header, with_broker
from tests.end_to_end.test_broker_protocol_replies import asking
from tests.end_to_end.transactions import GROUP, HALF, begin, end, questions

REFUSED = ResponseCode.SERVICE_NOT_AVAILABLE


@asynccontextmanager
async def full_disk(embedded: EmbeddedBroker) -> AsyncIterator[None]:
    """Simulate disk usage above the limit."""
    store = embedded.broker.store
    store.keep_files_as(replace(store.settings, disk_space_warning_level_ratio=-1))
    await store.clean()
    yield
    store.keep_files_as(store.settings)
    await store.clean()


def test_full_disk_refuses_only_requests_that_store() -> None:
    """With Apache's codes; stored messages are pulled, offsets are committed."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send(body=b"stored")
        half = await begin(client, embedded.broker.clock.now_ms())
        timed = await client.send(properties={"TIMER_DELAY_SEC": "3600", "UNIQ_KEY": "id"})
        recall = RecallMessageRequestHeader(topic="orders", recall_handle=timed.recall_handle or "", producer_group="p")
        (message,) = await client.messages()
        await client.heartbeat(consumers={"g": {"orders": "*"}})
        stored_before = embedded.broker.store.max_commit_log_offset
        async with full_disk(embedded):
            assert (await client.try_send()).code == REFUSED
            assert (await client.try_send(properties={"DELAY": "1"})).code == REFUSED
            batch = encode_batch([Message("orders", b"a"), Message("orders", b"b")])
            assert (await client.ask(Code.SEND_BATCH_MESSAGE, send_header("orders"), batch)).code == REFUSED
            assert (await end(client, half)).code == REFUSED
            assert (await end(client, half, commit_or_rollback=TRANSACTION_ROLLBACK)).code == REFUSED
            assert (await client.ask(Code.RECALL_MESSAGE, recall)).code == REFUSED
            assert (await client.send_back(message)).code == ResponseCode.SYSTEM_ERROR
            assert [found.body for found in await client.messages()] == [b"stored"]
            await client.commit(1)
            assert await client.committed() == 1
            assert embedded.broker.store.max_commit_log_offset == stored_before
        assert (await client.send(body=b"more")).queue_offset == 1
        assert (await end(client, half)).code == ResponseCode.SUCCESS
        assert [found.body for found in await client.messages()] == [b"stored", b"more", b"hello"]
        assert (await client.send_back(message)).code == ResponseCode.SUCCESS
        assert (await client.ask(Code.RECALL_MESSAGE, recall)).code == ResponseCode.SUCCESS

    with_broker(scene)


def test_delayed_messages_wait_for_space() -> None:
    """Delayed and timed ones are delivered once and in order when there is space."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        for number in range(3):
            await client.send(body=b"level %d" % number, properties={"DELAY": "1"})
            properties = {"TIMER_DELAY_MS": "2000"}
            await client.send(body=b"timed %d" % number, queue_id=1, properties=properties)
        async with full_disk(embedded):
            await asyncio.sleep(600)
            assert await client.messages() == await client.messages(queue_id=1) == []
        await asyncio.sleep(60)
        assert [m.body for m in await client.messages()] == [b"level 0", b"level 1", b"level 2"]
        assert [m.body for m in await client.messages(queue_id=1)] == [b"timed 0", b"timed 1", b"timed 2"]

    with_broker(scene)


def test_transaction_checks_pause_without_space() -> None:
    """No producer is asked, and none of the fifteen checks is used up."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        async def minutes(number: int) -> None:
            for _ in range(number):
                await client.heartbeat(producers=(GROUP,))
                await asyncio.sleep(60)

        await begin(client, embedded.broker.clock.now_ms())
        async with full_disk(embedded):
            await minutes(20)
            assert questions(client) == []
            assert len(await client.messages(HALF)) == 1
        await minutes(16)
        checks = [question.message.properties["TRANSACTION_CHECK_TIMES"] for question in questions(client)]
        assert checks == [str(number) for number in range(1, 16)]

    with_broker(scene)


def test_reply_reaches_the_requester_although_it_cannot_be_stored() -> None:
    """As with Apache's brokers."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        asker = await asking(embedded, RemotingCommand.response)
        to_asker = {"REPLY_TO_CLIENT": "asker@1", "CORRELATION_ID": "7"}
        async with full_disk(embedded):
            header = send_header("DefaultCluster_REPLY_TOPIC", to_asker)
            answer = await client.ask(Code.SEND_REPLY_MESSAGE_V2, header, b"42")
        assert answer.code == ResponseCode.SUCCESS
        assert [bytes(push.body) for push in asker.pushed] == [b"42"]
        assert await client.messages("DefaultCluster_REPLY_TOPIC") == []
        await asker.connection.close()

    with_broker(scene)


@pytest.mark.parametrize("wait", ["true", "false"])
def test_flush_timeout_is_reported_to_waiting_senders(monkeypatch: pytest.MonkeyPatch, wait: str) -> None:
    """FLUSH_DISK_TIMEOUT with the message's offset, since it is stored; with WAIT=false the sender does not wait."""
    may_sync, fsync = threading.Event(), os.fsync

    def slow(descriptor: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            may_sync.wait()
        fsync(descriptor)

    async def main() -> RemotingCommand:
        settings = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "50"}
        async with EmbeddedBroker(settings=settings) as embedded:
            client = await RawClient.connect(TcpTransport(), embedded.broker_address)
            monkeypatch.setattr(os, "fsync", slow)
            try:
                answer = await client.try_send(properties={"WAIT": wait})
                assert answer.header(SendMessageResponseHeader).queue_offset == 0
                assert len(await client.messages()) == 1
            finally:
                may_sync.set()
                await client.connection.close()
            return answer

    expected = ResponseCode.FLUSH_DISK_TIMEOUT if wait == "true" else ResponseCode.SUCCESS
    assert asyncio.run(main()).code == expected
