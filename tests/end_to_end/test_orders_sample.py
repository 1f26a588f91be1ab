"""The book's order and stock sample, as a user starts it: `python -m samples.orders`."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_stock_is_correct_although_the_shop_is_killed_twice() -> None:
    """A committed transaction without an end is delivered, an uncommitted one never; both by the broker's check."""
    command = [sys.executable, "-m", "samples.orders"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    assert "The shop died (2)" in text
    assert "100 in stock, 45 in the order book, 55 left" in text
