"""What clients can make a broker and a name server write into their logs."""

import asyncio
import logging
import re
import signal
import socket
import struct
from pathlib import Path

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_remoting import TcpTransport
from tests.end_to_end.broker_process import ServerProcess, running
from tests.end_to_end.raw_client import RawClient, with_broker
from tests.end_to_end.test_broker_protocol_hostile import frame

NO_FRAME = struct.pack(">ii", -1, -1)
SERVERS = {
    "broker": (("-p", "0", "-n", "127.0.0.1:1", "--store", "store"), 310),
    "namesrv": (("-p", "0"), 105),
}
"""A command's arguments, and a request that it refuses when it has no fields."""


def write(server: ServerProcess, data: bytes, source: str) -> None:
    """Send bytes from a loopback address, and wait until the server closes the connection."""
    host, _, port = server.address().rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60, source_address=(source, 0)) as connection:
        connection.sendall(data)
        while connection.recv(65536):
            pass


def counted(lines: list[str], text: str) -> int:
    """Return the number of events with this text according to the lines."""
    about = [line for line in lines if text in line]
    left_out = [int(found[1]) for line in about if (found := re.search(r": (\d+) further line\(s\) of", line))]
    return len(about) - len(left_out) + sum(left_out)


@pytest.mark.parametrize("command", SERVERS)
def test_endless_invalid_requests_do_not_fill_the_log(tmp_path: Path, command: str) -> None:
    """10,000 refused requests and 200 invalid frames are some lines with their counts;

    other events are still logged.
    """
    arguments, code = SERVERS[command]
    oneway = frame({"code": code, "flag": 2, "opaque": 1, "language": "JAVA", "version": 0})
    with running(command, *arguments, cwd=tmp_path) as server:
        write(server, oneway * 10_000 + NO_FRAME, "127.0.0.1")
        for _ in range(199):
            write(server, NO_FRAME, "127.0.0.1")
        write(server, NO_FRAME, "127.0.0.2")
        assert server.signal(signal.SIGTERM) == 0
    assert counted(server.log, " from 127.0.0.1:") == 10_000
    assert counted(server.log, "closing the connection to") == 201
    assert len(server.log) < 100
    assert "closing the connection to 127.0.0.2:" in "".join(server.log)


def test_log_lines_name_the_client(caplog: pytest.LogCaptureFixture) -> None:
    """So that the limit per client applies."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.try_send("orders")
        await client.try_send("letters", default_topic="none")
        await client.pull(offset=7)
        for group, expression in (("right", "a = 1"), ("wrong", "a =")):
            await client.heartbeat(consumers={group: {"orders": expression}}, expression_type="SQL92")

    caplog.set_level(logging.INFO)
    with_broker(scene, enablePropertyFilter="true")
    lines = [
        "topic orders created",
        "sends to the unknown topic letters",
        "pulls orders queue 0 from offset 7",
        "consumer group right:",
        "filters orders by a = 1",
        "group wrong: invalid filter expression for orders",
    ]
    records = [next(record for record in caplog.records if line in record.getMessage()) for line in lines]
    assert len({getattr(record, "peer", "") for record in records}) == 1
    assert all(getattr(record, "peer", "") for record in records)


def test_clients_cannot_inject_log_lines(tmp_path: Path) -> None:
    """Control characters are escaped."""

    async def contradict(address: str) -> None:
        clients = [await RawClient.connect(TcpTransport(), address) for _ in range(2)]
        await clients[0].heartbeat("honest", consumers={"g": {"orders": "*"}})
        await clients[1].heartbeat("x\n\x1b[2JERROR forged", consumers={"g": {"others": "*"}})
        for client in clients:
            await client.connection.close()

    with running("broker", *SERVERS["broker"][0], cwd=tmp_path) as broker:
        asyncio.run(contradict(broker.address()))
        broker.signal(signal.SIGTERM)
    (line,) = [line for line in broker.log if "its members have different subscriptions" in line]
    assert r"x\n\x1b[2JERROR forged" in line
