"""Waiting messages are delivered although `maxMessageSize` was lowered by a restart."""

import asyncio
from pathlib import Path

from rocket_broker.embedded import EmbeddedBroker
from rocket_remoting import MemoryTransport
from rocket_remoting.wire.codes import ResponseCode
from streamkit.testing.virtual_time import VirtualTime
from tests.end_to_end.raw_client import RawClient
from tests.end_to_end.transactions import GROUP, begin, end, questions


def test_waiting_messages_above_a_lowered_limit_are_delivered(tmp_path: Path) -> None:
    """Delayed, timed, transactional, or sent back: they were acknowledged under the former limit."""

    async def main(time: VirtualTime) -> None:
        transport = MemoryTransport()

        def broker(most: str) -> EmbeddedBroker:
            settings = {"maxMessageSize": most, "serverChannelMaxIdleTimeSeconds": "0"}
            return EmbeddedBroker(tmp_path, transport=transport, clock=time.clock, settings=settings)

        async with broker("5") as embedded:
            client = await RawClient.connect(transport, embedded.broker_address)
            await client.create_topic("orders")
            await client.send(properties={"UNIQ_KEY": "plain"})
            await client.send(properties={"UNIQ_KEY": "delayed", "DELAY": "3"})
            await client.send(properties={"UNIQ_KEY": "timed", "TIMER_DELAY_SEC": "10"})
            now = time.clock.now_ms()
            half, other = [await begin(client, now, key=key) for key in ("committed", "asked about")]
            await client.connection.close()
        async with broker("4") as embedded:
            client = await RawClient.connect(transport, embedded.broker_address)
            await client.heartbeat(producers=(GROUP,))
            assert (await client.try_send()).code == ResponseCode.MESSAGE_ILLEGAL
            (plain,) = await client.messages()
            assert (await client.send_back(plain)).code == ResponseCode.SUCCESS
            assert (await end(client, half)).code == ResponseCode.SUCCESS
            await asyncio.sleep(100)
            assert [question.header.msg_id for question in questions(client)] == ["asked about"]
            assert (await end(client, other)).code == ResponseCode.SUCCESS
            came = {message.unique_key for message in await client.messages()}
            assert came == {"plain", "delayed", "timed", "committed", "asked about"}
            assert [again.unique_key for again in await client.messages("%RETRY%g")] == ["plain"]
            await client.connection.close()

    with VirtualTime() as time:
        time.run(main(time))
