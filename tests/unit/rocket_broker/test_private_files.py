"""Files of a broker and a name server are closed to other users, whatever the umask;

existing files keep their modes.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.files.private_files import make_private_directory
from rocket_broker.files.table_file import TableFile
from rocket_broker.files.table_journal import TableJournal
from rocket_remoting import TcpTransport
from rocket_remoting.wire.bodies import DataVersion, LockBatchRequestBody
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.headers import PutKVConfigRequestHeader
from rocket_remoting.wire.message import MessageQueue
from tests.end_to_end.raw_client import RawClient


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Set a umask of 0, under which new files are open to everybody."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    """Return the permissions of a file or directory."""
    return path.stat().st_mode & 0o777


@pytest.mark.usefixtures("no_umask")
def test_files_of_a_broker_are_private(tmp_path: Path) -> None:
    """Log, queues, index, timers, tables, journals, locks, and every directory that is created."""
    store = tmp_path / "above" / "store"

    def check() -> set[str]:
        paths = [store.parent, store, *store.rglob("*")]
        assert {path: oct(mode(path)) for path in paths if mode(path) != (0o700 if path.is_dir() else 0o600)} == {}
        return {path.name for path in paths}

    async def main() -> None:
        async with EmbeddedBroker(store) as embedded:
            client = await RawClient.connect(TcpTransport(), embedded.broker_address)
            await client.send(properties={"KEYS": "k"})
            await client.send(properties={"DELAY": "1"})
            await client.send(properties={"TIMER_DELAY_SEC": "100"})
            await client.heartbeat(consumers={"g": {"orders": "*"}})
            await client.commit(1, group="g")
            queue = MessageQueue("orders", embedded.broker.settings.broker_name, 0)
            body = LockBatchRequestBody(consumer_group="g", client_id="c", mq_set={queue})
            await client.ask_ok(Code.LOCK_BATCH_MQ, None, body)
            embedded.broker.offsets.save()
            embedded.broker.delays.save()
            names = await RawClient.connect(TcpTransport(), embedded.name_server_address)
            header = PutKVConfigRequestHeader(namespace="n", key="k", value="v")
            await names.ask_ok(Code.PUT_KV_CONFIG, header)
            assert {"abort", "lock", "checkpoint", "topics.json", "kvConfig.json"} <= check()
            for each in (client, names):
                await each.connection.close()

    asyncio.run(main())
    assert {"topics.json", "consumerOffset.json", "queueLocks.json", "timerwheel"} <= check()


@pytest.mark.usefixtures("no_umask")
def test_replaced_table_keeps_its_mode(tmp_path: Path) -> None:
    """The backup has the same mode."""
    table = TableFile(tmp_path / "table.json")
    table.write(b"1")
    assert mode(table.path) == 0o600
    table.path.chmod(0o640)
    for content in (b"2", b"3"):
        table.write(content)
    assert (mode(table.path), mode(table.backup)) == (0o640, 0o640)


@pytest.mark.usefixtures("no_umask")
def test_existing_directory_keeps_its_mode(tmp_path: Path) -> None:
    """Only missing directories are created, and returned from the top."""
    (tmp_path / "a").mkdir(mode=0o755)
    assert make_private_directory(tmp_path / "a" / "b" / "c") == [
        tmp_path / "a" / "b",
        tmp_path / "a" / "b" / "c",
    ]
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o755, 0o700, 0o700]
    assert make_private_directory(tmp_path / "a") == []


@pytest.mark.usefixtures("no_umask")
def test_journal_is_private_and_completed_after_a_kill(tmp_path: Path) -> None:
    """A line that a kill left incomplete is terminated first."""
    journal = TableJournal(tmp_path / "topics.json")
    entry = LockBatchRequestBody(consumer_group="g", client_id="c", mq_set=set())
    journal.path.write_bytes(b"half")
    journal.path.chmod(0o640)
    journal.append(
        DataVersion(timestamp=1, counter=1),
        [entry],
    )
    assert journal.path.read_bytes().startswith(b"half\n{")
    assert mode(journal.path) == 0o640
    journal.begin_merge(DataVersion(timestamp=1, counter=1))
    journal.end_merge()
    journal.append(
        DataVersion(timestamp=1, counter=2),
        [entry],
    )
    assert mode(journal.path) == 0o600
