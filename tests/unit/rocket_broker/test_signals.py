"""How signals end a server process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

STUBBORN = """
import asyncio
import os
import sys
from rocket_broker.process import signals

async def main():
    with signals.stop_on_signal(lambda: print("stopping", flush=True)):
        for signals.monotonic in (lambda: 0.0, lambda: 0.05):
            os.kill(os.getpid(), int(sys.argv[1]))
        signals.monotonic = lambda: 0.2
        await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_ends_a_server_that_does_not_stop(number: signal.Signals) -> None:
    """With the signal's exit code.

    The first signal only requests a stop, and one right after it is ignored. The process sends both itself and reports
    when, so that a busy machine cannot come between them.
    """
    with subprocess.Popen(
        [sys.executable, "-c", STUBBORN, str(int(number))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "stopping\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        process.send_signal(number)
        _, reported = process.communicate(timeout=60)
        assert reported == f"{number.name} again: ending at once\n"
        assert process.returncode == 128 + number
