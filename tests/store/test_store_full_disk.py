"""A really full disk: a small in-memory file system mounted for one process."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FILLS = """
import asyncio, sys
from pathlib import Path
from rocket_broker.store import MessageStore, PutStatus, StoreMessage, StoreSettings
from rocket_remoting.clock import SystemClock

def opened():
    store = MessageStore(StoreSettings(Path(sys.argv[1])), SystemClock())
    store.load()
    return store

def put(store, number, size):
    return store.put(StoreMessage("t", number % 5, b"x" * size, unique_key=f"k{number}")).status

store = opened()
stored = 0
while (status := put(store, stored, 500)) is PutStatus.OK:
    stored += 1
refused = [status] + [put(store, stored, 500) for _ in range(100)]
small = sum(put(store, stored + number, 0) is PutStatus.OK for number in range(1000))
asyncio.run(store.stop())
store = opened()
found = sum(len(store.get("t", queue_id, 0, 10_000, 2**30).records) for queue_id in range(5))
keys = sum(len(store.query("t", f"k{number}", 9, 0, 2**62)) > 0 for number in range(stored))
asyncio.run(store.stop())
print(set(refused) == {PutStatus.SERVICE_NOT_AVAILABLE}, stored > 500, found == stored + small, keys == stored)
"""


@pytest.mark.parametrize("kibibytes", [2500, 2600, 3000])
def test_full_disk_raises_no_sigbus(tmp_path: Path, kibibytes: int) -> None:
    """Neither writing nor reading mapped files: stored messages are there, the others were refused."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("no unshare to mount a small file system with")
    mount = f'mount -t tmpfs -o size={kibibytes}k tmpfs "$0" && exec "$@"'
    command = [unshare, "--user", "--map-root-user", "--mount", "sh", "-c", mount, str(tmp_path)]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let a process mount a file system of its own")
    filled = subprocess.run(
        [*command, sys.executable, "-c", FILLS, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert (filled.returncode, filled.stdout) == (0, "True True True True\n"), filled.stderr
