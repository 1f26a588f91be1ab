"""A keeper: what it keeps, when it sends it, and what it gives up. On virtual time."""

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from streamkit import Message
from streamkit.binder.keeping import MessageKept
from streamkit.errors import BinderError, BinderUnavailable, ConfigurationError
from streamkit.messaging.message import NO_PAYLOAD
from streamkit.patterns.local_store.local_store import MEMORY, LocalStore
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.patterns.local_store.away_broker import LIMITS, Broker, Lost, keeper_of, message

Case = Callable[[LocalStore], Coroutine[Any, Any, None]]


def run(case: Case, path: str | Path = MEMORY) -> None:
    """Run a case with a store, on virtual time."""
    with VirtualTime() as time, opened(path) as store:
        time.run(case(store))


@contextmanager
def opened(path: str | Path) -> Iterator[LocalStore]:
    """Open a store."""
    store = LocalStore(str(path))
    try:
        yield store
    finally:
        store.close()


def test_message_is_kept_while_the_system_is_away_and_sent_later() -> None:
    """With its headers and its id; it is told from one that was stored."""

    async def case(store: LocalStore) -> None:
        broker, keeper = Broker(is_away=True), keeper_of(store)
        producer = keeper.producer(broker)
        await keeper.start()
        first = Message(b"one", {"number": 7, "streamkit_delay": timedelta(seconds=60)})
        with pytest.raises(MessageKept, match="nobody there"):
            await producer.send(first)
        await asyncio.sleep(20)
        assert (broker.stored, store.count) == ([], 1)
        broker.is_away = False
        await asyncio.sleep(10)
        await producer.send(message(b"two"))
        assert (broker.stored, store.count, store.size) == ([b"one", b"two"], 0, 0)
        sent = broker.messages[0].headers
        assert (sent.id, sent["number"]) == (first.headers.id, 7)
        delay = sent["streamkit_delay"]
        assert isinstance(delay, float)
        assert 30 <= delay <= 40  # what was left of it
        await keeper.stop(1)

    run(case)


def test_order_of_a_key_is_kept() -> None:
    """A later message of a key is kept behind those that are kept; other keys are sent once the system is back."""

    async def case(store: LocalStore) -> None:
        broker, keeper = Broker(is_away=True), keeper_of(store)
        producer = keeper.producer(broker)
        for payload, key in ((b"a1", "a"), (b"b1", "b"), (b"a2", "a")):
            with pytest.raises(MessageKept):
                await producer.send(message(payload, key))
        assert broker.tries == 1  # it is known to be away
        broker.is_away, keeper.is_away = False, False
        await producer.send(message(b"c1", "c"))
        with pytest.raises(MessageKept, match="messages before it are kept"):
            await producer.send(message(b"a3", "a"))
        assert broker.stored == [b"c1"]
        await keeper.start()
        await asyncio.sleep(2)
        await producer.send(message(b"a4", "a"))
        assert broker.stored == [b"c1", b"a1", b"b1", b"a2", b"a3", b"a4"]
        await keeper.stop(1)

    run(case)


def test_several_messages_are_kept_from_the_first_that_fails() -> None:
    """In their order, and each has its own outcome."""

    async def case(store: LocalStore) -> None:
        broker, keeper = Broker(), keeper_of(store)
        producer = keeper.producer(broker)
        assert await producer.send_all([message(b"1"), message(b"2")]) == [None, None]
        broker.is_away = True
        for batch in ([b"3", b"4"], [b"5"]):
            outcomes = await producer.send_all([message(each) for each in batch])
            assert [type(each) for each in outcomes] == [MessageKept] * len(batch)
        broker.is_away = False
        await keeper.start()
        await asyncio.sleep(2)
        assert broker.stored == [b"1", b"2", b"3", b"4", b"5"]
        assert [type(each) for each in await producer.send_all([message(b"6"), message(b"bad"), message(b"8")])] == [
            type(None),
            BinderError,
            BinderError,
        ]
        await keeper.stop(1)

    run(case)


def test_rule_decides_what_is_kept() -> None:
    """What it refuses fails as without a store, and so does everything if the rule fails."""

    def rule(message: Message[bytes]) -> bool:
        return 1 / len(message.payload) < 0.5

    async def case(store: LocalStore) -> None:
        broker, keeper = Broker(is_away=True), keeper_of(store, rule=rule)
        producer = keeper.producer(broker)
        with pytest.raises(MessageKept):
            await producer.send(message(b"long"))
        for payload in (b"x", b""):
            with pytest.raises(BinderUnavailable, match="nobody there"):
                await producer.send(message(payload))
        broker.is_away = False
        await producer.send(message(b"x"))  # tried, although the system was away

    run(case)


@pytest.mark.parametrize("limits", [replace(LIMITS, max_count=2), replace(LIMITS, max_size=900)])
def test_full_store_keeps_no_more(limits: Any) -> None:
    """The send fails as without a store; a message of a kept key must not overtake and fails, too."""

    async def case(store: LocalStore) -> None:
        broker, keeper = Broker(is_away=True), keeper_of(store, limits=limits)
        producer = keeper.producer(broker)
        for number in range(2):
            with pytest.raises(MessageKept):
                await producer.send(message(b"x" * 300 + b"%d" % number, "k"))
        with pytest.raises(BinderUnavailable, match="nobody there"):
            await producer.send(message(b"y" * 300))
        broker.is_away = False
        with pytest.raises(BinderUnavailable, match="messages before it are kept"):
            await producer.send(message(b"z" * 300, "k"))
        await keeper.start()
        await asyncio.sleep(2)
        await producer.send(message(b"z", "k"))
        assert [payload[-1:] for payload in broker.stored] == [b"0", b"1", b"z"]
        await keeper.stop(1)

    run(case)


def test_old_and_refused_messages_are_given_up_and_reported() -> None:
    """With the reason; those behind them are sent."""
    lost = Lost()

    async def case(store: LocalStore) -> None:
        broker = Broker(is_away=True)
        keeper = keeper_of(store, lost=lost, limits=replace(LIMITS, max_age=timedelta(hours=1)))
        producer = keeper.producer(broker)
        with pytest.raises(MessageKept):
            await producer.send(message(b"old", "k"))
        await asyncio.sleep(3600)
        for payload in (b"bad", b"new"):
            with pytest.raises(MessageKept):
                await producer.send(message(payload, "k"))
        await keeper.start()
        await asyncio.sleep(30)
        assert lost.reports == [(b"old", "a message of binding 'out' was kept longer than 1h")]
        broker.is_away = False
        await asyncio.sleep(30)
        assert (broker.stored, store.count) == ([b"new"], 0)
        await keeper.stop(1)

    run(case)
    assert lost.reports[1:] == [(b"bad", "it is bad")]


def test_refused_message_is_not_kept() -> None:
    """The sender gets the error of the messaging system."""

    async def case(store: LocalStore) -> None:
        with pytest.raises(BinderError, match="it is bad"):
            await keeper_of(store).producer(Broker()).send(message(b"bad"))
        assert store.count == 0

    run(case)


def test_header_that_cannot_be_written_fails_the_send() -> None:
    """As without a store."""

    async def case(store: LocalStore) -> None:
        with pytest.raises(BinderUnavailable, match="nobody there"):
            await keeper_of(store).producer(Broker(is_away=True)).send(Message(b"x", {"object": object()}))

    run(case)


def test_rate_limits_what_is_sent_later() -> None:
    """Ten a second, say."""

    async def case(store: LocalStore) -> None:
        broker, keeper = Broker(is_away=True), keeper_of(store, limits=replace(LIMITS, rate=10))
        producer = keeper.producer(broker)
        for number in range(120):
            with pytest.raises(MessageKept):
                await producer.send(message(b"%d" % number))
        broker.is_away = False
        await keeper.start()
        await asyncio.sleep(2)
        assert len(broker.stored) == 50  # a chunk
        await asyncio.sleep(5)
        assert len(broker.stored) == 100
        await asyncio.sleep(5)
        assert broker.stored == [b"%d" % number for number in range(120)]
        await keeper.stop(1)

    run(case)


def test_file_keeps_messages_for_the_next_start(tmp_path: Path) -> None:
    """Another process cannot open it meanwhile; later messages of a key stay behind."""
    path = tmp_path / "unsent.db"

    async def keep(store: LocalStore) -> None:
        with pytest.raises(MessageKept):
            await keeper_of(store).producer(Broker(is_away=True)).send(message(b"1", "k"))
        with pytest.raises(ConfigurationError, match=r"another process has it open; give each one a file of its own"):
            LocalStore(str(path))

    async def send(store: LocalStore) -> None:
        broker, keeper = Broker(), keeper_of(store)
        producer = keeper.producer(broker)
        with pytest.raises(MessageKept):
            await producer.send(message(b"2", "k"))
        await keeper.start()
        await asyncio.sleep(2)
        assert broker.stored == [b"1", b"2"]
        await keeper.stop(1)

    run(keep, path)
    run(send, path)


def test_full_disk_fails_the_send_and_loses_nothing(tmp_path: Path) -> None:
    """What was kept before stays; when there is room, messages are kept again."""

    async def case(store: LocalStore) -> None:
        broker, keeper = Broker(is_away=True), keeper_of(store)
        producer = keeper.producer(broker)
        with pytest.raises(MessageKept):
            await producer.send(message(b"first"))
        (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
        store._connection.execute(f"PRAGMA max_page_count = {pages}")  # SQLite answers as on a full disk
        with pytest.raises(BinderUnavailable, match="nobody there"):
            await producer.send(message(b"x" * 50_000))
        assert store.count == 1
        store._connection.execute("PRAGMA max_page_count = 100000")
        with pytest.raises(MessageKept):
            await producer.send(message(b"x" * 50_000))
        broker.is_away = False
        await keeper.start()
        await asyncio.sleep(2)
        assert [len(payload) for payload in broker.stored] == [5, 50_000]
        await keeper.stop(1)

    run(case, tmp_path / "unsent.db")


def test_senders_of_one_moment_share_a_transaction(tmp_path: Path) -> None:
    """And each is answered when its message is on the disk."""
    path = tmp_path / "unsent.db"

    async def case(store: LocalStore) -> None:
        commits: list[str] = []
        store._connection.set_trace_callback(commits.append)
        producer = keeper_of(store).producer(Broker(is_away=True))
        outcomes = await asyncio.gather(
            *(producer.send(message(b"%d" % number)) for number in range(20)), return_exceptions=True
        )
        assert {type(outcome) for outcome in outcomes} == {MessageKept}
        assert commits.count("COMMIT") <= 2

    run(case, path)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (20,)
    connection.close()


def test_cancelled_sender_leaves_a_message_that_is_sent(tmp_path: Path) -> None:
    """The write under way cannot be taken back."""

    async def case(store: LocalStore) -> None:
        broker, keeper = Broker(is_away=True), keeper_of(store)
        sending = asyncio.create_task(keeper.producer(broker).send(message(b"1")))
        await asyncio.sleep(0)
        sending.cancel()
        await asyncio.wait([sending])
        broker.is_away = False
        await keeper.start()
        await asyncio.sleep(5)
        assert store.count == 0
        await keeper.stop(1)

    run(case, tmp_path / "unsent.db")


def test_failed_removal_stops_neither_keeping_nor_sending() -> None:
    """The disk is full while sent messages are removed: the file takes messages again later."""

    async def case(store: LocalStore) -> None:
        broker, keeper = Broker(is_away=True), keeper_of(store)
        producer = keeper.producer(broker)
        await keeper.start()
        store._connection.execute(
            "CREATE TRIGGER full BEFORE DELETE ON kept BEGIN SELECT RAISE(FAIL, 'disk is full'); END"
        )
        for payload in (b"1", b"2"):
            with pytest.raises(MessageKept):
                await producer.send(message(payload))
            broker.is_away = False
            await asyncio.sleep(3)
            broker.is_away = True
        assert broker.stored == [b"1", b"2"]
        await keeper.stop(1)

    run(case)


def test_file_that_cannot_be_read_for_a_while_is_tried_again() -> None:
    """What is kept is sent when the file can be read."""

    async def case(store: LocalStore) -> None:
        broker, keeper = Broker(is_away=True), keeper_of(store)
        producer = keeper.producer(broker)
        await keeper.start()
        with pytest.raises(MessageKept):
            await producer.send(message(b"1"))
        store._connection.execute("ALTER TABLE kept RENAME TO away")
        broker.is_away = False
        await asyncio.sleep(3)
        store._connection.execute("ALTER TABLE away RENAME TO kept")
        await asyncio.sleep(10)
        assert broker.stored == [b"1"]
        await keeper.stop(1)

    run(case)


def test_message_without_payload_stays_one() -> None:
    """It deletes a key of a compacted topic; an empty payload does not."""

    async def case(store: LocalStore) -> None:
        broker, keeper = Broker(is_away=True), keeper_of(store)
        producer = keeper.producer(broker)
        await keeper.start()
        with pytest.raises(MessageKept):
            await producer.send(Message(NO_PAYLOAD))
        broker.is_away = False
        await asyncio.sleep(3)
        assert broker.messages[0].payload is NO_PAYLOAD
        assert (store.count, store.size) == (0, 0)
        await keeper.stop(1)

    run(case)


def test_message_with_damaged_headers_is_given_up() -> None:
    """With its payload; the messages behind it are sent."""

    async def case(store: LocalStore) -> None:
        broker, lost = Broker(is_away=True), Lost()
        keeper = keeper_of(store, lost=lost)
        producer = keeper.producer(broker)
        for payload in (b"1", b"2", b"3"):
            with pytest.raises(MessageKept):
                await producer.send(message(payload))
        store._connection.execute("UPDATE kept SET headers = x'C1' WHERE number = 2")
        broker.is_away = False
        await keeper.start()
        await asyncio.sleep(3)
        assert broker.stored == [b"1", b"3"]
        assert [payload for payload, _ in lost.reports] == [b"2"]
        assert "are damaged" in lost.reports[0][1]
        await keeper.stop(1)

    run(case)


def test_closed_store_refuses_a_message() -> None:
    """The send fails as without a store, and does not wait for ever."""

    async def case(store: LocalStore) -> None:
        producer = keeper_of(store).producer(Broker(is_away=True))
        store.close()
        with pytest.raises(BinderUnavailable, match="nobody there"):
            await asyncio.wait_for(producer.send(message(b"1")), 5)

    run(case)


def test_file_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    """Neither a table of the store nor its lock is put into the application's own database."""
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE booked (number TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match="a database of something else"):
        LocalStore(str(path))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        ("PRAGMA user_version=2", "its format is 2, and this version of streamkit reads 1"),
        (b"no database at all" * 100, "move it away"),
        (None, "create its directory"),
    ],
)
def test_unusable_file_is_an_error_that_says_what_to_do(tmp_path: Path, damage: str | bytes | None, error: str) -> None:
    """A file of a later version, a damaged one, and one whose directory is missing."""
    path = tmp_path / "unsent.db"
    if isinstance(damage, str):
        with opened(path):
            pass
        connection = sqlite3.connect(path)
        connection.execute(damage)
        connection.close()
    elif damage is not None:
        path.write_bytes(damage)
    with pytest.raises(ConfigurationError, match=error):
        LocalStore(str(path if damage is not None else tmp_path / "missing" / "unsent.db"))


def test_damaged_page_is_an_error_at_the_start(tmp_path: Path) -> None:
    """It is neither passed over nor replaced by an empty store."""
    path = tmp_path / "unsent.db"
    with opened(path):
        pass
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"unsent\.db cannot be opened: .*damaged"):
        LocalStore(str(path))
