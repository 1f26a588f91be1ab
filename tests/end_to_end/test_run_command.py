"""`streamkit run` with workers and reloading: processes, signals, kills, changed files."""

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.application.test_application_process import program, rest_of, until

pytestmark = pytest.mark.slow

PROGRAM = """
import asyncio
import os
from streamkit import StreamApplication
from streamkit.events import application_started

app = StreamApplication()
tasks = set()

@app.stream_listener("a")
async def handle(text: str) -> None:
    ballast = b"x" * int(app.environment.text("ballast", "0"))
    print("pid", os.getpid(), "got", text, flush=True)
    if text.startswith("slow"):
        await asyncio.sleep(float(app.environment.text("seconds", "0.3")))
        print("ended", flush=True)
    if text == "end":
        app.request_stop()

async def send(text):
    await app.bridge.asend("a-out", text)

@application_started.connect
def feed(sender):
    print("index", sender.environment.text("spring.cloud.stream.instance-index"), flush=True)
    for text in sender.environment.text("texts", "").split(","):
        if text:
            text = text.replace("PID", str(os.getpid()))
            tasks.add(asyncio.get_running_loop().create_task(send(text)))
"""

STREAM = "spring.cloud.stream"
SETTINGS = (
    f"--{STREAM}.default-binder=rocketmq",
    f"--{STREAM}.bindings.a.group=g",
    f"--{STREAM}.bindings.a-out.destination=topic",
    f"--{STREAM}.rocketmq.binder.embedded=always",
    f"--{STREAM}.rocketmq.binder.embedded-store=store",
)


@contextmanager
def running(
    directory: Path, *arguments: str, text: str = PROGRAM, options: tuple[str, ...] = ("--workers", "2")
) -> "Iterator[subprocess.Popen[str]]":
    """Run the application under its supervisor."""
    command = ("-m", "streamkit.cli", "run", *options, "shop", *SETTINGS, *arguments)
    with program(directory, *command, text=text) as process:
        yield process


def both_started(process: "subprocess.Popen[str]") -> str:
    """Return the output until both workers have started."""
    return until(process, "has started") + until(process, "has started")


def is_alive(pid: int) -> bool:
    """Return whether the process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def pids_of(output: str) -> set[int]:
    """Return the workers' process ids from the output."""
    return {int(pid) for pid in re.findall(r"pid (\d+)", output)}


def test_workers_share_a_broker_and_complete_their_calls(tmp_path: Path) -> None:
    """Each has its index; the first signal lets calls in progress end, and their messages are not redelivered."""
    with running(tmp_path, "--texts=slowPID", "--seconds=3") as process:
        output = both_started(process)
        if "got slow" not in output:
            output += until(process, "got slow")
        assert f"The workers share {STREAM}.rocketmq.binder.name-server=127.0.0.1:" in output
        assert set(re.findall(r"index (\d)", output)) == {"0", "1"}
        assert not re.search(r"INFO\W.*rocket_", output), "the broker and the client log nothing of their own"
        process.send_signal(signal.SIGTERM)
        rest = rest_of(process)
        begun = re.findall(r"got (slow\d+)", output + rest)
        assert len(begun) == (output + rest).count("ended") > 0
        assert process.returncode == 0
    with running(tmp_path, "--texts=end", options=("--workers", "1")) as process:
        output = rest_of(process)
        assert "got end" in output
        assert set(begun).isdisjoint(re.findall(r"got (slow\d+)", output))
        assert process.returncode == 0


def test_options_may_follow_the_name(tmp_path: Path) -> None:
    """`streamkit run shop --workers 1`: known options are not settings."""
    with running(tmp_path, "--texts=end", "--workers", "1", options=()) as process:
        output = rest_of(process)
    assert "The workers share" in output
    assert "got end" in output
    assert process.returncode == 0


def test_crashed_worker_is_restarted(tmp_path: Path) -> None:
    """After a pause; broker and other worker continue, and no message is lost."""
    with running(tmp_path, "--texts=1,2,3,4") as process:
        # A worker may get messages before it has told that it started, and one that ends then ends it all.
        output = both_started(process)
        if "got" not in output:
            output += until(process, "got")
        victim = pids_of(output).pop()
        os.kill(victim, signal.SIGKILL)
        output += until(process, "starting it again in")
        assert "ended with exit code 137: starting it again in 0.5 s" in output
        output += until(process, "has started")
        if "got 4" not in output:
            until(process, "got 4")
        process.send_signal(signal.SIGINT)
        rest_of(process)
        assert process.returncode == 0
    assert not is_alive(victim)


def test_worker_that_fails_to_start_ends_the_supervisor(tmp_path: Path) -> None:
    """With the first one's exit code and one error report."""
    text = "import os\nif 'STREAMKIT_SUPERVISOR_LINE' in os.environ:\n    raise SystemExit(7)\n" + PROGRAM
    with running(tmp_path, text=text) as process:
        output = rest_of(process)
    assert "could not start (exit code 7): stopping" in output
    assert process.returncode == 7


def test_wrong_settings_are_reported_before_workers_start(tmp_path: Path) -> None:
    """Once."""
    with running(tmp_path, f"--{STREAM}.bindings.a.groop=g") as process:
        output = rest_of(process)
    assert output.count("did you mean") == 1
    assert "Traceback" not in output
    assert process.returncode == 1


def test_second_signal_ends_the_workers_at_once(tmp_path: Path) -> None:
    """Without waiting for calls; all processes end, and the exit code has the signal."""
    with running(tmp_path, "--texts=slow", "--seconds=600", "--ballast=500000000") as process:
        workers = pids_of(until(process, "got slow"))
        process.send_signal(signal.SIGINT)
        until(process, "stopping; a second signal ends the process at once")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 128 + signal.SIGINT
        assert not any(map(is_alive, workers))


def test_workers_end_with_a_killed_supervisor(tmp_path: Path) -> None:
    """Their pipe closes, so they complete their calls and stop."""
    with running(tmp_path, "--texts=1,2,3,4,5,6,7,8") as process:
        both_started(process)
        process.kill()
        # The pipe closes when the last process that writes to it is gone.
        assert process.stdout is not None
        rest = process.stdout.read()
    assert rest.count("SIGTERM: stopping") == 2


def test_workers_are_restarted_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If new code cannot start, the first one is retried while the second continues; systemd is notified."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(60)
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with running(tmp_path) as process:
            both_started(process)
            assert systemd.recv(1000) == b"READY=1"
            (tmp_path / "shop.py").write_text("syntax error")
            process.send_signal(signal.SIGHUP)
            assert "restarting Worker 1" not in until(process, "the processes after it keep running with the old ones")
            assert re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=\d+", systemd.recv(1000))
            assert systemd.recv(1000) == b"READY=1"
            (tmp_path / "shop.py").write_text(PROGRAM)
            process.send_signal(signal.SIGHUP)
            output = until(process, "SIGHUP: every process was restarted")
            assert output.index("Worker 0 has started") < output.index("SIGHUP: restarting Worker 1")
            process.send_signal(signal.SIGTERM)
            rest_of(process)
            assert process.returncode == 0
            assert [systemd.recv(1000)[:9] for _ in range(3)] == [b"RELOADING", b"READY=1", b"STOPPING="]


def test_changed_file_reloads_the_application(tmp_path: Path) -> None:
    """With the new code; code that fails to import waits for the next change; the first signal ends it."""
    with running(tmp_path, "--texts=1", options=("--reload",)) as process:
        until(process, "got 1")
        shop = tmp_path / "shop.py"
        shop.write_text(PROGRAM.replace('"got"', '"received"'))
        assert "shop.py changed: starting again" in until(process, "received 1")
        shop.write_text("syntax error")
        until(process, "No process is left: waiting for a change of the files")
        shop.write_text(PROGRAM)
        until(process, "got 1")
        (tmp_path / "application.properties").write_text("spring.cloud.stream.bindings.a.destination=topic\n")
        assert "application.properties changed" in until(process, "got 1")
        process.send_signal(signal.SIGTERM)
        rest_of(process)
        assert process.returncode == 0


def test_application_without_bindings_is_warned_about(tmp_path: Path) -> None:
    """Without listeners, functions and bindings it is idle."""
    text = "from streamkit import StreamApplication\napp = StreamApplication()\n"
    with program(tmp_path, "-m", "streamkit.cli", "run", "shop", text=text) as process:
        until(process, "has neither listeners nor functions nor other bindings")
        process.send_signal(signal.SIGTERM)
        rest_of(process)
        assert process.returncode == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workers", "0"), "0 is not in the range"),
        (("--reload", "--reload-dir", "no"), "no directory 'no'"),
    ],
)
def test_invalid_options_are_reported(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    """Before anything is started."""
    with running(tmp_path, options=options) as process:
        output = rest_of(process)
    assert message in output
    assert process.returncode == 2
