"""A broker killed at any step of writing a table: topics, groups, offsets, delays."""

import os
import subprocess
import sys
from pathlib import Path

KILLED_AT_EACH_STEP = """
import os, sys
from pathlib import Path
from rocket_broker.files.table_file import TableFile

def killed_at(step):
    # A child that dies right before its so-many-th access to a file, and writes a table until then.
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    left = [step]
    def access(event, arguments):
        if event in {"open", "os.rename", "os.link", "os.remove", "os.mkdir"}:
            left[0] -= 1
            if left[0] < 0:
                os._exit(9)
    sys.addaudithook(access)
    table.write(new)
    os._exit(0)

old, new = b'{"a":[%s]}' % (b"1," * 5000 + b"1"), b'{"b":[%s]}' % (b"2," * 5000 + b"2")
for durable in (False, True):
    for present in (None, old):
        for step in range(100):
            table = TableFile(Path(sys.argv[1]) / f"{durable}{present is None}{step}" / "topics.json", durable=durable)
            if present:
                table.write(present)
                table.write(present)
            was_killed = killed_at(step)
            found = table.load(lambda content: content.replace(b" ", b"").replace(b"\\n", b""))
            assert found in ((present, new) if was_killed else (new,)), (durable, step, found)
            table.write(new)
            if not was_killed:
                break
        print(step)
"""


def test_table_is_old_or_new_after_a_kill_at_each_step(tmp_path: Path) -> None:
    """Never torn, empty or missing; temporary files are ignored."""
    run = subprocess.run(
        [sys.executable, "-c", KILLED_AT_EACH_STEP, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert run.returncode == 0, run.stderr
    steps = [int(line) for line in run.stdout.split()]
    assert len(steps) == 4
    assert min(steps) >= 2
