"""A process killed while it stores messages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocket_broker.store import MessageStore, StoreSettings
from rocket_remoting.clock import SystemClock
from rocket_remoting.wire.record import decode_record
from tests.store.disk import bodies, stop

STORES = """
import sys
from itertools import count
from pathlib import Path
from rocket_broker.store import MessageStore, StoreMessage, StoreSettings
from rocket_remoting.clock import SystemClock
store = MessageStore(StoreSettings(Path(sys.argv[1]), mapped_file_size_commit_log=200_000), SystemClock())
store.load()
for number in count(int(sys.argv[2])):
    key = str(number)
    result = store.put(
        StoreMessage("orders", number % 3, key.encode() * 20, f"UNIQ_KEY\\x01{key}\\x02".encode(), unique_key=key)
    )
    print(number, result.queue_offset, flush=True)
"""


@pytest.mark.slow
def test_acknowledged_messages_survive_kills(tmp_path: Path) -> None:
    """After repeated kills each is at its offset and under its key."""
    acknowledged: dict[int, int] = {}
    for lines in (1500, 1, 3000):
        acknowledged |= _store_and_kill(tmp_path, max(acknowledged, default=-1) + 1, lines)
        store = MessageStore(StoreSettings(tmp_path, mapped_file_size_commit_log=200_000), SystemClock())
        assert not store.load().ended_in_order
        for number, queue_offset in acknowledged.items():
            (record,) = store.get("orders", number % 3, queue_offset, 1, 9999).records
            assert decode_record(record).body == b"%d" % number * 20
            assert len(store.query("orders", str(number), 9, 0, 2**62)) == 1
        queues = [bodies(store, "orders", queue_id) for queue_id in range(3)]
        assert len({body for queue in queues for body in queue}) == sum(map(len, queues))
        for queue_id, queue in enumerate(queues):
            assert len(queue) == store.max_offset("orders", queue_id)
        acknowledged |= {  # the last one may have been stored but not told of
            int(body[: len(body) // 20]): offset for queue in queues for offset, body in enumerate(queue)
        }
        stop(store)


def _store_and_kill(root: Path, first: int, lines: int) -> dict[int, int]:
    """Start a process that stores messages, kill it after some lines of output, and return the output."""
    process = subprocess.Popen(
        [sys.executable, "-c", STORES, str(root), str(first)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(lines)]
    process.kill()
    said += process.stdout.read().splitlines(keepends=True)
    process.wait()
    process.stdout.close()
    pairs = [line.split() for line in said if line.endswith("\n")]
    return {int(number): int(offset) for number, offset in pairs}
