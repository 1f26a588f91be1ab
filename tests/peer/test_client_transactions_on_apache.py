"""Our transaction producer on Apache's brokers, which check a transaction after half a second."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

from rocket_client import (
    Admin,
    ClientSettings,
    ConsumeFromWhere,
    LitePullConsumer,
    LitePullConsumerSettings,
    LocalTransactionState,
    TransactionChecker,
    TransactionProducer,
    TransactionProducerSettings,
)
from rocket_remoting import Message, MessageExt
from tests.contract.rocket_environment import FEW_CHECKS, few_checks
from tests.peer.apache import ApacheBroker
from tests.peer.stage import ANSWER_TIMEOUT, SEND_TIMEOUT

_numbers = itertools.count(1)


class Shop:
    """A topic and groups of its own."""

    def __init__(self, broker: ApacheBroker) -> None:
        number = next(_numbers)
        self.topic, self.group = f"tx-topic-{number}", f"tx-group-{number}"
        self.address = broker.name_server
        self.asked: list[MessageExt] = []

    def producer(self, checker: TransactionChecker | None = None) -> TransactionProducer:
        settings = TransactionProducerSettings(name_servers=self.address, send_timeout=SEND_TIMEOUT)
        return TransactionProducer(self.group, settings, checker or self.unknown, topics=[self.topic])

    async def unknown(self, message: MessageExt) -> LocalTransactionState:
        self.asked.append(message)
        return LocalTransactionState.UNKNOWN

    async def commit(self, message: MessageExt) -> LocalTransactionState:
        self.asked.append(message)
        return LocalTransactionState.COMMIT

    def consumer(self, topic: str = "") -> LitePullConsumer:
        settings = LitePullConsumerSettings(name_servers=self.address, consume_from_where=ConsumeFromWhere.FIRST_OFFSET)
        consumer = LitePullConsumer(f"{self.group}-c", settings)
        consumer.subscribe(topic or self.topic)
        return consumer

    async def seen(self, count: int) -> list[MessageExt]:
        """Return that many messages of the topic, and any that follow."""
        messages: list[MessageExt] = []
        async with self.consumer() as consumer, asyncio.timeout(60):
            while len(messages) < count:
                messages += await consumer.poll(1)
            messages += await consumer.poll(0.3)
        return messages


def play(broker: ApacheBroker, scene: Callable[[Shop], Awaitable[None]]) -> None:
    async def main() -> None:
        shop = Shop(broker)
        async with Admin(ClientSettings(name_servers=broker.name_server, request_timeout=ANSWER_TIMEOUT)) as admin:
            await admin.create_topic(shop.topic, 1)
            await admin.await_topic(shop.topic, timeout=60)
            await scene(shop)

    asyncio.run(main())


def test_only_committed_messages_are_delivered(apache_broker: ApacheBroker) -> None:
    """With properties and id; rolled back and open ones are not."""

    async def scene(shop: Shop) -> None:
        async def pay(message: Message) -> LocalTransactionState:
            return LocalTransactionState[message.body.decode()]

        async with shop.producer() as producer:
            for body in (b"ROLLBACK", b"UNKNOWN", b"COMMIT"):
                message = Message(shop.topic, body, tags="T", properties={"order": "7"})
                sent = await producer.send_in_transaction(message, pay)
            (message_seen,) = await shop.seen(1)
        assert (message_seen.body, message_seen.tags) == (b"COMMIT", "T")
        assert message_seen.properties["order"] == "7"
        assert message_seen.msg_id == message.unique_key == sent.send_result.msg_id
        assert message_seen.sys_flag & 0b1100 == 8

    play(apache_broker, scene)


def test_crashed_producer_is_replaced_by_another_member(apache_broker: ApacheBroker) -> None:
    """The broker checks with a later member of the group, which has sent nothing."""

    async def scene(shop: Shop) -> None:
        async with shop.producer() as crashed:
            transaction = await crashed.begin(Message(shop.topic, b"half"))
        async with shop.producer(shop.commit):
            messages = await shop.seen(1)
        assert {message.body for message in messages} == {b"half"}
        assert {(asked.topic, asked.body, asked.msg_id) for asked in shop.asked} == {
            (shop.topic, b"half", transaction.transaction_id)
        }
        # If a check begins before the last commit is recorded, the transaction is checked and delivered again.
        assert len(messages) <= len(shop.asked)

    play(apache_broker, scene)


def test_unknown_transaction_is_checked_until_it_is_put_aside(apache_broker: ApacheBroker) -> None:
    """After `transactionCheckMax` checks the message is in TRANS_CHECK_MAX_TIME_TOPIC."""

    async def scene(shop: Shop) -> None:
        async with shop.producer() as producer:
            await producer.begin(Message(shop.topic, b"lost"))
            async with shop.consumer("TRANS_CHECK_MAX_TIME_TOPIC") as consumer, asyncio.timeout(60):
                bodies: list[bytes] = []
                while not bodies:  # the topic has messages of other tests on this broker, too
                    polled = await consumer.poll(1)
                    bodies = [m.body for m in polled if m.properties["REAL_TOPIC"] == shop.topic]
        assert bodies == [b"lost"]
        assert FEW_CHECKS <= len(shop.asked) <= FEW_CHECKS + 1

    with few_checks(apache_broker.address):
        play(apache_broker, scene)
