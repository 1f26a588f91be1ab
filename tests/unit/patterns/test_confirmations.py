"""Confirmations: the sender asks, the consumer answers, and both sides' tables agree; in memory and virtual time."""

from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, select
from sqlalchemy.orm import Session

from streamkit import StreamApplication
from streamkit.patterns.outbox import Consumptions, MessageStatus, Outbox
from streamkit.patterns.outbox.database import engine_in_memory
from streamkit.patterns.outbox.reconciliation import take_answer
from streamkit.patterns.outbox.tables import CONSUMER_TABLES, ConsumerMessage, ProducerMessage
from streamkit.testing.harness import Harness

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

    def row(self) -> ProducerMessage:
        with Session(self.outbox.engine) as session:
            return session.scalars(select(ProducerMessage)).one()

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
    with shop.outbox.engine.begin() as connection:  # type: ignore[union-attr]
        for question in ("a", "b", "c"):
            asked = {"check_id": question, "pending": None}
            connection.execute(ProducerMessage.__table__.update().values(asked))  # type: ignore[attr-defined]
            take_answer(connection, "orders", question, {}, now=0, most=3)
    assert shop.row().status is MessageStatus.CONFIRMATION_RETRIES_EXCEEDED
    assert shop.row().send_times == 3


def test_answer_that_comes_twice_counts_once(shop: Shop) -> None:
    shop.take("1")
    with shop.outbox.engine.begin() as connection:  # type: ignore[union-attr]
        connection.execute(ProducerMessage.__table__.update().values(check_id="a"))  # type: ignore[attr-defined]
        take_answer(connection, "orders", "a", {}, now=0, most=3)
        take_answer(connection, "orders", "a", {}, now=0, most=3)
    assert shop.row().send_times == 1
