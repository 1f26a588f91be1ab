"""Fast failure of an overloaded broker: late requests are refused, and nothing is lost."""

import asyncio
import threading
from datetime import timedelta

from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.processors.send_runs import MOST_SENDS
from rocket_broker.settings.properties_file import entries_of
from rocket_client import (
    LocalTransactionState,
    Producer,
    ProducerSettings,
    TransactionProducer,
    TransactionProducerSettings,
)
from rocket_remoting import Message, MessageExt, TcpTransport
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode
from tests.end_to_end.raw_client import RawClient, send_header

IMPATIENT = {"brokerFastFailureEnable": "true", "waitTimeMillsInSendQueue": "100"}


class SlowDisk:
    """Blocks the loop for 250 ms per message with a number in its body."""

    def __init__(self, embedded: EmbeddedBroker, *slow: int) -> None:
        self._slow = slow
        self._number = 0
        embedded.broker.store.arrival_listeners.append(self._stored)

    def _stored(self, *message: object) -> None:
        if self._number in self._slow:
            threading.Event().wait(0.25)
        self._number += 1


def test_sends_behind_a_slow_one_are_refused() -> None:
    """With Apache's code and remark;

    refused messages are not stored and can be sent again, acknowledged ones are stored.
    """

    async def main() -> None:
        async with EmbeddedBroker(settings=IMPATIENT) as embedded:
            client = await RawClient.connect(TcpTransport(), embedded.broker_address)
            await client.send(body=b"first")
            SlowDisk(embedded, 0)
            bodies = [b"%d" % number for number in range(3 * MOST_SENDS)]  # more than are stored together
            answers = await asyncio.gather(
                *(client.ask(Code.SEND_MESSAGE_V2, send_header("orders"), body) for body in bodies)
            )
            refused = [answer for answer in answers if answer.code == ResponseCode.SYSTEM_BUSY]
            stored = [body for body, answer in zip(bodies, answers, strict=True) if answer.code == ResponseCode.SUCCESS]
            assert len(refused) + len(stored) == len(bodies)
            assert embedded.broker.fast_failure.refused == len(refused) > 0
            assert all((answer.remark or "").startswith("[TIMEOUT_CLEAN_QUEUE]broker busy") for answer in refused)
            assert [message.body for message in await client.messages()] == [b"first", *stored]
            for body in bodies:
                await client.send(body=body)
            await client.connection.close()

    asyncio.run(main())


def test_refused_send_is_retried_by_5_x_clients() -> None:
    """With SYSTEM_BUSY among the codes to retry each message is stored once."""

    async def main() -> None:
        async with EmbeddedBroker(settings=IMPATIENT) as embedded:
            settings = ProducerSettings(
                name_servers=embedded.name_server_address,
                retry_response_codes=frozenset({ResponseCode.SYSTEM_BUSY}),
                retry_times_when_send_failed=20,
                send_timeout=timedelta(seconds=60),
            )
            async with Producer("p", settings) as producer:
                await producer.send(Message("orders", b"first"))
                SlowDisk(embedded, 0, 10)
                bodies = {b"%d" % number for number in range(3 * MOST_SENDS)}
                await asyncio.gather(*(producer.send(Message("orders", body)) for body in bodies))
            assert embedded.broker.fast_failure.refused > 0
            client = await RawClient.connect(TcpTransport(), embedded.broker_address)
            stored = [message.body for queue in range(4) for message in await client.messages(queue_id=queue)]
            assert sorted(stored) == sorted(bodies | {b"first"})
            await client.connection.close()

    asyncio.run(main())


def test_pull_may_wait_longer_than_a_send() -> None:
    """Consumers are served by a broker that is too slow for producers."""

    async def main() -> None:
        async with EmbeddedBroker(settings=IMPATIENT) as embedded:
            client = await RawClient.connect(TcpTransport(), embedded.broker_address)
            await client.send()
            SlowDisk(embedded, 0)
            sent, pulled, refused = await asyncio.gather(client.try_send(), client.pull(), client.try_send())
            assert (sent.code, pulled.code) == (ResponseCode.SUCCESS, ResponseCode.SUCCESS)
            assert refused.code == ResponseCode.SYSTEM_BUSY
            await client.connection.close()

    asyncio.run(main())


def test_transaction_with_a_refused_end_is_checked() -> None:
    """Ends are one-way, so the refusal is not noticed: the broker checks, and the message is delivered."""

    async def main() -> None:
        asked, delivered = asyncio.Event(), asyncio.Event()

        def arrived(topic: str, *where: int) -> None:
            if topic == "orders":
                delivered.set()

        async def committed(message: MessageExt) -> LocalTransactionState:
            asked.set()
            return LocalTransactionState.COMMIT

        late = {"waitTimeMillsInTransactionQueue": "100", "transactionCheckInterval": "10"}
        async with EmbeddedBroker(settings=IMPATIENT | late) as embedded:
            settings = TransactionProducerSettings(name_servers=embedded.name_server_address)
            async with TransactionProducer("p", settings, committed) as producer:
                await producer.send(Message("slow", b"first"))
                transaction = await producer.begin(Message("orders", b"second"))
                embedded.broker.store.arrival_listeners.append(arrived)
                SlowDisk(embedded, 0)
                await asyncio.gather(producer.send(Message("slow", b"third")), transaction.commit())
                assert embedded.broker.fast_failure.refused == 1
                embedded.broker.settings.update(entries_of({"transactionTimeOut": "1"}, "test"))
                async with asyncio.timeout(60):
                    await asked.wait()
                    await delivered.wait()

    asyncio.run(main())


def test_embedded_broker_never_refuses_for_waiting() -> None:
    """There is no other broker, and its process has other work."""

    async def main() -> None:
        async with EmbeddedBroker(settings={"waitTimeMillsInSendQueue": "100"}) as embedded:
            client = await RawClient.connect(TcpTransport(), embedded.broker_address)
            SlowDisk(embedded, 0)
            answers = await asyncio.gather(*(client.try_send() for _ in range(10)))
            assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
            await client.connection.close()

    asyncio.run(main())
