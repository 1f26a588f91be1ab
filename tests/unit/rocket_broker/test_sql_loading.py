"""The parser of SQL92 expressions is loaded when the first expression comes, beside other work."""

import subprocess
import sys
from pathlib import Path

COUNTS_STEPS = """
from rocket_broker.filter.sql import load_steps

steps = 0
for _ in load_steps():
    steps += 1
    if steps > 2_000:
        break
print(steps)
"""


def test_the_loop_leaves_time_to_the_thread_that_loads_the_parser() -> None:
    """A loop that only looks whether it is loaded spins, and each read of a file takes the thread 5 ms then."""
    loaded = subprocess.run(
        [sys.executable, "-c", COUNTS_STEPS],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    assert 0 < int(loaded.stdout) <= 2_000
