"""The pipeline sample on Spark, as a user starts it: `python -m samples.pipeline`."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from samples.pipeline.__main__ import main
from samples.pipeline.process_tree import descendants
from tests.end_to_end.broker_process import ROOT
from tests.spark.java import SHORT_LIVED

COMMAND = [sys.executable, "-m", "samples.pipeline", "--flights", "2000"]
ENVIRONMENT = os.environ | {"JAVA_TOOL_OPTIONS": SHORT_LIVED}
SECONDS = 550.0
POLL_SECONDS = 0.2


def pipeline(*arguments: str) -> str:
    """Return the demo's output after a successful end: it compares every total with pandas', and counts stored rows."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert "each is what pandas computes, and stored once" in said
    return said


@pytest.mark.promise
@pytest.mark.timeout(600)
def test_totals_are_correct_after_kills(tmp_path: Path) -> None:
    """Driver, worker and broker are killed at random; each total comes, once, and is drawn."""
    victims = ["driver", "worker", "broker"]
    kills = [argument for victim in victims for argument in ("--kill", victim)]
    picture = tmp_path / "flights.png"
    said = pipeline("--picture", str(picture), *kills)
    for victim in victims:
        assert f"{victim} killed when Spark had read" in said
    assert "Hours of departure delay a day" in said
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_victims_of_clusters_need_one() -> None:
    """Without a cluster there is no executor beside the driver's process."""
    done = CliRunner().invoke(main, ["--kill", "executor"])
    assert done.exit_code == 2
    assert "--kill executor needs --cluster" in done.output


def test_interrupt_leaves_no_process(tmp_path: Path) -> None:
    """Ctrl-C ends the broker, Spark's driver and the JVM."""
    demo = subprocess.Popen(
        COMMAND, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    deadline = time.monotonic() + SECONDS
    started: dict[int, str] = {}
    while not any("pyspark-shell" in command for command in started.values()):
        assert demo.poll() is None, demo.communicate()
        assert time.monotonic() < deadline, started
        time.sleep(POLL_SECONDS)
        started = asyncio.run(descendants(demo.pid))
    demo.send_signal(signal.SIGINT)
    said, _ = demo.communicate(timeout=SECONDS)
    assert demo.returncode == 1, said
    while left := [process for process in started if Path(f"/proc/{process}/cmdline").exists()]:
        assert time.monotonic() < deadline, [started[process] for process in left]
        time.sleep(POLL_SECONDS)
