"""The blocking client before a master and its slave: whom it asks, and what it believes."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from rocket_client import ProducerSettings
from rocket_client.blocking import BlockingClient, NotCopiedError, PullRequest, QueueRange
from rocket_remoting import MessageQueue, TcpTransport
from rocket_remoting.wire.record import decode_records
from tests.end_to_end.broker_pair import BrokerPair, with_pair
from tests.ports import free_ports

QUEUE = MessageQueue("orders", "broker-a", 0)
COUNT = 50
SUGGESTS_SLAVE = {"slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": "0"}
ASYNC = {"brokerRole": "ASYNC_MASTER"}


def client_of(pair: BrokerPair) -> BlockingClient:
    """Return a client of the pair, which looks up a route again when it is needed."""
    settings = ProducerSettings(
        name_servers=pair.master.name_server_address, poll_name_server_interval=timedelta(milliseconds=1)
    )
    return BlockingClient("readers", settings)


async def send(pair: BrokerPair) -> None:
    """Create the topic, and store messages."""
    await pair.client.create_topic("orders")
    for number in range(COUNT):
        await pair.client.try_send(body=b"%d" % number, properties={"WAIT": "false"})


def read(client: BlockingClient, end: int = COUNT, **options: float) -> list[bytes]:
    """Return the bodies of a range, read in small pulls."""
    found: list[bytes] = []
    for part in client.read_ranges([QueueRange(QUEUE, 0, end)], max_messages=5, depth=2, **options):
        assert not part.is_lost
        found += [message.body for message in decode_records(part.records)]
    return found


BODIES = [b"%d" % number for number in range(COUNT)]


def test_reading_goes_on_at_the_slave_without_a_master(tmp_path: Path) -> None:
    """Ranges, pulls and offsets, by clients that knew the master; they commit to the slave then."""

    async def scene(pair: BrokerPair) -> None:
        def before() -> None:
            assert client.max_offset(QUEUE) == COUNT
            assert client.pull(QUEUE, 0, max_messages=2).next_offset == 2
            part = next(parts)
            assert (part.start, part.end) == (0, 5)

        def after() -> None:
            assert [part.end for part in parts][-1] == COUNT
            assert client.pull(QUEUE, 2, max_messages=2).next_offset == 4
            assert [result.next_offset for result in client.pull_many([PullRequest(QUEUE, 4, 2)])] == [6]
            assert client.max_offsets([QUEUE]) == {QUEUE: COUNT}
            client.commit_offset(QUEUE, 7)
            assert client.committed_offset(QUEUE) == 7
            assert read(client) == BODIES

        await send(pair)
        await pair.start_slave()
        with client_of(pair) as client:
            parts = client.read_ranges([QueueRange(QUEUE, 0, COUNT)], max_messages=5, depth=2)
            await asyncio.to_thread(before)
            await pair.master.broker.stop()
            await asyncio.to_thread(after)
        assert pair.slave.offsets.get("readers", "orders", 0) == 7

    with_pair(tmp_path, scene, transport=TcpTransport())


def test_the_suggestion_of_a_master_is_followed(tmp_path: Path) -> None:
    """Ranges and pulls are read from the slave, after the first answer."""

    async def scene(pair: BrokerPair) -> None:
        await send(pair)
        await pair.start_slave()
        with client_of(pair) as client:
            assert await asyncio.to_thread(read, client) == BODIES
            await asyncio.to_thread(client.pull, QUEUE, 0, max_messages=2)
            await asyncio.to_thread(client.pull, QUEUE, 2, max_messages=2)
        assert pair.slave.statistics.got_messages > COUNT // 2

    with_pair(tmp_path, scene, transport=TcpTransport(), **SUGGESTS_SLAVE)


@pytest.mark.parametrize("topic", ["copied", "unknown"])
def test_a_slave_is_not_believed_that_messages_are_gone(tmp_path: Path, topic: str) -> None:
    """A range is read from the master then, or not at all: the slave may not have copied the messages yet."""

    async def scene(pair: BrokerPair) -> None:
        await send(pair)
        nobody = f"127.0.0.1:{free_ports()[0]}"
        await pair.begin_slave(haMasterAddress=nobody)  # so it has no messages
        if topic == "unknown":
            pair.slave.topics.delete("orders")
        with client_of(pair) as client:
            assert await asyncio.to_thread(read, client) == BODIES
            await pair.master.broker.stop()
            if topic == "copied":
                with pytest.raises(NotCopiedError, match="lacks messages of"):
                    await asyncio.to_thread(read, client, patience=0.2)

    with_pair(tmp_path, scene, transport=TcpTransport(), **SUGGESTS_SLAVE)
