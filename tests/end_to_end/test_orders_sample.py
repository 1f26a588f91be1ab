"""The book's order and stock, as a user starts it: `python -m samples.orders`."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_stock_is_right_although_the_shop_dies_twice() -> None:
    """Committed and unsaid is delivered, uncommitted never is; both by the broker's question."""
    command = [sys.executable, "-m", "samples.orders"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    assert "The shop died (2)" in text
    assert "100 in stock, 45 in the order book, 55 left" in text
