"""Requests and replies of our client through Apache's brokers."""

import asyncio

from rocket_client import (
    Admin,
    ClientSettings,
    ConsumeContext,
    ConsumeFromWhere,
    Producer,
    ProducerSettings,
    PushConsumer,
    PushConsumerSettings,
)
from rocket_remoting import Message, MessageExt
from tests.peer.apache import ApacheBroker
from tests.peer.stage import ANSWER_TIMEOUT


def test_request_gets_its_reply(apache_broker: ApacheBroker) -> None:
    """From any consumer, through the broker."""
    address = apache_broker.name_server

    async def main() -> None:
        async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
            await waiter.reply(messages[0], messages[0].body.upper())

        async with Admin(ClientSettings(name_servers=address, request_timeout=ANSWER_TIMEOUT)) as admin:
            await admin.create_topic("asked", 1)
            await admin.await_topic("asked", timeout=60)
        # The request may be stored before the consumer asks where its queue ends.
        first = ConsumeFromWhere.FIRST_OFFSET
        consumer = PushConsumer("asked-waiters", PushConsumerSettings(name_servers=address, consume_from_where=first))
        consumer.subscribe("asked")
        consumer.listen_concurrently(listen)
        settings = ProducerSettings(name_servers=address)
        async with Producer("asked-w", settings) as waiter, consumer, Producer("asked-g", settings) as guest:
            reply = await guest.request(Message("asked", b"coffee"), timeout=60)
        assert reply.body == b"COFFEE"

    asyncio.run(main())
