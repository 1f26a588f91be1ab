"""Messages that are missing or not yet readable: half, delayed, expired."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rocket_client import LocalTransactionState, TransactionProducer, TransactionProducerSettings
from rocket_client.blocking.pipeline import Request
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.message import Message
from tests.end_to_end.broker_process import PATIENT, running
from tests.ports import free_ports
from tests.spark.reading import Reading
from tests.spark.stand import BUNDLED, Stand

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


async def unknown(message: object) -> LocalTransactionState:
    """Return UNKNOWN for every local transaction."""
    return LocalTransactionState.UNKNOWN


def test_half_and_delayed_messages_block_nothing(spark: "SparkSession", stand: Stand, tmp_path: Path) -> None:
    """Committed ones are read; delayed ones when they are due."""
    topic = stand.topic(queues=1)

    async def main() -> None:
        settings = TransactionProducerSettings(name_servers=stand.name_server)
        async with TransactionProducer("halves", settings, unknown) as producer:
            stand.send(topic, [b"first"])
            await producer.begin(Message(topic, b"half"))
            await (await producer.begin(Message(topic, b"rolled back"))).rollback()
            await producer.send(Message(topic, b"delayed", delay_level=1))
            await (await producer.begin(Message(topic, b"committed"))).commit()
            stand.send(topic, [b"last"])

    asyncio.run(main())
    of = Reading(spark, stand, tmp_path / "checkpoint")
    (queue,) = stand.queues(topic)
    for count in (3, 4):
        while stand.count(topic) < count:
            stand.client.pull(queue, stand.count(topic), wait=5.0)
        of.run(topic=topic)
    assert of.read == ["committed", "delayed", "first", "last"]


@pytest.fixture
def small_files(tmp_path: Path) -> Iterator[Stand]:
    """A broker whose log has many files, below `store/commitlog`."""
    _, port = free_ports()
    config = tmp_path / "broker.conf"
    lines = {
        "listenPort": str(port),
        "brokerIP1": "127.0.0.1",
        "storePathRootDir": str(tmp_path / "store"),
        "mappedFileSizeCommitLog": "65536",
        **PATIENT,
    }
    with running("namesrv", "-p", "0", cwd=tmp_path) as names:
        # It listens before the broker begins: that has registered then when it says that it has started.
        name_server = f"127.0.0.1:{names.address().rpartition(':')[2]}"
        lines["namesrvAddr"] = name_server
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        with running("broker", "-c", str(config), cwd=tmp_path) as broker:
            broker.address()
            stand = Stand(BUNDLED, name_server)
            with stand.client:
                yield stand


def test_expired_messages_between_two_runs(spark: "SparkSession", small_files: Stand, tmp_path: Path) -> None:
    """An error that names the remaining range, or reading continues there."""
    topic = small_files.topic(queues=1)
    of = Reading(spark, small_files, tmp_path / "checkpoint")
    small_files.send(topic, [b"%06d" % number + bytes(500) for number in range(10)])
    of.run(topic=topic)
    small_files.send(topic, [b"%06d" % number + bytes(500) for number in range(10, 400)])
    (queue,) = small_files.queues(topic)
    *old, _ = sorted((tmp_path / "store" / "commitlog").iterdir())
    for file in old:
        os.utime(file, (0, 0))
    small_files.client.ask(queue, Request(RequestCode.DELETE_EXPIRED_COMMITLOG))
    while (oldest := small_files.client.min_offset(queue)) <= 10:
        small_files.client.pull(queue, 400, wait=0.05)
    with pytest.raises(Exception, match=f"was read up to 10 and now holds {oldest} to 400"):
        of.run(topic=topic)
    of.run(topic=topic, failOnDataLoss="false")
    assert [body[:6] for body in of.batches.popitem()[1]] == [f"{n:06d}" for n in range(oldest, 400)]
