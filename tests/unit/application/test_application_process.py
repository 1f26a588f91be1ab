"""`app.run()` and `streamkit run` in separate processes: signals and exit codes."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

PROGRAM = """
import asyncio
import time
from streamkit import StreamApplication
from streamkit.events import application_started

app = StreamApplication()
tasks = set()

@app.stream_listener("a")
async def slow(seconds: float) -> None:
    print("begun", flush=True)
    while seconds < 0:
        pass
    await asyncio.sleep(seconds)
    print("ended", flush=True)
    if seconds == 0:
        app.request_stop()

@application_started.connect
def feed(sender):
    tasks.add(asyncio.get_running_loop().create_task(app.bridge.asend("topic", sender.environment.text("seconds"))))

if __name__ == "__main__":
    app.run()
    print("stopped", flush=True)
"""

# As `timeout` sends a signal: to the process and to its group. Says when, so that a machine with much to do cannot
# come between them.
SIGNALLED = PROGRAM.replace("import asyncio\n", "import asyncio, os, signal\n").replace(
    '    print("begun", flush=True)\n',
    """
    from streamkit.processes import signals
    for signals.monotonic in (lambda: 0.0, lambda: 0.05):
        os.kill(os.getpid(), signal.SIGINT)
    signals.monotonic = lambda: 0.2
""",
)

SETTINGS = """
spring.cloud.stream.default-binder=inmemory
spring.cloud.stream.bindings.a.destination=topic
"""


@contextmanager
def program(directory: Path, *arguments: str, text: str = PROGRAM) -> "Iterator[subprocess.Popen[str]]":
    """Start a process in a directory with the program and its settings."""
    (directory / "shop.py").write_text(text)
    (directory / "application.properties").write_text(SETTINGS)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@contextmanager
def hang_ups(meaning: signal.Handlers) -> Iterator[None]:
    """Give processes started in the block this disposition of SIGHUP, whatever the tests inherited."""
    former = signal.signal(signal.SIGHUP, meaning)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, former)


def until(process: "subprocess.Popen[str]", text: str) -> str:
    """Return the output up to the line that contains `text`."""
    assert process.stdout is not None
    read = []
    for line in process.stdout:
        read.append(line)
        if text in line:
            return "".join(read)
    raise AssertionError(f"{text!r} never came:\n{''.join(read)}")


def rest_of(process: "subprocess.Popen[str]") -> str:
    """Return the output after what `until` has read, once the process has ended.

    `communicate` would miss lines that `until` has buffered.
    """
    assert process.stdout is not None
    rest = process.stdout.read()
    process.wait(60)
    return rest


def test_first_signal_completes_the_call_in_progress(tmp_path: Path) -> None:
    """`run` returns after the listener has, with exit code 0."""
    with program(tmp_path, "shop.py", "--seconds=0.3") as process:
        until(process, "begun")
        process.send_signal(signal.SIGTERM)
        assert "ended" in until(process, "stopped")
        assert process.wait(60) == 0


def test_second_signal_ends_at_once(tmp_path: Path) -> None:
    """Without waiting for the listener. A signal right after the first counts as the same."""
    with program(tmp_path, "shop.py", "--seconds=60", text=SIGNALLED) as process:
        until(process, "a second signal ends the process at once")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 128 + signal.SIGINT


def test_closed_terminal_stops_in_order(tmp_path: Path) -> None:
    """SIGHUP may be the first signal but never the second: shell and system may both send it."""
    text = PROGRAM.replace("import asyncio\n", "import asyncio, os\n")
    text = text.replace(
        "    await asyncio.sleep(seconds)", "    while not os.path.exists('go on'): await asyncio.sleep(0)"
    )
    with hang_ups(signal.SIG_DFL), program(tmp_path, "shop.py", "--seconds=1", text=text) as process:
        until(process, "begun")
        process.send_signal(signal.SIGHUP)
        until(process, "SIGHUP: stopping")
        process.send_signal(signal.SIGHUP)
        (tmp_path / "go on").touch()
        assert "ended" in until(process, "stopped")
        assert process.wait(60) == 0


def test_closed_terminal_is_ignored_under_nohup(tmp_path: Path) -> None:
    """An inherited ignored SIGHUP stays ignored."""
    with hang_ups(signal.SIG_IGN), program(tmp_path, "shop.py", "--seconds=0.3") as process:
        until(process, "begun")
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        output = until(process, "stopped")
        assert "SIGTERM: stopping" in output
        assert "SIGHUP" not in output
        assert process.wait(60) == 0


def test_systemd_is_notified_of_start_and_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Type=notify requires; without the socket nothing is sent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(60)
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with program(tmp_path, "shop.py", "--seconds=60") as process:
            assert systemd.recv(1000) == b"READY=1"
            process.send_signal(signal.SIGTERM)
            assert systemd.recv(1000) == b"STOPPING=1"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_ends_a_blocked_loop(tmp_path: Path, number: signal.Signals) -> None:
    """An `async def` listener that never awaits is named in the log and cannot keep the process alive."""
    with program(tmp_path, "shop.py", "--seconds=-1") as process:
        warning = until(process, "loop is blocked by")
        assert f"{tmp_path}/shop.py:" in warning
        assert " in slow. An `async def` listener that works without awaiting" in warning
        process.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        process.send_signal(number)
        assert process.wait(60) == 128 + number
        assert f"{number.name} again: ending at once" in rest_of(process)


def test_listener_that_never_returns_does_not_block_the_exit(tmp_path: Path) -> None:
    """The thread of a `def` listener is abandoned after the shutdown timeout."""
    text = PROGRAM.replace("async def slow", "def slow").replace("await asyncio.sleep", "time.sleep")
    arguments = ("shop.py", "--seconds=60", "--spring.lifecycle.timeout-per-shutdown-phase=1ms")
    with program(tmp_path, *arguments, text=text) as process:
        until(process, "begun")
        process.send_signal(signal.SIGTERM)
        assert "1 call(s) unfinished" in until(process, "stopped\n")
        assert process.wait(60) == 0


def test_startup_error_is_reported_without_a_traceback(tmp_path: Path) -> None:
    """`app.run()` exits with code 1 and prints file, line, key and the nearest key."""
    with program(tmp_path, "shop.py", "--spring.cloud.stream.bindings.a.groop=g") as process:
        output = rest_of(process)
    assert output == (
        "Error: 1 setting is wrong:\n"
        "  - argument --spring.cloud.stream.bindings.a.groop: unknown setting "
        "spring.cloud.stream.bindings.a.groop; did you mean spring.cloud.stream.bindings.a.group?\n"
    )
    assert process.returncode == 1


def test_application_may_stop_itself(tmp_path: Path) -> None:
    """request_stop ends `run`; a listener may call it."""
    with program(tmp_path, "shop.py", "--seconds=0") as process:
        assert "ended" in until(process, "stopped")
        assert process.wait(60) == 0


def test_streamkit_run_passes_settings(tmp_path: Path) -> None:
    """Arguments after the application's name are settings, and the log can be JSON."""
    with program(tmp_path, "-m", "streamkit.cli", "run", "--log-format=json", "shop", "--seconds=0") as process:
        lines = [json.loads(line) for line in until(process, "ended").splitlines() if line.startswith("{")]
        started = next(line for line in lines if "bindings" in line)
        assert started["message"].startswith("Started: application (default); inmemory: input a (")
        assert started["bindings"][0]["destination"] == "topic"
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nope"], "there is no module 'nope'"),
        (["shop:application"], "module 'shop' has no 'application'; it has shop:app"),
        (["string"], "module 'string' has no 'app', nor any other StreamApplication"),
        (["shop:tasks"], "shop:tasks is a set, not a StreamApplication; it has shop:app"),
        (["shop", "settings"], "'settings' is not a setting"),
        (["shop", "--spring.cloud.stream.bindings.a.groop=g"], "did you mean"),
    ],
)
def test_streamkit_run_reports_errors(tmp_path: Path, arguments: list[str], text: str) -> None:
    """Without a traceback, and with an exit code."""
    with program(tmp_path, "-m", "streamkit.cli", "run", *arguments) as process:
        output = rest_of(process)
        assert text in output
        assert "Traceback" not in output
        assert process.returncode in (1, 2)
