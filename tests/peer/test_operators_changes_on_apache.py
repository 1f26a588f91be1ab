"""What operators do to messages at Apache's brokers: end transactions, cancel timed ones, have a member handle one."""

import asyncio
import itertools

from rocket_admin.delayed_messages import cancel_delayed, delayed_messages
from rocket_admin.half_messages import end_half_messages, half_messages
from rocket_client import (
    Admin,
    ClientSettings,
    ConsumeContext,
    LocalTransactionState,
    Producer,
    ProducerSettings,
    PushConsumer,
    PushConsumerSettings,
    TransactionProducer,
    TransactionProducerSettings,
)
from rocket_remoting import Message, MessageExt
from rocket_remoting.wire.bodies import ConsumeMessageResult
from tests.peer.apache import ApacheBroker
from tests.peer.stage import ANSWER_TIMEOUT, SEND_TIMEOUT

_numbers = itertools.count(1)


def _admin(broker: ApacheBroker) -> Admin:
    return Admin(ClientSettings(name_servers=broker.name_server, request_timeout=ANSWER_TIMEOUT))


async def _unknown(message: MessageExt) -> LocalTransactionState:
    return LocalTransactionState.UNKNOWN


def test_transactions_are_ended_by_hand(apache_broker: ApacheBroker) -> None:
    """The message of a committed one comes into its topic; one that was rolled back does not."""
    topic = f"by-hand-{next(_numbers)}"
    settings = TransactionProducerSettings(name_servers=apache_broker.name_server, send_timeout=SEND_TIMEOUT)

    async def scene() -> None:
        async with (
            _admin(apache_broker) as admin,
            TransactionProducer(f"{topic}-group", settings, _unknown) as producer,
        ):
            await admin.create_topic(topic, 1)
            await admin.await_topic(topic, timeout=60)
            gone = await producer.begin(Message(topic, b"gone"))
            kept = await producer.begin(Message(topic, b"kept"))
            async with asyncio.timeout(60):
                wanted = {gone.transaction_id, kept.transaction_id}
                while not wanted <= {each.record.message_id for each in (await half_messages(admin)).pending}:
                    continue
                # This broker checks every half second: a message that a check stores again meanwhile is missed.
                while not await end_half_messages(admin, [gone.transaction_id], commits=False):
                    continue
                while not await end_half_messages(admin, [kept.transaction_id], commits=True):
                    continue
                while not (found := await admin.query_by_unique_key(topic, kept.transaction_id)):
                    continue
            assert found[0].body == b"kept"
            assert await admin.query_by_unique_key(topic, gone.transaction_id) == []

    asyncio.run(scene())


def test_timed_messages_are_listed_and_cancelled(apache_broker: ApacheBroker) -> None:
    """Of brokers of 5.x, which cancel them only if they are told to do so."""
    topic = f"timed-{next(_numbers)}"

    async def scene() -> None:
        settings = ProducerSettings(name_servers=apache_broker.name_server, send_timeout=SEND_TIMEOUT)
        async with _admin(apache_broker) as admin, Producer(f"{topic}-group", settings) as producer:
            await admin.create_topic(topic, 1)
            await admin.await_topic(topic, timeout=60)
            await producer.send(Message(topic, b"later", properties={"TIMER_DELAY_SEC": "3600"}))
            if apache_broker.version.startswith("4."):  # it has delivered the message at once
                return
            async with asyncio.timeout(60):
                while not (found := [each for each in (await delayed_messages(admin)).waiting if each.topic == topic]):
                    continue
            (waiting,) = found
            assert (waiting.kind, waiting.can_be_cancelled) == ("timed", False)
            assert await cancel_delayed(admin, [waiting.record.offset_message_id]) == []
            await admin.update_broker_config(apache_broker.address, {"recallMessageEnable": "true"})
            try:
                async with asyncio.timeout(60):
                    assert len(await cancel_delayed(admin, [waiting.record.offset_message_id])) == 1
                    while any(each.topic == topic for each in (await delayed_messages(admin)).waiting):
                        continue
            finally:
                await admin.update_broker_config(apache_broker.address, {"recallMessageEnable": "false"})

    asyncio.run(scene())


def test_one_member_handles_a_message(apache_broker: ApacheBroker) -> None:
    """Its listener is called at once, and the outcome is the answer."""
    topic = f"handled-{next(_numbers)}"
    handled: list[bytes] = []

    async def fail(messages: list[MessageExt], context: ConsumeContext) -> None:
        handled.extend(bytes(message.body) for message in messages)
        raise ValueError("no oven")

    async def scene() -> None:
        settings = ProducerSettings(name_servers=apache_broker.name_server, send_timeout=SEND_TIMEOUT)
        consumer = PushConsumer(f"{topic}-group", PushConsumerSettings(name_servers=apache_broker.name_server))
        consumer.subscribe(topic, "none")
        consumer.listen_concurrently(fail)
        async with _admin(apache_broker) as admin, Producer(f"{topic}-senders", settings) as producer:
            await admin.create_topic(topic, 1)
            await admin.await_topic(topic, timeout=60)
            sent = await producer.send(Message(topic, b"cake"))
            async with consumer, asyncio.timeout(60):
                while (members := await admin.members_at(apache_broker.address, f"{topic}-group")) is None:
                    continue
                outcome = await admin.consume_directly(
                    sent.offset_msg_id, f"{topic}-group", members.connection_set[0].client_id, topic=topic
                )
        assert handled == [b"cake"]
        assert outcome.consume_result is ConsumeMessageResult.CR_THROW_EXCEPTION
        assert "no oven" in (outcome.remark or "")

    asyncio.run(scene())
