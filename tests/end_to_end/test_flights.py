"""The main job, as a user starts it: `python -m samples.flights`."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def flights(*arguments: str) -> str:
    """What the demo says, having ended well."""
    command = [sys.executable, "-m", "samples.flights", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def repeated(output: str) -> int:
    """How many deliveries the demo says it left out."""
    found = re.search(r"([\d,]+)\s+repeated", output)
    assert found, output
    return int(found[1].replace(",", ""))


@pytest.mark.slow
def test_undisturbed_each_flight_arrives_once_and_in_order() -> None:
    """The demo itself fails on a flight that comes twice, or before an earlier one of its aircraft."""
    output = flights("--limit", "6000")
    assert repeated(output) == 0
    assert "6,000 flights through two topics" in output.replace("\n", " ")


@pytest.mark.slow
def test_with_the_broker_killed_in_the_middle_the_totals_are_reached(tmp_path: Path) -> None:
    """Every flight that was acknowledged arrives at least once; the board counts each row once."""
    flights("--limit", "6000", "--kill-broker", "--store", str(tmp_path))
    log = (tmp_path / "broker.log").read_text()
    assert "the broker before was killed" in log


@pytest.mark.slow
def test_the_binder_is_one_setting() -> None:
    """In memory the same listeners reach the same totals."""
    assert repeated(flights("--limit", "3000", "--binder", "inmemory")) == 0
