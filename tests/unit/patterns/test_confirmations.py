"""Confirmations: the sender asks, the consumer answers, and both sides' tables agree; in memory and virtual time."""

from collections.abc import Iterator, Mapping

import pytest
from sqlalchemy import create_engine, select, update
from sqlalchemy.orm import Session

from streamkit import ChannelInterceptor, Message, MessageChannel, StreamApplication
from streamkit.messaging.headers import DELAY
from streamkit.patterns.outbox import Consumptions, MessageStatus, Outbox
from streamkit.patterns.outbox.database import engine_in_memory
from streamkit.patterns.outbox.reconciliation import take_answer
from streamkit.patterns.outbox.tables import CONSUMER_TABLES, ConsumerMessage, ProducerMessage
from streamkit.testing.harness import Harness
from streamkit.testing.virtual_time import DEFAULT_EPOCH_MS

SETTINGS = {
    "spring.cloud.stream.output-bindings": "orders;answers",
    "spring.cloud.stream.bindings.answers.destination": "orders-check",
    "spring.cloud.stream.bindings.orders-check.group": "shop",
    "spring.cloud.stream.bindings.reservations.destination": "orders",
    "spring.cloud.stream.bindings.reservations.group": "stock",
    "spring.cloud.stream.bindings.reservations.consumer.max-attempts": 1,
    "spring.cloud.stream.rocketmq.bindings.reservations.consumer.push.max-reconsume-times": 0,
    "spring.cloud.stream.default-binder": "rocketmq",
    "streamkit.outbox.max-send-times": 3,
}

ASKED = DEFAULT_EPOCH_MS + 100_000
"""When the question of an answer was asked: after the message was sent."""


class Delay(ChannelInterceptor):
    """Delays the messages of a channel."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def pre_send(self, message: Message[object], channel: MessageChannel) -> Message[object]:
        return message.with_headers({DELAY: self.seconds})


class Shop:
    """A shop and a stock in one application, each with a database of its own."""

    def __init__(self, **settings: object) -> None:
        self.app = StreamApplication(config_location="optional:/none", properties={**SETTINGS, **settings})
        self.outbox = Outbox(self.app, create_engine("sqlite://"), "orders")
        self.outbox.reconcile("orders")
        self.test: Harness[StreamApplication]
        self.reserved: list[str] = []
        self.error: Exception | None = None
        with engine_in_memory(*CONSUMER_TABLES, asynchronous=False) as self.stock:
            consumptions = Consumptions(self.app, self.stock)  # type: ignore[arg-type]

        @consumptions.listener("reservations", topic="orders", answers="answers")
        def reserve(order: dict[str, str], session: Session) -> None:
            if self.error is not None:
                raise self.error
            self.reserved.append(order["number"])

    def take(self, number: str) -> None:
        with self.outbox.transaction():
            self.outbox.send("orders", {"number": number}, id=number)
        self.test.settle()

    def slow_answers(self, seconds: float) -> None:
        """Delay each answer of the stock from now on."""
        self.app.channel("answers").add_interceptor(Delay(seconds))

    def row(self) -> ProducerMessage:
        with Session(self.outbox.engine) as session:
            return session.scalars(select(ProducerMessage)).one()

    def answer(self, statuses: Mapping[str, str | None], **changes: object) -> None:
        """Take an answer of the stock, after changes of the row."""
        with self.outbox.engine.begin() as connection:  # type: ignore[union-attr]
            if changes:
                connection.execute(update(ProducerMessage).values(changes))
            take_answer(connection, "orders", ASKED, statuses, now=ASKED, most=3)

    def forget(self) -> None:
        """Lose the message, as if it had never come to the stock."""
        with Session(self.stock) as session:
            session.delete(session.scalars(select(ConsumerMessage)).one())
            session.commit()


@pytest.fixture
def shop() -> Iterator[Shop]:
    """A shop that runs."""
    shop = Shop()
    with shop.outbox.in_memory(), shop.app.test() as shop.test:
        yield shop


def test_consumed_message_is_confirmed_after_a_minute(shop: Shop) -> None:
    shop.take("1")
    shop.test.advance(seconds=59)
    assert shop.row().status is MessageStatus.NOT_CONSUMED
    shop.test.advance(minutes=2)
    assert shop.row().status is MessageStatus.CONSUMED
    assert shop.reserved == ["1"]


def test_consumer_forgets_old_messages() -> None:
    """The next message makes it look for them."""
    shop = Shop(**{"streamkit.outbox.consumption-retention": "10m"})
    with shop.outbox.in_memory(), shop.app.test() as shop.test:
        shop.take("1")
        shop.test.advance(minutes=9)
        shop.take("2")
        shop.test.advance(minutes=9)
        shop.take("3")
        with Session(shop.stock) as session:
            assert set(session.scalars(select(ConsumerMessage.msgid))) == {"2", "3"}


def test_many_messages_are_confirmed_at_once() -> None:
    """The number of questions of one look for unconfirmed rows does not limit the rate of confirmations."""
    shop = Shop(**{"streamkit.outbox.check-size": 1})
    with shop.outbox.in_memory(), shop.app.test() as shop.test:
        with shop.outbox.transaction():
            for number in range(45):
                shop.outbox.send("orders", {"number": str(number)}, id=str(number))
        shop.test.settle()
        shop.test.advance(seconds=130)
        with Session(shop.outbox.engine) as session:
            assert set(session.scalars(select(ProducerMessage.message_status))) == {"CONSUMED"}


def test_answer_may_take_longer_than_the_time_between_questions(shop: Shop) -> None:
    shop.slow_answers(seconds=200)
    shop.take("1")
    shop.test.advance(minutes=6)
    assert shop.row().status is MessageStatus.CONSUMED


def test_unknown_message_is_sent_again_once_if_answers_take_long(shop: Shop) -> None:
    """The questions that were asked before it was sent again are about the earlier send."""
    shop.slow_answers(seconds=200)
    shop.take("1")
    shop.forget()
    shop.test.advance(minutes=12)
    assert shop.reserved == ["1", "1"]
    assert shop.row().send_times == 1
    assert shop.row().status is MessageStatus.CONSUMED


def test_message_that_the_consumer_does_not_know_is_sent_again(shop: Shop) -> None:
    shop.take("1")
    shop.forget()
    shop.test.advance(minutes=2)
    assert shop.reserved == ["1", "1"]
    assert shop.row().send_times == 1
    shop.test.advance(minutes=2)
    assert shop.row().status is MessageStatus.CONSUMED


def test_message_that_the_consumer_has_is_not_consumed_again(shop: Shop) -> None:
    shop.take("1")
    with Session(shop.outbox.engine) as session:
        session.scalars(select(ProducerMessage)).one().pending = 1
        session.commit()
    shop.outbox.wake("orders")
    shop.test.settle()
    assert shop.reserved == ["1"]


def test_message_that_the_consumer_gives_up_waits_for_a_person(shop: Shop) -> None:
    shop.error = ValueError("sold out")
    shop.take("1")
    shop.test.advance(minutes=3)
    assert shop.row().status is MessageStatus.CONSUMPTION_RETRIES_EXCEEDED


def test_message_that_never_arrives_is_sent_up_to_its_limit(shop: Shop) -> None:
    shop.take("1")
    for _ in range(3):
        shop.answer({"1": None}, pending=None)
    assert shop.row().status is MessageStatus.CONFIRMATION_RETRIES_EXCEEDED
    assert shop.row().send_times == 3


def test_answer_that_comes_twice_counts_once(shop: Shop) -> None:
    shop.take("1")
    shop.answer({"1": None})
    shop.answer({"1": None})
    assert shop.row().send_times == 1


def test_answer_about_an_earlier_send_is_ignored(shop: Shop) -> None:
    """A person has sent the message again that the consumer had given up; an old answer must not undo that."""
    shop.take("1")
    shop.answer({"1": "CONSUMPTION_RETRIES_EXCEEDED"}, sent_time=ASKED)
    assert shop.row().status is MessageStatus.NOT_CONSUMED
