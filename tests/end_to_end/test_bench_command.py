"""`streamkit bench` on the binder in memory and on a RocketMQ broker."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rocket_broker.threaded_broker import ThreadedBroker
from streamkit.cli.bench import bench


def run(*arguments: str) -> tuple[int, dict[str, object]]:
    """Run the command without warm-up; return its exit status and the object that it prints."""
    done = CliRunner(catch_exceptions=False).invoke(bench, ["--warm-up", "0", "--json", *arguments])
    return done.exit_code, json.loads(done.stdout.splitlines()[-1])


def test_load_in_memory_is_received_whole() -> None:
    status, verdict = run("--binder", "inmemory", "--messages", "100", "--senders", "8")
    assert status == 0
    assert (verdict["sent"], verdict["received"], verdict["lost"]) == (100, 100, 0)
    assert verdict["disordered"] is None


def test_ordered_load_and_refused_sends_on_a_broker() -> None:
    """The second load has the group and topic of the first one, whose messages it does not receive again."""
    with ThreadedBroker() as broker:
        server = f"--spring.cloud.stream.rocketmq.binder.name-server={broker.name_server}"
        status, verdict = run("--binder", "rocketmq", "--messages", "60", "--senders", "6", "--ordered", server)
        assert status == 0, verdict
        assert (verdict["received"], verdict["disordered"], verdict["foreign"]) == (60, 0, 0)
        largest = 4 * 1024 * 1024
        status, verdict = run(
            *("--binder", "rocketmq", "--messages", "2", "--senders", "2", "--size", str(largest + 1), server)
        )
        assert status == 1
        assert (verdict["acknowledged"], verdict["foreign"]) == (0, 0)
        assert sum(verdict["failures"].values()) == 2  # type: ignore[attr-defined]


def test_rate_paces_the_load_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    """What was sent until then is received and judged."""
    command = [sys.executable, "-m", "streamkit.cli", "bench", "--binder", "inmemory", "--rate", "50"]
    process = subprocess.Popen(
        [*command, "--seconds", "600", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=os.environ | {"TERM": "dumb"},
    )
    with process:
        assert process.stderr is not None
        while b"sending" not in (line := process.stderr.readline()):
            assert line, "the load has not begun"
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    verdict = json.loads(output)
    assert verdict["was_interrupted"]
    assert verdict["received"] == verdict["acknowledged"] <= 3000
    assert process.returncode == (0 if verdict["acknowledged"] else 1)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["extra"], "'extra' is not a setting"),
        (["--bindr", "kafka"], "Did you mean '--binder'?"),
        (["--size", "23"], "23 is not in the range"),
        (["--binder", "kafak"], "kafak"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], error: str) -> None:
    done = CliRunner().invoke(bench, arguments)
    assert done.exit_code != 0
    assert error in done.output
