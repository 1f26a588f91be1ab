"""Sending to an output binding, independent of the binder."""

import asyncio

import pytest

from streamkit.binder.binder import BrokerTransaction, TransactionalProducerBinding
from streamkit.binder.capabilities import Capability
from streamkit.binder.partitioning import Partitioner
from streamkit.binder.sending import SendingHandler, write_native
from streamkit.binder.transactional_sending import TransactionalSendingHandler
from streamkit.errors import BinderError, MessageConversionError
from streamkit.events import message_sent, send_failed
from streamkit.messaging.headers import PARTITION, TRANSACTION, TRANSACTION_ID
from streamkit.messaging.message import Message
from streamkit.messaging.transaction import TransactionRequest, TransactionState


class Producer(TransactionalProducerBinding):
    """A producer that records messages unless it is unavailable, and does not know its partitions."""

    def __init__(self, failure: BinderError | None = None) -> None:
        self.failure = failure
        self.sent: list[Message[bytes]] = []
        self.ends: list[TransactionState] = []

    async def send(self, message: Message[bytes]) -> None:
        if self.failure is not None:
            raise self.failure
        self.sent.append(message)

    async def begin(self, message: Message[bytes]) -> BrokerTransaction:
        await self.send(message)
        return Transaction(self.ends)

    async def stop(self) -> None:
        """Do nothing."""


class Transaction(BrokerTransaction):
    """A transaction that records its end."""

    def __init__(self, ends: list[TransactionState]) -> None:
        self._ends = ends

    async def commit(self) -> None:
        self._ends.append(TransactionState.COMMIT)

    async def rollback(self) -> None:
        self._ends.append(TransactionState.ROLLBACK)

    async def unknown(self) -> None:
        self._ends.append(TransactionState.UNKNOWN)


AWAY = BinderError("away", binder="b", binding="out")


def handler(producer: Producer, partition_count: int = 1) -> SendingHandler:
    return SendingHandler(
        "app",
        "out",
        producer,
        frozenset(Capability),
        write_native,
        partitioner=Partitioner(lambda message: message.headers["n"]),
        partition_count=partition_count,
    )


def test_partition_count_setting_is_used_if_the_binder_knows_none() -> None:
    """The key's hash is divided by it."""
    producer = Producer()
    for number in (3, 7, 8):
        asyncio.run(handler(producer, partition_count=4).handle_message(Message(b"x", {"n": number})))
    assert [message.headers[PARTITION] for message in producer.sent] == [3, 3, 0]


@pytest.mark.parametrize("transactional", [False, True])
def test_failed_send_is_an_event_and_the_senders_error(transactional: bool) -> None:
    """Also when it was to begin a transaction, which has not begun then."""
    producer, reported, open_ = Producer(AWAY), list[object](), set[str]()
    plain = handler(producer)
    message: Message[object] = Message(b"x", {"n": 1})
    if transactional:
        message = Message(b"x", {"n": 1, TRANSACTION: TransactionRequest(), TRANSACTION_ID: "t"})
    transactions = TransactionalSendingHandler("out", producer, plain, None, open_)

    def note(sender: object, **values: object) -> None:
        reported.append((sender, values["binding"], values["error"]))

    with send_failed.connected_to(note), pytest.raises(BinderError, match="away"):
        asyncio.run((transactions if transactional else plain).handle_message(message))
    assert (reported, open_) == ([("app", "out", AWAY)], set())


def test_list_is_sent_up_to_the_first_failure() -> None:
    """Earlier messages are sent, whether sending or converting fails; each has its event."""
    reported = list[object]()

    def note(sender: object, message: Message[bytes], **_: object) -> None:
        reported.append(message.payload)

    class Full(Producer):
        async def send(self, message: Message[bytes]) -> None:
            if message.payload == b"c":
                raise AWAY
            await super().send(message)

    listed: list[Message[object]] = [Message(payload, {"n": 1}) for payload in (b"a", b"b", b"c", b"d")]
    full, plain = Full(), Producer()
    with message_sent.connected_to(note), send_failed.connected_to(note):
        assert asyncio.run(handler(full).handle_messages(listed)) == (listed[2], AWAY)
    assert reported == [b"a", b"b", b"c"]
    assert [message.payload for message in full.sent] == [b"a", b"b"]
    failed = asyncio.run(handler(plain).handle_messages([*listed[:2], Message("text", {"n": 1}), *listed[2:]]))
    assert failed is not None
    assert isinstance(failed[1], MessageConversionError)
    assert [message.payload for message in plain.sent] == [b"a", b"b"]


def test_with_an_error_channel_later_messages_of_a_list_are_sent() -> None:
    """The sender gets no error, so it would not repeat them."""
    producer, reported = Producer(AWAY), list[object]()

    async def report(message: Message[bytes], error: BinderError) -> None:
        reported.append((message.payload, error))
        producer.failure = None

    sender = SendingHandler("app", "out", producer, frozenset(Capability), write_native, on_failure=report)
    assert asyncio.run(sender.handle_messages([Message(b"a"), Message(b"b")])) is None
    assert reported == [(b"a", AWAY)]
    assert [message.payload for message in producer.sent] == [b"b"]


@pytest.mark.parametrize("state", TransactionState)
def test_local_transaction_can_be_ended_once(state: TransactionState) -> None:
    """With its state; afterwards it is no longer pending."""
    producer, open_ = Producer(), set[str]()

    async def execute(message: Message[object], argument: object) -> TransactionState:
        assert open_ == {"t"}
        return state

    transactions = TransactionalSendingHandler("out", producer, handler(producer), execute, open_)
    asyncio.run(transactions.handle_message(Message(b"x", {"n": 1, TRANSACTION_ID: "t"})))
    assert (producer.ends, open_) == ([state], set())


def test_sent_message_is_an_event() -> None:
    """With the message as the binder got it."""
    producer, reported = Producer(), list[object]()

    def note(sender: object, **values: object) -> None:
        reported.append(values["message"])

    with message_sent.connected_to(note):
        asyncio.run(handler(producer).handle_message(Message(b"x", {"n": 1})))
    assert reported == producer.sent
