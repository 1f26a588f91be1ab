"""The outbox in `app.test()`: SQLite in memory, virtual time, no server."""

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from sqlalchemy import Connection, Engine, String, create_engine, insert, select
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from streamkit import ChannelInterceptor, Message, StreamApplication
from streamkit.errors import BinderUnavailable, ConfigurationError
from streamkit.patterns.outbox import OUTBOX_ID, MessageStatus, Outbox, OutboxError
from streamkit.patterns.outbox.administration import Selection, resend, roll_back
from streamkit.patterns.outbox.tables import ProducerMessage
from streamkit.testing.harness import Harness

SETTINGS = {"spring.cloud.stream.output-bindings": "orders", "streamkit.outbox.max-send-times": 2}


class Table(DeclarativeBase):
    pass


class Booked(Table):
    __tablename__ = "booked"
    number: Mapped[str] = mapped_column(String(10), primary_key=True)


class Shop:
    """An application with an outbox, its database and its test."""

    def __init__(self, engine: Engine | None = None, **settings: object) -> None:
        self.app = StreamApplication(config_location="optional:/none", properties={**SETTINGS, **settings})
        self.outbox = Outbox(self.app, engine or create_engine("sqlite://"), "orders")
        self.test: Harness[StreamApplication]
        self.undone: list[str] = []

        @self.outbox.compensate("orders")
        def undo(order: dict[str, str], session: Session) -> None:
            session.delete(session.get_one(Booked, order["number"]))
            self.undone.append(order["number"])

    def on_rows(self, work: Callable[[Connection], object]) -> None:
        with self.outbox.engine.begin() as connection:
            work(connection)
        self.outbox.wake("orders")

    def row(self, id_: str) -> ProducerMessage:
        with Session(self.outbox.engine) as session:
            return session.scalars(select(ProducerMessage).where(ProducerMessage.msgid == id_)).one()

    def take(self, *numbers: str, key: str | None = None) -> None:
        with self.outbox.transaction() as session:
            for number in numbers:
                session.add(Booked(number=number))
                self.outbox.send("orders", {"number": number}, id=number, key=key)

    def sent(self) -> list[str]:
        return [str(each.payload["number"]) for each in self.test.output("orders").receive_all(dict)]


@pytest.fixture
def shop() -> Iterator[Shop]:
    """A shop that runs."""
    shop = Shop()
    with shop.outbox.in_memory(Booked.__table__), shop.app.test() as shop.test:
        yield shop


def test_committed_message_is_sent_at_once(shop: Shop) -> None:
    shop.take("1")
    shop.test.settle()
    assert shop.sent() == ["1"]
    assert shop.row("1").status is MessageStatus.NOT_CONSUMED


def test_rolled_back_message_is_never_sent(shop: Shop) -> None:
    with suppress(RuntimeError), shop.outbox.transaction():
        shop.outbox.send("orders", {"number": "1"}, id="1")
        raise RuntimeError
    shop.test.advance(hours=1)
    assert shop.sent() == []


def test_send_outside_of_a_transaction_is_refused(shop: Shop) -> None:
    shop.take("1")
    with pytest.raises(OutboxError, match="no transaction is open"):
        shop.outbox.send("orders", {"number": "2"})


def test_existing_session_is_enlisted_until_its_transaction_ends(shop: Shop) -> None:
    with Session(shop.outbox.engine) as session:
        shop.outbox.enlist(session)
        shop.outbox.send("orders", {"number": "1"}, id="1")
        session.commit()
        with pytest.raises(OutboxError, match="no transaction is open"):
            shop.outbox.send("orders", {"number": "2"}, id="2")
    shop.test.settle()
    assert shop.sent() == ["1"]


def test_output_that_the_outbox_does_not_have_is_refused(shop: Shop) -> None:
    with shop.outbox.transaction(), pytest.raises(OutboxError, match="'invoices' is not an output of the outbox"):
        shop.outbox.send("invoices", {})


def test_header_that_a_database_cannot_keep_is_refused(shop: Shop) -> None:
    with (
        shop.outbox.transaction(),
        pytest.raises(OutboxError, match="header 'price' of a message to 'orders' is object"),
    ):
        shop.outbox.send("orders", {}, {"price": object()})


@pytest.mark.parametrize("value", [[float("nan")], "\ud800", {1: 2}, (1, 2), b"x"])
def test_header_that_would_come_back_changed_is_refused(shop: Shop, value: object) -> None:
    with shop.outbox.transaction(), pytest.raises(OutboxError, match="header 'price' of a message to 'orders'"):
        shop.outbox.send("orders", {}, {"price": value})


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (7, r"is 7; expected text: id=str\(…\)"),
        ("x" * 256, "has 256 characters; at most 255"),
        ("a\0b", "neither NUL nor lone surrogates"),
        ("\ud800", "neither NUL nor lone surrogates"),
        ("o-1 ", "remove the space at its end"),
    ],
)
def test_id_that_a_database_does_not_keep_is_refused(shop: Shop, value: str, error: str) -> None:
    with shop.outbox.transaction(), pytest.raises(OutboxError, match=error):
        shop.outbox.send("orders", {}, id=value)


def test_empty_key_is_no_key(shop: Shop) -> None:
    with shop.outbox.transaction():
        shop.outbox.send("orders", {"number": "1"}, id="1", key="")
    assert shop.row("1").message_key is None


def test_message_keeps_its_id_and_headers(shop: Shop) -> None:
    with shop.outbox.transaction():
        message = Message({"number": "1"}, {"colour": "red"})
        shop.outbox.send("orders", message, id="1", key="c")
    shop.test.settle()
    received = shop.test.output("orders").receive(dict)
    assert received.headers.id == message.headers.id
    assert (received.headers["colour"], received.headers[OUTBOX_ID]) == ("red", "1")


class Refusing(ChannelInterceptor):
    """Refuses some messages."""

    def __init__(self) -> None:
        self.numbers: set[str] = set()
        self.stops: set[str] = set()
        self.error: type[Exception] = ValueError
        self.text = "refused"
        self.noted: Callable[[], None] = lambda: None

    def pre_send(self, message: Message[object], channel: object) -> Message[object] | None:
        self.noted()
        if message.headers.get(OUTBOX_ID) in self.stops:
            return None
        if message.headers.get(OUTBOX_ID) in self.numbers:
            raise self.error(self.text)
        return message


@pytest.fixture
def refusing(shop: Shop) -> Refusing:
    """What refuses messages of the shop."""
    interceptor = Refusing()
    shop.app.channel("orders").add_interceptor(interceptor)
    return interceptor


def test_refused_message_stops_its_key_until_it_is_sent(shop: Shop, refusing: Refusing) -> None:
    refusing.numbers = {"1"}
    shop.take("1", "2", key="c")
    shop.take("3", key="d")
    shop.test.settle()
    assert shop.sent() == ["3"]
    refusing.numbers = set()
    shop.test.advance(seconds=2)
    assert shop.sent() == ["1", "2"]
    assert shop.row("1").send_times == 1


def test_message_over_its_sends_waits_for_a_person_and_lets_its_key_go_on(shop: Shop, refusing: Refusing) -> None:
    refusing.numbers = {"1"}
    shop.take("1", "2", key="c")
    shop.test.advance(minutes=1)
    assert shop.sent() == ["2"]
    parked = shop.row("1")
    assert (parked.status, parked.last_error) == (MessageStatus.CONFIRMATION_RETRIES_EXCEEDED, "ValueError: refused")
    refusing.numbers = set()
    shop.on_rows(lambda connection: resend(connection, Selection(ids=["1"]), shop.app.clock.now_ms()))
    shop.test.advance(minutes=2)
    assert shop.sent() == ["1"]
    assert shop.row("1").status is MessageStatus.NOT_CONSUMED


def test_message_that_an_interceptor_stops_is_not_taken_for_sent(shop: Shop, refusing: Refusing) -> None:
    refusing.stops = {"1"}
    shop.take("1")
    shop.test.advance(minutes=1)
    assert shop.row("1").status is MessageStatus.CONFIRMATION_RETRIES_EXCEEDED
    assert shop.row("1").sent_time is None


def test_reason_that_a_database_refuses_stops_no_other_message(shop: Shop, refusing: Refusing) -> None:
    """The reason is a text of anybody's; the other messages of the round are sent once."""
    refusing.numbers, refusing.text = {"1"}, "bad \ud800 \0 text"
    shop.take("1", "2")
    shop.test.advance(minutes=1)
    assert shop.sent() == ["2"]
    assert shop.row("1").last_error == "ValueError: bad ? ? text"


def test_outage_counts_against_no_message(shop: Shop, refusing: Refusing) -> None:
    refusing.numbers, refusing.error = {"1", "2"}, BinderUnavailable
    shop.take("1", "2")
    shop.test.advance(hours=1)
    assert [shop.row(each).send_times for each in ("1", "2")] == [0, 0]
    refusing.numbers = set()
    shop.test.advance(minutes=6)
    assert sorted(shop.sent()) == ["1", "2"]


def test_roll_back_runs_the_compensation_once_and_never_sends(shop: Shop, refusing: Refusing) -> None:
    refusing.numbers = {"1"}
    shop.take("1")
    shop.test.advance(minutes=1)
    shop.on_rows(lambda connection: roll_back(connection, Selection(ids=["1"]), shop.app.clock.now_ms()))
    refusing.numbers = set()
    shop.test.advance(minutes=5)
    assert (shop.sent(), shop.undone) == ([], ["1"])
    assert shop.row("1").status is MessageStatus.ROLLED_BACK


def test_busy_relay_runs_roll_backs() -> None:
    """Between its rounds, of which each finds messages."""
    shop, undone_before = Shop(**{"streamkit.outbox.batch-size": 1, "streamkit.outbox.max-send-times": 1}), list[int]()
    refusing = Refusing()
    with shop.outbox.in_memory(Booked.__table__), shop.app.test() as shop.test:
        shop.app.channel("orders").add_interceptor(refusing)
        refusing.numbers = {"gone"}
        shop.take("gone")
        shop.test.settle()
        shop.take(*map(str, range(30)))
        shop.on_rows(lambda connection: roll_back(connection, Selection(ids=["gone"]), shop.app.clock.now_ms()))
        refusing.noted = lambda: undone_before.append(len(shop.undone))
        shop.test.settle()
    assert len(undone_before) == 30
    assert (undone_before[0], undone_before[-1]) == (0, 1)


def test_roll_back_that_fails_lets_others_run(shop: Shop, refusing: Refusing, caplog: pytest.LogCaptureFixture) -> None:
    numbers = [str(number) for number in range(205)]
    refusing.numbers = set(numbers)
    shop.take(*numbers)
    shop.test.advance(minutes=1)
    with Session(shop.outbox.engine) as session, session.begin():
        session.delete(session.get_one(Booked, "7"))
    shop.on_rows(lambda connection: roll_back(connection, Selection(topic="orders"), shop.app.clock.now_ms()))
    shop.test.settle()
    assert len(shop.undone) == 204
    assert "The roll-back of row 8 to 'orders' failed" in caplog.text
    with Session(shop.outbox.engine) as session, session.begin():
        session.add(Booked(number="7"))
    shop.outbox.wake("orders")
    shop.test.settle()
    assert shop.undone[-1] == "7"


def test_only_messages_over_a_limit_are_rolled_back(shop: Shop) -> None:
    shop.take("1")
    with pytest.raises(OutboxError, match="message 1 to orders is NOT_CONSUMED: only messages over a limit"):
        shop.on_rows(lambda connection: roll_back(connection, Selection(ids=["1"]), shop.app.clock.now_ms()))


def test_old_rows_that_are_sent_are_deleted() -> None:
    shop = Shop(**{"streamkit.outbox.retention": "1h"})
    with shop.outbox.in_memory(Booked.__table__), shop.app.test() as shop.test:
        shop.take("1")
        shop.test.advance(minutes=59)
        assert shop.row("1").sent_time
        shop.test.advance(hours=2)
        with Session(shop.outbox.engine) as session:
            assert session.scalars(select(ProducerMessage)).all() == []


def test_all_old_rows_are_deleted_in_slices() -> None:
    """As many as there are, not only the first slice of each minute."""
    shop = Shop(**{"streamkit.outbox.retention": "1h"})
    with shop.outbox.in_memory(Booked.__table__), shop.app.test() as shop.test:
        row = {"topic": "orders", "headers": "{}", "lane": 0, "message_status": "NOT_CONSUMED", "sent_time": 1}
        times = {"create_time": 1, "update_time": 1, "send_times": 0, "due_time": 0, "check_time": 0}
        old = [{"msgid": f"old-{number}", **row, **times} for number in range(2500)]
        shop.on_rows(lambda connection: connection.execute(insert(ProducerMessage), old))
        shop.test.advance(minutes=1)
        shop.take("1")  # wakes the relay
        shop.test.settle()
        with Session(shop.outbox.engine) as session:
            assert session.scalars(select(ProducerMessage.msgid)).all() == ["1"]


def test_send_that_is_not_confirmed_is_refused_at_the_start() -> None:
    setting = "spring.cloud.stream.rocketmq.bindings.orders.producer.sync"
    shop = Shop(**{setting: "false", "spring.cloud.stream.default-binder": "rocketmq"})
    refused = pytest.raises(ConfigurationError, match=r"producer\.sync prevents that")
    with shop.outbox.in_memory(), refused, shop.app.test():
        pass


def test_relay_of_another_process_leaves_the_rows() -> None:
    shop = Shop(**{"streamkit.outbox.relay": "false"})
    with shop.outbox.in_memory(Booked.__table__), shop.app.test() as shop.test:
        shop.take("1")
        shop.test.advance(minutes=2)
        assert shop.sent() == []
        assert shop.row("1").pending == 1


def test_asynchronous_sessions_work_alike() -> None:
    app = StreamApplication(config_location="optional:/none", properties=SETTINGS)
    outbox = Outbox(app, create_async_engine("sqlite+aiosqlite://"), "orders")

    async def take() -> None:
        async with outbox.transaction() as session:
            session.add(Booked(number="1"))
            outbox.send("orders", {"number": "1"}, id="1")

    with outbox.in_memory(Booked.__table__), app.test() as test:
        test.run(take())
        assert test.output("orders").receive(dict, within=5).payload == {"number": "1"}
