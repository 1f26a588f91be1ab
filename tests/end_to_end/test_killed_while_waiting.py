"""kill -9 with waiting messages: half, delayed and timed ones; all continue in the next broker."""

import asyncio
import signal
import time
from pathlib import Path

import pytest

from rocket_remoting import TcpTransport
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.headers import SendMessageResponseHeader
from rocket_remoting.wire.sys_flag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from tests.end_to_end.broker_process import ServerProcess, running
from tests.end_to_end.raw_client import HELD, RawClient
from tests.end_to_end.test_broker_process import store_with
from tests.end_to_end.transactions import GROUP, Question, begin, end

GENEROUS = 60.0
ENDED_BEFORE_THE_KILL = 60


def now_ms() -> int:
    """Return the time."""
    return int(time.time() * 1000)


class Sent:
    """The answers of a killed broker.

    Attributes:
        halves: The transactions' answers by their keys.
        ended: How those ended whose end was answered.
        asked_to_end: Those whose end was sent, answered or not.
        waiting: Keys of the delayed and timed messages.
    """

    def __init__(self) -> None:
        self.halves: dict[str, SendMessageResponseHeader] = {}
        self.ended: dict[str, int] = {}
        self.asked_to_end: set[str] = set()
        self.waiting: set[str] = set()


async def send_until_killed(client: RawClient, broker: ServerProcess, sent: Sent) -> None:
    """Begin and end transactions and send delayed and timed messages, until the broker is killed."""
    number = 0
    while True:
        number += 1
        try:
            key = f"half-{number}"
            sent.halves[key] = await begin(client, now_ms(), key=key)
            if number % 3:
                outcome = TRANSACTION_COMMIT if number % 3 == 1 else TRANSACTION_ROLLBACK
                sent.asked_to_end.add(key)
                answer = await end(client, sent.halves[key], commit_or_rollback=outcome)
                assert answer.code == ResponseCode.SUCCESS
                sent.ended[key] = outcome
            for kind in ({"DELAY": "2"}, {"TIMER_DELAY_MS": "3000"}):
                key = f"{next(iter(kind))}-{number}"
                await client.send(properties={"UNIQ_KEY": key} | kind)
                sent.waiting.add(key)
        except RemotingError:
            return
        if number == ENDED_BEFORE_THE_KILL:
            asyncio.get_running_loop().call_later(0.005, broker.signal, signal.SIGKILL)


async def all_messages(client: RawClient, wanted: set[str]) -> list[str]:
    """Return the keys of the topic's messages, once all that are wanted are among them."""
    keys: list[str] = []
    while not wanted <= {*keys}:
        keys += [m.unique_key or "" for m in (await client.pull(offset=len(keys), sys_flag=HELD)).messages]
    return keys


@pytest.mark.promise
@pytest.mark.slow
def test_waiting_messages_survive_a_kill(tmp_path: Path) -> None:
    """No acknowledged transaction or delay is lost, no commit undone, no rolled back message delivered."""
    arguments = store_with(
        tmp_path,
        messageDelayLevel="1s 3s",
        transactionCheckInterval="500",
        transactionCheckMax="10000",
        transactionTimeOut="1",
        timerPrecisionMs="100",
    )
    sent = Sent()

    async def first(broker: ServerProcess) -> None:
        client = await RawClient.connect(TcpTransport(), broker.address())
        await send_until_killed(client, broker, sent)
        await client.connection.close()

    async def second(address: str) -> None:
        asked: asyncio.Queue[Question] = asyncio.Queue()
        client = await RawClient.connect(
            TcpTransport(), address, answer=lambda request: asked.put_nowait(Question(request))
        )
        for key, outcome in sent.ended.items():
            late = await end(client, sent.halves[key], commit_or_rollback=TRANSACTION_COMMIT)
            assert late.code == ResponseCode.SYSTEM_ERROR, (key, outcome)
        await client.heartbeat(producers=(GROUP,))
        open_ = {*sent.halves} - sent.asked_to_end
        answered: set[str] = set()
        while not open_ <= answered:
            question = await asked.get()
            key = question.header.msg_id or ""
            assert key not in sent.ended
            if (await question.answer(client)).code == ResponseCode.SUCCESS:
                answered.add(key)
        committed = {key for key, outcome in sent.ended.items() if outcome == TRANSACTION_COMMIT}
        keys = await all_messages(client, committed | open_ | sent.waiting)
        transactions = [key for key in keys if key.startswith("half")]
        assert len(transactions) == len({*transactions})
        assert not {*transactions} & {k for k, outcome in sent.ended.items() if outcome != TRANSACTION_COMMIT}
        await client.connection.close()

    async def limited(address: str) -> None:
        async with asyncio.timeout(GENEROUS):
            await second(address)

    with running("broker", *arguments, cwd=tmp_path) as broker:
        asyncio.run(first(broker))
    assert len(sent.ended) >= ENDED_BEFORE_THE_KILL // 2
    with running("broker", *arguments, cwd=tmp_path) as broker:
        asyncio.run(limited(broker.address()))
