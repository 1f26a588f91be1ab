"""Half, delayed and timed messages in a store continue when the other kind of broker opens it."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.schedule.timer_checkpoint import TimerProgress
from rocket_broker.settings.broker_settings import SMALL_STORE
from rocket_remoting import MessageExt, TcpTransport
from rocket_remoting.clock import Clock, SystemClock
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import SendMessageResponseHeader
from rocket_remoting.wire.sys_flag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from tests.end_to_end.broker_process import PATIENT, running
from tests.end_to_end.raw_client import RawClient
from tests.end_to_end.transactions import GROUP, OP, Question, begin, end
from tests.peer.apache import BROKER_CONF, TIMERS_IN_FILES, ApacheBroker
from tests.peer.artifacts import VERSIONS
from tests.peer.conftest import Peers, of_version

GENEROUS = 240.0
"""Two brokers are started and stopped, one of them a JVM, and timers of 8 s waited for."""
SETTINGS = {
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "2000",
    "transactionCheckMax": "10000",  # Apache's brokers may take 20 s to stop, and send checks until then
    "messageDelayLevel": "1s 6s 1h",
    "maxHashSlotNum": BROKER_CONF["maxHashSlotNum"],
    "maxIndexNum": BROKER_CONF["maxIndexNum"],
}
HOUR_MS = 3_600_000
"""The delay of what Apache's broker must not deliver: the next broker repeats what is delivered in the last second."""
WITH_TIMERS = "5.3.3"
OLD_MS = 120_000
ASKS_ABOUT_OLD_ONES = {"transactionTimeOut": str(OLD_MS)}
"""A check stores a half message again. What Apache's broker stores in its last second, after its progress, the next
broker finds twice, and asks about both."""
NOTES_ENDS_SOON = {"transactionOpBatchInterval": "200"}
"""5.x notes ends later, three seconds unless set; what it asks about meanwhile it asks about for good."""


class HourLater(SystemClock):
    """The wall clock, an hour ahead."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, and an hour more."""
        return super().now_ms() + HOUR_MS


class Client(RawClient):
    """A client that receives transaction checks.

    Attributes:
        asked: The questions, as they come.
    """

    asked: "asyncio.Queue[Question]"

    @classmethod
    async def of(cls, address: str) -> "Client":
        """Connect and join the producer group."""
        asked: asyncio.Queue[Question] = asyncio.Queue()

        def note(request: RemotingCommand) -> None:
            asked.put_nowait(Question(request))

        raw = await RawClient.connect(TcpTransport(), address, answer=note)
        client = cls(raw.connection, raw.pushed)
        client.asked = asked
        await client.heartbeat("client@1", producers=(GROUP,))
        return client

    async def half(self, name: str, *, age_ms: int = 0) -> SendMessageResponseHeader:
        """Begin a transaction, made so many milliseconds ago."""
        return await begin(self, now_ms() - age_ms, key=name)

    async def later(self, name: str, **properties: str) -> SendMessageResponseHeader:
        """Send a message for later delivery; the answer has its place in the topic where it waits."""
        return await self.send(body=name.encode(), born_timestamp=now_ms(), properties={"UNIQ_KEY": name} | properties)

    async def answer_all(self, *names: str, others: Collection[str] = ()) -> None:
        """Commit these transactions when they are checked; no others than these and the given ones may be."""
        open_ = {*names}
        while open_:
            question = await self.asked.get()
            name = question.header.msg_id or ""
            assert name in names or name in others
            answer = await question.answer(self)
            if answer.code == ResponseCode.SUCCESS:
                open_.discard(name)

    async def keys(self, count: int) -> list[str]:
        """Return the keys of the topic's messages once there are so many."""
        messages: list[MessageExt] = []
        while len(messages) < count:
            answer = await self.pull(sys_flag=0b110, offset=len(messages), suspend_timeout_millis=5_000)
            messages += answer.messages
        return [message.unique_key or "" for message in messages]


async def until_in_files(store: Path, timed: SendMessageResponseHeader) -> None:
    """Wait until a timed message is in the files of the timers, which brokers write each second."""
    file = store / "config" / "timercheck"

    def end() -> int:
        return TimerProgress.decode(file.read_bytes()).queue_offset if file.exists() else 0

    while end() <= timed.queue_offset:  # noqa: ASYNC110 - a file sets no event
        await asyncio.sleep(0.05)


def now_ms() -> int:
    """Return the time."""
    return int(time.time() * 1000)


@asynccontextmanager
async def ours(store: Path, clock: Clock | None = None) -> AsyncIterator[Client]:
    """Our broker on the store, with the system's clock or another, and a client of it."""
    async with EmbeddedBroker(store, settings=SETTINGS, clock=clock) as embedded:
        client = await Client.of(embedded.broker_address)
        yield client
        await client.connection.close()


@asynccontextmanager
async def apaches(
    version: str, store: Path, *, settings: dict[str, str] | None = None, kill: bool = False
) -> AsyncIterator[Client]:
    """Apache's broker on the store, and a client of it; stopped or killed in the end."""
    all_settings = SETTINGS | NOTES_ENDS_SOON | TIMERS_IN_FILES | (settings or {})
    broker = await asyncio.to_thread(ApacheBroker, version, settings=all_settings, store=store)
    try:
        client = await Client.of(broker.address)
        yield client
        await client.connection.close()
    finally:
        await asyncio.to_thread(broker.kill if kill else broker.stop)


@pytest.fixture(params=[of_version(version) for version in VERSIONS])
def version(request: pytest.FixtureRequest, peers: Peers) -> str:
    """The version of Apache's broker."""
    found: str = request.param
    return found


def test_waiting_messages_continue_in_the_other_broker_and_back(version: str, tmp_path: Path) -> None:
    """From ours to Apache's and back: nothing is lost or repeated, and ended transactions stay ended."""
    store = tmp_path / "store"

    async def begin_in_ours() -> list[SendMessageResponseHeader]:
        async with ours(store) as client:
            await client.create_topic("orders")
            halves = [await client.half(name, age_ms=OLD_MS) for name in ("committed", "rolled back", "left open")]
            await end(client, halves[0])
            await end(client, halves[1], commit_or_rollback=TRANSACTION_ROLLBACK)
            await client.later("delayed", DELAY="2")
            if version == WITH_TIMERS:
                await client.later("timed", TIMER_DELIVER_MS=str(now_ms() + 8_000))
                await client.later("timed to the second", TIMER_DELIVER_MS=str(now_ms() // 1000 * 1000 + 8_000))
                at = str(now_ms() // 1000 * 1000 + 8_000)
                await client.later("taken back", TIMER_DELIVER_MS=at)
                last = await client.later("-", TIMER_DELIVER_MS=at, TIMER_DEL_UNIQKEY="orders+taken back")
                await until_in_files(store, last)
            return halves

    async def go_on_in_apaches() -> int:
        expected = ["committed", "left open", "delayed"]
        if version == WITH_TIMERS:
            expected += ["timed", "timed to the second"]
        async with apaches(version, store, settings=ASKS_ABOUT_OLD_ONES) as client:
            await client.answer_all("left open")
            assert sorted(await client.keys(len(expected))) == sorted(expected)
            if version == WITH_TIMERS:
                await client.later("timed again", TIMER_DELAY_MS=str(HOUR_MS))
                at = str(now_ms() // 1000 * 1000 + HOUR_MS)
                await client.later("taken back again", TIMER_DELIVER_MS=at)
                last = await client.later("-", TIMER_DELIVER_MS=at, TIMER_DEL_UNIQKEY="orders+taken back again")
                await until_in_files(store, last)
            half = await client.half("open in apache's")
            kept = await client.half("ended in apache's")
            noted = await client.end(OP)
            await end(client, kept)
            await client.later("delayed again", DELAY="3")
            while await client.end(OP) == noted:  # noqa: ASYNC110 - 5.x notes ends later
                await asyncio.sleep(0.05)
            assert half.queue_offset < kept.queue_offset
            return await client.end()

    async def go_on_in_ours(halves: list[SendMessageResponseHeader], before: int) -> None:
        async with ours(store, HourLater()) as client:
            await client.answer_all("open in apache's")
            more = ["open in apache's", "delayed again"] + ["timed again"] * (version == WITH_TIMERS)
            keys = await client.keys(before + len(more))
            assert {*keys} >= {"committed", "left open", "ended in apache's", *more}
            assert len(keys) == len({*keys})
            for half in halves:
                assert (await end(client, half, commit_or_rollback=TRANSACTION_COMMIT)).code != 0
            await asyncio.sleep(1.5)  # one round of checks, which finds no pending transaction
            assert client.asked.empty()
            assert await client.end() == len(keys)

    async def main() -> None:
        async with asyncio.timeout(GENEROUS):
            halves = await begin_in_ours()
            before = await go_on_in_apaches()
            await go_on_in_ours(halves, before)

    asyncio.run(main())


def test_waiting_messages_continue_in_the_other_broker_after_a_kill(version: str, tmp_path: Path) -> None:
    """Each broker is killed after its acknowledgments; the next one has all messages, some perhaps twice."""
    store = tmp_path / "store"
    config = tmp_path / "broker.conf"
    settings = SMALL_STORE | SETTINGS | PATIENT | {"storePathRootDir": str(store), "listenPort": "0"}
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    timers = version == WITH_TIMERS

    async def leave(client: Client, tag: str) -> None:
        await client.half(f"half {tag}")
        await client.later(f"delayed {tag}", DELAY="2")
        if timers:
            await client.later(f"timed {tag}", TIMER_DELAY_SEC="5")

    async def take(client: Client, *tags: str) -> None:
        expected = {f"{kind} {tag}" for tag in tags for kind in ("half", "delayed", *["timed"] * timers)}
        # Apache's broker stores its progress every five seconds, so checks of the last seconds are repeated.
        await client.answer_all(f"half {tags[-1]}", others=expected)
        keys = await client.keys(len(expected))
        while not expected <= {*keys}:
            keys = await client.keys(len(keys) + 1)
        assert {*keys} == expected

    async def main() -> None:
        with running("broker", "-c", str(config), cwd=tmp_path) as process:
            client = await Client.of(process.address())
            await client.create_topic("orders")
            await leave(client, "by us")
            process.signal(signal.SIGKILL)
            await client.connection.close()
        async with asyncio.timeout(GENEROUS):
            async with apaches(version, store, kill=True) as client:
                await take(client, "by us")
                await leave(client, "by Apache")
            async with ours(store) as client:
                await take(client, "by us", "by Apache")

    asyncio.run(main())
