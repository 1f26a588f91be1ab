"""A slave whose process is stopped by SIGSTOP, and goes on later."""

import asyncio
import os
from datetime import timedelta
from pathlib import Path

import pytest

from rocket_broker.settings.broker_settings import SMALL_STORE
from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import Message, MessageQueue, Producer, ProducerSettings, SendStatus
from tests.end_to_end.broker_process import PATIENT, ServerProcess
from tests.end_to_end.client_stage import until

BEHIND = 1024 * 1024
"""Bytes that a slave may be behind."""
LOG_FILE = {"mappedFileSizeCommitLog": str(16 * BEHIND)}
MASTER = {
    "brokerRole": "SYNC_MASTER", "slaveTimeout": "500", "haSlaveFallbehindMax": str(BEHIND), **LOG_FILE, **PATIENT,
}  # fmt: skip
QUEUE = MessageQueue("orders", "broker-a", 0)


@pytest.mark.promise
@pytest.mark.slow
def test_a_stopped_slave_costs_senders_their_wait_and_catches_up(tmp_path: Path) -> None:
    """Senders that wait are told, others feel nothing, and the logs are equal in the end."""

    async def scene(master: ThreadedBroker, slave: ServerProcess) -> None:
        settings = ProducerSettings(
            name_servers=master.name_server,
            send_timeout=timedelta(minutes=1),
            retry_another_broker_when_not_store_ok=False,
        )
        async with Producer("producers", settings) as producer:

            async def send(body: bytes = b"hello", **properties: str) -> SendStatus:
                message = Message("orders", body)
                message.properties.update(properties)
                return (await producer.send(message, queue=QUEUE)).status

            await producer.send(Message("orders", b"first"))
            while await send() is not SendStatus.SEND_OK:
                pass
            slave.pause()
            while (status := await send()) is SendStatus.SEND_OK:
                pass  # it has not stopped yet
            assert status is SendStatus.FLUSH_SLAVE_TIMEOUT
            for _ in range(8):
                assert await send(os.urandom(BEHIND // 2), WAIT="false") is SendStatus.SEND_OK
            assert await send() is SendStatus.SLAVE_NOT_AVAILABLE
            slave.resume()
            while await send() is not SendStatus.SEND_OK:
                pass

    with ThreadedBroker(tmp_path / "master", settings=MASTER) as master:
        conf = tmp_path / "broker.conf"
        keys = SMALL_STORE | {
            "brokerRole": "SLAVE", "brokerId": "1", "brokerIP1": "127.0.0.1", "listenPort": "0",
            "namesrvAddr": master.name_server, "storePathRootDir": str(tmp_path / "slave"), **LOG_FILE,
        }  # fmt: skip
        conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        slave = ServerProcess("broker", "-c", str(conf), cwd=tmp_path)
        try:
            slave.address()
            asyncio.run(scene(master, slave))
            asyncio.run(until(lambda: log(tmp_path / "slave") == log(tmp_path / "master")))
        finally:
            slave.end()


def log(store: Path) -> list[bytes]:
    """Return the files of the log."""
    return [file.read_bytes() for file in sorted((store / "commitlog").glob("[0-9]*"))]
