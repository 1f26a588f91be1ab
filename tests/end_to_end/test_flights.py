"""The flights sample with listeners alone, as a user starts it: `python -m samples.flights`."""

import asyncio
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from samples.flights.feeder import LANE_LENGTH, Feeder
from streamkit import Message

ROOT = Path(__file__).parents[2]


def flights(*arguments: str) -> str:
    """Return the demo's output after a successful end."""
    command = [sys.executable, "-m", "samples.flights", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def repeated(output: str) -> int:
    """Return how many duplicates the demo says it left out."""
    found = re.search(r"([\d,]+)\s+repeated", output)
    assert found, output
    return int(found[1].replace(",", ""))


@pytest.mark.slow
def test_each_flight_arrives_once_and_in_order_without_disturbance() -> None:
    """The demo fails on a duplicate, or a flight before an earlier one of its aircraft."""
    output = flights("--limit", "6000")
    assert repeated(output) == 0
    assert "6,000 flights through two topics" in output.replace("\n", " ")


@pytest.mark.slow
def test_totals_are_reached_although_the_broker_is_killed(tmp_path: Path) -> None:
    """Every acknowledged flight arrives at least once; the board counts each row once."""
    flights("--limit", "6000", "--kill-broker", "--store", str(tmp_path))
    log = (tmp_path / "broker.log").read_text()
    assert "the broker before was killed" in log


@pytest.mark.slow
def test_binder_is_selected_by_one_setting() -> None:
    """In memory the same listeners reach the same totals."""
    assert repeated(flights("--limit", "3000", "--binder", "inmemory")) == 0


@dataclass(frozen=True, slots=True)
class Row:
    """The part of a flight that the feeder reads."""

    number: int
    aircraft: str


def test_aircraft_are_fed_at_a_similar_pace() -> None:
    """Consumers that read by event time rely on it: lanes are at most so many rows apart."""

    async def main() -> None:
        sent: list[int] = []

        async def send(message: Message[object]) -> None:
            row = message.payload
            assert isinstance(row, Row)
            if row.aircraft == "slow":
                await asyncio.Event().wait()
            sent.append(row.number)

        rows = [Row(number, ("slow", "fast")[number % 2]) for number in range(10 * LANE_LENGTH)]
        feeding = asyncio.create_task(Feeder[Row](send, lead=len(rows), resends=False).feed(rows))
        for _ in range(4 * len(rows)):
            await asyncio.sleep(0)
        feeding.cancel()
        # One slow row is being sent, a lane of them waits, and the feeder holds the next.
        assert len(sent) == LANE_LENGTH + 1

    asyncio.run(main())
