"""The parser of SQL92 expressions is imported in a thread when the first expression arrives."""

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


def test_loop_does_not_spin_while_the_parser_is_imported() -> None:
    """Polling would delay the importing thread by 5 ms for each file it reads."""
    loaded = subprocess.run(
        [sys.executable, "-c", COUNTS_STEPS],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    assert 0 < int(loaded.stdout) <= 2_000
