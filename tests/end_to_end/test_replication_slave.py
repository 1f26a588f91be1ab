"""A slave of ours: what it copies, what it serves and refuses, and its promotion."""

import asyncio
import logging
from pathlib import Path

import pytest

from rocket_broker.replication import metadata
from rocket_broker.request_handlers import MASTER_ONLY
from rocket_client import ConsumeFromWhere, LitePullConsumer, LitePullConsumerSettings
from rocket_remoting.wire.bodies import HARuntimeInfo
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from tests.end_to_end.broker_pair import BrokerPair, with_pair
from tests.end_to_end.client_stage import until
from tests.end_to_end.raw_client import HELD
from tests.ports import free_ports

SECONDS = 60.0
"""A poll that takes this long has failed."""


def asynchronous() -> dict[str, str]:
    """Return the settings of an ASYNC_MASTER that accepts slaves."""
    return {"brokerRole": "ASYNC_MASTER", "haListenPort": str(free_ports()[0])}


def test_sends_to_a_sync_master_succeed_once_the_slave_has_them(tmp_path: Path) -> None:
    """Both logs are equal, byte for byte, over several files, and consumers read from either."""

    async def scene(pair: BrokerPair) -> None:
        assert (await pair.client.try_send(body=b"before")).code == ResponseCode.SLAVE_NOT_AVAILABLE
        await pair.start_slave()
        for number in range(20):
            await pair.client.send(body=b"%d" % number * 400)
        assert pair.log("slave") == pair.log("master")
        assert len(pair.log("slave")) > 1
        messages = await pair.reader.messages()
        assert [m.body for m in messages] == [m.body for m in await pair.client.messages()]
        assert len(messages) == 21

    with_pair(tmp_path, scene)


def test_a_pull_that_waits_at_the_slave_is_answered(tmp_path: Path) -> None:
    """As soon as the message is copied."""

    async def scene(pair: BrokerPair) -> None:
        await pair.client.send()
        await pair.start_slave()
        waiting = asyncio.ensure_future(pair.reader.pull(offset=1, sys_flag=HELD))
        await pair.client.send(body=b"later")
        assert [message.body for message in (await waiting).messages] == [b"later"]

    with_pair(tmp_path, scene, **asynchronous())


def test_slave_holds_pull_beyond_its_queue(tmp_path: Path) -> None:
    """An answer at once would move the consumer back to messages that it has read already."""

    async def scene(pair: BrokerPair) -> None:
        await pair.client.send()
        await pair.start_slave()
        pulled = await pair.reader.pull(offset=3)
        assert (pulled.code, pulled.header.next_begin_offset) == (ResponseCode.PULL_NOT_FOUND, 3)
        assert pulled.header.suggest_which_broker_id == 0
        assert (await pair.client.pull(offset=3)).code == ResponseCode.PULL_OFFSET_MOVED
        waiting = asyncio.ensure_future(pair.reader.pull(offset=3, sys_flag=HELD))
        for body in (b"1", b"2", b"3"):
            await pair.client.send(body=body)
        while (answer := await waiting).code == ResponseCode.PULL_NOT_FOUND:  # it was woken by an earlier message
            waiting = asyncio.ensure_future(pair.reader.pull(offset=3, sys_flag=HELD))
        assert [message.body for message in answer.messages] == [b"3"]

    with_pair(tmp_path, scene, **asynchronous())


def test_slave_keeps_offset_in_a_queue_it_has_not_copied(tmp_path: Path) -> None:
    """The slave may know a topic before it has a message of it."""

    async def scene(pair: BrokerPair) -> None:
        await pair.client.create_topic("empty")
        await pair.start_slave()
        pulled = await pair.reader.pull("empty", offset=7)
        assert (pulled.code, pulled.header.next_begin_offset) == (ResponseCode.PULL_NOT_FOUND, 7)

    with_pair(tmp_path, scene, **asynchronous())


def test_slave_corrects_offsets_if_configured(tmp_path: Path) -> None:
    """`offsetCheckInSlave=true` makes the slave correct offsets."""

    async def scene(pair: BrokerPair) -> None:
        await pair.client.send()
        await pair.start_slave(offsetCheckInSlave="true")
        pulled = await pair.reader.pull(offset=3)
        assert (pulled.code, pulled.header.next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, 1)

    with_pair(tmp_path, scene, **asynchronous())


def test_tables_are_copied(tmp_path: Path) -> None:
    """Topics, groups and consumer offsets, also to the slave's disk."""

    async def scene(pair: BrokerPair) -> None:
        await pair.client.create_topic("payments", queues=3)
        await pair.client.heartbeat(consumers={"readers": {"payments": "*"}})
        await pair.client.commit(7, group="readers", topic="payments", queue_id=2)
        await pair.start_slave()
        slave = pair.slave
        topic, group = slave.topics.get("payments"), slave.groups.get("readers")
        assert topic is not None
        assert topic.read_queue_nums == 3
        assert group is not None
        assert slave.offsets.get("readers", "payments", 2) == 7
        assert slave.topics.data_version == pair.master.broker.topics.data_version
        await slave.stop()
        config = tmp_path / "slave" / "config"
        assert "payments" in (config / "topics.json").read_text()
        assert "readers" in (config / "subscriptionGroup.json").read_text()
        assert "payments@readers" in (config / "consumerOffset.json").read_text()

    with_pair(tmp_path, scene)


def test_offsets_wait_for_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A redelivery that an offset has passed must be in the slave's log, or it would be lost after a promotion."""
    monkeypatch.setattr(metadata, "CATCH_UP_SECONDS", 0.1)

    async def scene(pair: BrokerPair) -> None:
        await pair.client.try_send(properties={"WAIT": "false"})
        await pair.client.commit(1)
        nobody = f"127.0.0.1:{free_ports()[0]}"
        await pair.begin_slave(haMasterAddress=nobody)  # so the log is not copied
        await until(lambda: pair.slave.metadata is not None and pair.slave.metadata.copies > 0)
        assert pair.slave.offsets.get("g", "orders", 0) is None

    with_pair(tmp_path, scene)


def test_a_topic_is_known_as_soon_as_it_has_a_message(tmp_path: Path) -> None:
    """The slave asks for its entry at once, and has one of its own until then."""

    async def scene(pair: BrokerPair) -> None:
        await pair.start_slave()
        await pair.client.create_topic("payments", queues=33)
        await pair.client.send("payments", queue_id=32)
        known = pair.slave.topics.get("payments")
        assert known is not None
        assert known.read_queue_nums == 33
        await until(lambda: pair.slave.topics.data_version == pair.master.broker.topics.data_version)

    with_pair(tmp_path, scene)


def test_a_slave_refuses_what_only_a_master_does(tmp_path: Path) -> None:
    """The answer says so, and makes clients try another broker."""

    async def scene(pair: BrokerPair) -> None:
        await pair.start_slave()
        for code in MASTER_ONLY:
            answer = await pair.reader.ask(code)
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "only the master of broker-a does that" in (answer.remark or "")

    with_pair(tmp_path, scene)


def test_the_route_has_master_and_slave(tmp_path: Path) -> None:
    """Under their ids; the queues are those of the master."""

    async def scene(pair: BrokerPair) -> None:
        await pair.start_slave()
        known = pair.master.name_server.routes.cluster_info().broker_addr_table["broker-a"]
        assert known.broker_addrs == {0: pair.master.broker_address, 1: pair.slave.address}

    with_pair(tmp_path, scene)


def test_a_slave_continues_after_a_restart(tmp_path: Path) -> None:
    """Of its own, and of the master at another port."""

    async def scene(pair: BrokerPair) -> None:
        await pair.client.send(body=b"1")
        await pair.start_slave()
        await pair.slave.stop()
        await pair.client.try_send(body=b"2", properties={"WAIT": "false"})
        await pair.start_slave()
        assert [message.body for message in await pair.reader.messages()] == [b"1", b"2"]

    with_pair(tmp_path, scene, **asynchronous())


def test_a_promoted_slave_goes_on_where_the_master_ended(tmp_path: Path) -> None:
    """As a master in the slave's directory: no number is used twice, and delayed messages are delivered."""

    async def scene(pair: BrokerPair) -> None:
        await pair.start_slave()
        await pair.client.send(body=b"1")
        await pair.client.send(body=b"delayed", properties={"DELAY": "1"})
        await pair.client.send(body=b"2")
        await pair.master.broker.stop()
        await pair.slave.stop()
        master, client = await pair.start("slave", brokerRole="ASYNC_MASTER", messageDelayLevel="1s 2s")
        await client.send(body=b"3")
        await until(lambda: master.store.max_offset("orders", 0) == 4)
        bodies = [message.body for message in await client.messages()]
        assert sorted(bodies) == [b"1", b"2", b"3", b"delayed"]

    with_pair(tmp_path, scene, messageDelayLevel="1s 2s")


def test_a_slave_with_another_log_copies_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Even if it has the same length: its last message is compared with the master's."""

    async def scene(pair: BrokerPair) -> None:
        await pair.client.send(body=b"of the master")
        other, client = await pair.start("slave", brokerName="broker-b")
        await client.send(body=b"of the slave!")
        await client.connection.close()
        await other.stop()
        await pair.begin_slave()
        await until(lambda: "the master has another message there" in caplog.text)
        await pair.client.send(body=b"more")
        assert [message.body for message in await pair.reader.messages()] == [b"of the slave!"]
        assert "Remove the store of this slave" in caplog.text

    with_pair(tmp_path, scene, **asynchronous())


def test_a_slave_whose_log_is_longer_copies_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its last messages are not in the master's log."""

    async def scene(pair: BrokerPair) -> None:
        other, client = await pair.start("slave", brokerName="broker-b")
        await client.send()
        await client.connection.close()
        await other.stop()
        await pair.begin_slave()
        await until(lambda: "the master does not show its message there" in caplog.text)

    with_pair(tmp_path, scene)


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(8) + b"\x7f" + bytes(3), bytes(8) + bytes([0, 0, 0, 40]) + b"x" * 40],
)
def test_a_port_that_is_no_masters_does_not_harm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, answer: bytes
) -> None:
    """What it sends is refused, and the slave starts as a master afterwards."""

    async def scene(pair: BrokerPair) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(answer)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            await pair.begin_slave(haMasterAddress=f"127.0.0.1:{port}")
            await until(lambda: any(r.name.endswith("slave") and r.levelno >= logging.WARNING for r in caplog.records))
            await pair.slave.stop()
        assert pair.slave.store.max_commit_log_offset == 0

    with_pair(tmp_path, scene)


def test_a_slave_finds_its_master_through_any_name_server(tmp_path: Path) -> None:
    """The first of two is down; the slave is in the routes of the other."""

    async def scene(pair: BrokerPair) -> None:
        down = f"127.0.0.1:{free_ports()[0]}"
        await pair.start_slave(namesrvAddr=f"{down};{pair.master.name_server_address}")
        assert (await pair.client.try_send()).code == ResponseCode.SUCCESS
        known = pair.master.name_server.routes.cluster_info().broker_addr_table["broker-a"]
        assert known.broker_addrs[1] == pair.slave.address

    with_pair(tmp_path, scene)


def test_a_silent_slave_reports_and_a_silent_master_is_left(tmp_path: Path) -> None:
    """Every haSendHeartbeatInterval, and after haHousekeepingInterval; brokerIP2 is where the slave connects to."""

    async def scene(pair: BrokerPair) -> None:
        reports: list[int] = []
        connections = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            try:
                while data := await reader.read(8):
                    reports.append(len(data))
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            intervals = {"haSendHeartbeatInterval": "20", "haHousekeepingInterval": "200"}
            await pair.begin_slave(haMasterAddress=f"127.0.0.1:{port}", **intervals)
            await until(lambda: connections > 1 and len(reports) > 4)
            await pair.slave.stop()

    with_pair(tmp_path, scene)


def test_the_port_for_slaves_may_be_at_another_address(tmp_path: Path) -> None:
    """The slave connects to brokerIP2 and haListenPort, as the name server tells it."""

    async def scene(pair: BrokerPair) -> None:
        await pair.start_slave()
        assert pair.slave.master.slaves == f"127.0.0.2:{port}"
        assert pair.slave.master.clients == pair.master.broker_address

    port = free_ports()[0]
    with_pair(tmp_path, scene, brokerIP2="127.0.0.2", haListenPort=str(port))


def test_the_state_of_the_slave_is_reported(tmp_path: Path) -> None:
    """By both, as mqadmin's haStatus shows it."""

    async def scene(pair: BrokerPair) -> None:
        await pair.start_slave()
        await pair.client.send()
        status = await pair.reader.fetch(RequestCode.GET_BROKER_HA_STATUS, HARuntimeInfo)
        end = pair.master.broker.store.max_commit_log_offset
        assert (status.master, status.ha_client_runtime_info.max_offset) == (False, end)
        assert status.ha_client_runtime_info.is_activated
        status = await pair.client.fetch(RequestCode.GET_BROKER_HA_STATUS, HARuntimeInfo)
        (slave,) = status.ha_connection_info
        assert (slave.slave_ack_offset, slave.diff, slave.in_sync) == (end, 0, True)

    with_pair(tmp_path, scene)


def test_consumers_go_on_from_the_slave_when_the_master_is_gone(tmp_path: Path) -> None:
    """From the group's offsets, and commit to the slave then."""

    async def scene(pair: BrokerPair) -> None:
        settings = LitePullConsumerSettings(
            name_servers=pair.master.name_server_address, consume_from_where=ConsumeFromWhere.FIRST_OFFSET
        )

        async def poll() -> list[bytes]:
            consumer = LitePullConsumer("readers", settings, transport=pair.transport)
            consumer.subscribe("orders")
            async with consumer:
                polled = await consumer.poll(SECONDS)
                await consumer.commit()
            return [message.body for message in polled]

        await pair.client.create_topic("orders")
        await pair.client.try_send(body=b"1")
        assert await poll() == [b"1"]
        await pair.start_slave()
        await pair.client.send(body=b"2")
        await pair.master.broker.stop()
        assert await poll() == [b"2"]
        assert pair.slave.offsets.get("readers", "orders", 0) == 2

    with_pair(tmp_path, scene)
