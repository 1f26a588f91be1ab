"""Forged half messages, and half messages that cannot be stored again."""

import asyncio

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.store import StoreMessage
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.headers import ResumeCheckHalfMessageRequestHeader
from rocket_remoting.wire.message_id import create_offset_id, parse_offset_id
from rocket_remoting.wire.properties import encode_properties
from rocket_remoting.wire.record import encode_record
from tests.end_to_end.raw_client import RawClient, Scene
from tests.end_to_end.raw_client import with_broker as with_any_broker
from tests.end_to_end.transactions import GROUP, HALF, OP, PUT_ASIDE, begin, end, questions

MINUTE = 60.0
RECORD_HEAD = 88
"""Bytes of a record before its body."""


def with_broker(scene: Scene[None]) -> None:
    """Run the scene with a broker that expires no client."""
    with_any_broker(scene, channelExpiredTimeout="100000000")


async def send_hidden(client: RawClient, topic: str) -> int:
    """Send a message whose body contains a record; return the record's offset."""
    first, second = [parse_offset_id((await client.send(body=b"")).msg_id)[2] for _ in range(2)]
    offset = second + (second - first) + RECORD_HEAD
    body = encode_record(
        topic,
        b"hidden",
        encode_properties({"PGROUP": "others", "REAL_TOPIC": "secret", "REAL_QID": "0"}),
        queue_id=0,
        queue_offset=0,
        commit_log_offset=offset,
        sys_flag=0,
        flag=0,
        born_timestamp=1,
        born_host=("127.0.0.1", 1),
        store_timestamp=1,
        store_host=("127.0.0.1", 1),
    )
    await client.send(body=body)
    return offset


def test_half_message_within_a_body_is_refused() -> None:
    """A predictable offset could end other transactions or reach any topic."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        half = await begin(client, embedded.broker.clock.now_ms())
        offset = await send_hidden(client, HALF)
        assert embedded.broker.store.message_at(offset) is not None
        answer = await end(client, half, producer_group="others", commit_log_offset=offset, transaction_id=None)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == f"Find prepared transaction message failed: no half message at {offset}"
        assert await client.end(OP) == 0

    with_broker(scene)


def test_put_aside_message_within_a_body_is_refused() -> None:
    """It cannot become a forged half message."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        offset = await send_hidden(client, PUT_ASIDE)
        host, port = parse_offset_id((await client.send()).msg_id)[:2]
        header = ResumeCheckHalfMessageRequestHeader(msg_id=create_offset_id(host, port, offset))
        answer = await client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert await client.end(HALF) == 0

    with_broker(scene)


@pytest.mark.parametrize("more", [{}, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "100"}])
def test_half_message_that_cannot_grow_does_not_block_others(more: dict[str, str]) -> None:
    """Its properties have no space for the number of checks: it is put aside, and the next one is checked."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.heartbeat(producers=(GROUP,))
        now = embedded.broker.clock.now_ms()
        await begin(client, now, key="probe", fill="-", **more)
        (probe,) = await client.messages(HALF)
        room = 32_767 - len(encode_properties(probe.properties))
        await begin(client, now, key="large", fill="x" * (room - 10), **more)
        await begin(client, now, key="small")
        await asyncio.sleep(1.5 * MINUTE)
        assert "small" in {question.message.unique_key for question in questions(client)}
        assert [aside.unique_key for aside in await client.messages(PUT_ASIDE)] == ["large"]

    with_broker(scene)


@pytest.mark.parametrize("flaw", ["REAL_TOPIC", "REAL_QID", "PGROUP"])
def test_half_message_without_its_target_is_put_aside(flaw: str) -> None:
    """No producer can be asked; later ones are checked."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        own = {"REAL_TOPIC": "orders", "REAL_QID": "0", "PGROUP": GROUP, "TRAN_MSG": "true", "UNIQ_KEY": "id"}
        for properties in (own | {flaw: "x" if flaw == "REAL_QID" else ""}, own):
            given = encode_properties({name: value for name, value in properties.items() if value})
            half = StoreMessage(HALF, 0, flaw.encode(), given, born_timestamp=embedded.broker.clock.now_ms())
            embedded.broker.store.put(half)
        await client.heartbeat(producers=(GROUP,))
        await asyncio.sleep(MINUTE * 1.5)
        assert [message.body for message in await client.messages(PUT_ASIDE)] == [flaw.encode()]
        assert [question.message.queue_offset for question in questions(client)] == [2]

    with_broker(scene)
