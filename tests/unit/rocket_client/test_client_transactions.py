"""Half messages, ends of transactions and checks, with scripted brokers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rocket_client import (
    IllegalMessageError,
    LocalTransactionState,
    SendError,
    TransactionProducer,
    TransactionProducerSettings,
)
from rocket_remoting import Connection, Message, MessageExt, ResponseCode
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.headers import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from rocket_remoting.wire.properties import decode_properties, encode_properties
from rocket_remoting.wire.record import encode_record
from streamkit.testing.virtual_time import VirtualTime
from tests.unit.rocket_client.scripted_cluster import Peer, ScriptedCluster

COMMIT, ROLLBACK, UNKNOWN = LocalTransactionState


class Till:
    """A transaction producer, with brokers that record how its transactions end."""

    def __init__(self, cluster: ScriptedCluster, **settings: Any) -> None:
        self.cluster = cluster
        self.broker = cluster.brokers[0]
        self.calls = self.most_calls = 0
        self.checked: list[str] = []
        self.says: dict[str, object] = {}
        given = TransactionProducerSettings(
            name_servers=[server.address for server in cluster.name_servers], **settings
        )
        self.producer = TransactionProducer(
            "shop",
            given,
            self._check,
            topics=["orders"],
            transport=cluster.transport,
            clock=cluster.time.clock,
        )

    async def _check(self, message: MessageExt) -> LocalTransactionState:
        self.calls += 1
        self.most_calls = max(self.most_calls, self.calls)
        await asyncio.sleep(1)
        self.calls -= 1
        self.checked.append(message.msg_id)
        said = self.says.get(message.msg_id, COMMIT)
        if isinstance(said, Exception):
            raise said
        assert isinstance(said, LocalTransactionState)
        return said

    @property
    def ends(self) -> list[tuple[str, int, bool]]:
        """Return message id, transaction state and check flag of each END_TRANSACTION request."""
        reported = [
            command.header(EndTransactionRequestHeader)
            for broker in self.cluster.brokers
            for command in broker.asked
            if command.code == RequestCode.END_TRANSACTION
        ]
        return [(header.msg_id, header.commit_or_rollback, header.from_transaction_check) for header in reported]

    async def ask(self, *ids: str, group: str = "shop") -> None:
        """Send checks of half messages with these ids from the first broker, and wait for the answers."""
        connection = _only_connection(self.broker)
        for msg_id in ids:
            header = CheckTransactionStateRequestHeader(
                tran_state_table_offset=5, commit_log_offset=77, msg_id=msg_id, transaction_id=msg_id
            )
            connection.invoke_oneway(RequestCode.CHECK_TRANSACTION_STATE, header, _record(msg_id, group))
        await asyncio.sleep(60)


def _only_connection(peer: Peer) -> Connection:
    assert peer._server is not None
    (connection,) = peer._server.connections
    return connection


def _record(msg_id: str, group: str) -> bytes:
    return encode_record(
        "orders",
        b"half",
        encode_properties({"UNIQ_KEY": msg_id, "PGROUP": group}),
        queue_id=0,
        queue_offset=5,
        commit_log_offset=77,
        sys_flag=4,
        flag=0,
        born_timestamp=1,
        born_host=("127.0.0.1", 1),
        store_timestamp=2,
        store_host=("127.0.0.1", 2),
    )


def play(virtual: VirtualTime, scene: Callable[[Till], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        async with ScriptedCluster(virtual, ("a",)) as cluster:
            till = Till(cluster, **settings)
            async with till.producer:
                await scene(till)

    virtual.run(main())


@pytest.mark.parametrize(("state", "bits"), [(COMMIT, 8), (ROLLBACK, 12), (UNKNOWN, 0)])
def test_transaction_ends_with_the_local_result(virtual: VirtualTime, state: LocalTransactionState, bits: int) -> None:
    """The half message is marked and names the group; its end is sent one way."""

    async def scene(till: Till) -> None:
        async def execute(message: Message) -> LocalTransactionState:
            return state

        message = Message("orders", b"x")
        result = await till.producer.send_in_transaction(message, execute)
        await asyncio.sleep(1)
        assert result.state is state
        assert till.ends == [(message.unique_key, bits, False)]
        (stored,) = till.broker.stored
        properties = decode_properties(stored.properties or "")
        assert (properties["TRAN_MSG"], properties["PGROUP"], stored.sys_flag) == ("true", "shop", 4)
        assert "TRAN_MSG" not in message.properties

    play(virtual, scene)


def test_failed_local_transaction_is_unknown(virtual: VirtualTime) -> None:
    """The exception reaches the caller, and the broker will check."""

    async def scene(till: Till) -> None:
        async def execute(message: Message) -> LocalTransactionState:
            raise ValueError("no money")

        with pytest.raises(ValueError, match="no money"):
            await till.producer.send_in_transaction(Message("orders", b"x"), execute)
        await asyncio.sleep(1)
        assert [bits for _, bits, _ in till.ends] == [0]

    play(virtual, scene)


def test_transaction_can_end_once(virtual: VirtualTime) -> None:
    """A second end is an error."""

    async def scene(till: Till) -> None:
        transaction = await till.producer.begin(Message("orders", b"x"))
        await transaction.commit()
        with pytest.raises(RuntimeError, match="has already ended: rollback is not possible"):
            await transaction.rollback()

    play(virtual, scene)


def test_half_message_with_an_unsafe_store_is_rolled_back(virtual: VirtualTime) -> None:
    """The send fails before the local transaction starts."""

    async def scene(till: Till) -> None:
        till.broker.reply = ResponseCode.FLUSH_DISK_TIMEOUT
        with pytest.raises(SendError, match="FLUSH_DISK_TIMEOUT and is rolled back"):
            await till.producer.begin(Message("orders", b"x"))
        await asyncio.sleep(1)
        assert [bits for _, bits, _ in till.ends] == [12]

    play(virtual, scene)


@pytest.mark.parametrize(
    "message",
    [
        Message("orders", b"x", delay_level=3),
        Message("orders", b"x", properties={"TIMER_DELIVER_MS": "99"}),
    ],
)
def test_delayed_half_message_is_refused(virtual: VirtualTime, message: Message) -> None:
    """Brokers do not support both; nothing is sent."""

    async def scene(till: Till) -> None:
        with pytest.raises(IllegalMessageError, match="cannot be delayed"):
            await till.producer.begin(message)
        assert not till.broker.stored

    play(virtual, scene)


def test_checks_are_answered_by_the_checker(virtual: VirtualTime, caplog: pytest.LogCaptureFixture) -> None:
    """Marked as check results; an exception means unknown, and a check for another group is ignored."""

    async def scene(till: Till) -> None:
        till.says = {"B": ROLLBACK, "C": UNKNOWN, "D": ValueError("database away")}
        await till.ask("A", "B", "C", "D")
        assert sorted(till.ends) == [("A", 8, True), ("B", 12, True), ("C", 0, True), ("D", 0, True)]
        await till.ask("E", group="other")
        assert len(till.ends) == 4

    with caplog.at_level(logging.ERROR, "rocket_client"):
        play(virtual, scene)
    assert "the checker failed with message D" in caplog.text


def test_concurrent_checks_are_limited(virtual: VirtualTime) -> None:
    """At most two calls at once; the broker repeats checks that exceed the queue."""

    async def scene(till: Till) -> None:
        await till.ask(*(f"{number:02}" for number in range(20)))
        assert till.most_calls == 2
        # Three can wait; those that came first are among them.
        assert sorted(till.checked)[:3] == ["00", "01", "02"]
        assert len(till.checked) in (3, 5)

    play(virtual, scene, check_concurrency=2, check_request_hold_max=3)


def test_producer_without_a_checker_logs_a_warning(virtual: VirtualTime, caplog: pytest.LogCaptureFixture) -> None:
    """It does not answer, and the log says that the group is mixed."""

    async def main() -> None:
        async with ScriptedCluster(virtual, ("a",)) as cluster, cluster.producer() as producer:
            await producer.send(Message("orders", b"x"))
            header = CheckTransactionStateRequestHeader(tran_state_table_offset=5, commit_log_offset=77)
            connection = _only_connection(cluster.brokers[0])
            connection.invoke_oneway(RequestCode.CHECK_TRANSACTION_STATE, header, _record("A", "shop"))
            await asyncio.sleep(1)

    virtual.run(main())
    assert "this member has no checker" in caplog.text


def test_producer_announces_itself_at_its_start(virtual: VirtualTime) -> None:
    """To the brokers of its topics, before it sends."""

    async def scene(till: Till) -> None:
        assert till.broker.count(RequestCode.HEART_BEAT) == 1

    play(virtual, scene)
