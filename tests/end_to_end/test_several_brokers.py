"""Several brokers of one command: their start, a kill of one, and their end."""

import asyncio
import signal
import socket
import time
from datetime import timedelta
from pathlib import Path

import pytest

from rocket_client import (
    Admin,
    ClientSettings,
    ConsumeFromWhere,
    Producer,
    ProducerSettings,
    PushConsumer,
    PushConsumerSettings,
)
from rocket_remoting import Message
from tests.end_to_end.broker_process import ServerProcess
from tests.end_to_end.client_stage import RecordingListener
from tests.end_to_end.several_brokers import NAMES, SeveralBrokers, several_brokers, write_settings
from tests.ports import free_ports

PATIENCE = 100.0
FIRST, SECOND = NAMES


@pytest.mark.promise
def test_killed_broker_comes_back_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends to a killed broker succeed at the other one, and its messages are delivered when it is back.

    systemd is notified when both serve, and when the stop begins.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(PATIENCE)
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with several_brokers(tmp_path) as brokers:
            assert systemd.recv(1000) == b"READY=1"
            asyncio.run(send_while_one_is_killed(brokers))
            assert brokers.command.signal(signal.SIGTERM) == 0
            assert systemd.recv(1000) == b"STOPPING=1"
    log = "".join(brokers.command.log)
    assert f"Broker {SECOND} ended with exit code 137: starting it again in 0.5 s" in log
    assert "the broker before was killed" in log
    for name in NAMES:
        assert (tmp_path / "store" / name / "commitlog").is_dir()


async def send_while_one_is_killed(brokers: SeveralBrokers) -> None:
    heard = RecordingListener()
    acknowledged: list[bytes] = []
    slowest = 0.0
    async with Admin(ClientSettings(name_servers=brokers.name_server)) as admin:
        await admin.create_topic("orders", queues=2)
    settings = ProducerSettings(
        name_servers=brokers.name_server, send_timeout=timedelta(seconds=PATIENCE), send_latency_fault_enable=True
    )
    async with Producer("shop", settings) as producer:

        async def send(number: int) -> str:
            body = b"%d" % number
            result = await producer.send(Message("orders", body))
            acknowledged.append(body)
            return result.message_queue.broker_name

        async with asyncio.timeout(PATIENCE):
            # A broker that has answered late is avoided for half a minute.
            while {await send(number) for number in range(8)} != {FIRST, SECOND}:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(1)
        brokers.signal(1, signal.SIGSTOP)  # so that sends to it are under way when it is killed
        under_way = []
        for number in range(8, 12):
            under_way.append(asyncio.create_task(send(number)))
            await asyncio.sleep(0)  # sends of the same turn of the loop would share a request to one queue
            await asyncio.sleep(0)
        _, hanging = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        assert hanging
        brokers.signal(1, signal.SIGKILL)
        assert {await each for each in under_way} == {FIRST}
        begun = time.monotonic()
        assert {await send(number) for number in range(16, 20)} == {FIRST}
        slowest = time.monotonic() - begun
        await asyncio.to_thread(brokers.wait_for_start, 1, times=2)
        # The failed send has the broker avoided for ten minutes, unless the other one is avoided too: it took longer
        # than 0.55 s, on a busy machine.
        assert {await send(number) for number in range(20, 28)} == {FIRST} or slowest > 0.5
    consumer = PushConsumer(
        "kitchen",
        PushConsumerSettings(name_servers=brokers.name_server, consume_from_where=ConsumeFromWhere.FIRST_OFFSET),
    )
    consumer.subscribe("orders")
    consumer.listen_concurrently(heard)
    async with consumer, asyncio.timeout(PATIENCE):
        while not set(heard.bodies) >= set(acknowledged):
            await heard.count(len(heard.messages) + 1, patience=PATIENCE)


def test_broker_that_cannot_open_its_store_ends_the_command(tmp_path: Path) -> None:
    """With its error and exit code 1; the other broker is stopped."""
    name_server_port, port = free_ports(brokers=2)
    config = write_settings(tmp_path, port)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / SECOND).write_text("a file where the store should be")
    arguments = ("-c", str(config), "--processes", "2", "--name-server-port", str(name_server_port))
    command = ServerProcess("broker", *arguments, cwd=tmp_path)
    try:
        assert command.wait() == 1
    finally:
        command.end()
    log = "".join(command.log)
    assert f"Error: the store in {tmp_path / 'store' / SECOND} cannot be used" in log
    assert f"Broker {SECOND} could not start (exit code 1): stopping" in log
    assert command.output == []
    assert "Traceback" not in log


def test_brokers_stop_with_a_killed_command(tmp_path: Path) -> None:
    """In order, so that the next start need not recover."""
    with several_brokers(tmp_path) as brokers:
        brokers.command.signal(signal.SIGKILL)  # returns when the brokers have closed their logs
    for name in NAMES:
        assert not (tmp_path / "store" / name / "abort").exists()
