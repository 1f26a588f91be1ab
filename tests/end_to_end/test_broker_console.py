"""``streamkit broker --console``: the console as a process beside the broker."""

import re
import signal
import socket
from pathlib import Path

import httpx
import pytest

from rocket_broker.settings.broker_settings import SMALL_STORE
from tests.end_to_end.broker_process import PATIENT, ServerProcess, running
from tests.ports import free_ports

PAGE_SECONDS = 60.0


@pytest.fixture(autouse=True)
def audit_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The console's audit log is in the directory of the test."""
    monkeypatch.setenv("STREAMKIT_CONSOLE_AUDIT_LOG", str(tmp_path / "audit.log"))


def settings(directory: Path, port: int) -> tuple[str, ...]:
    """Return the arguments of a broker on free ports with a name server of its own."""
    keys = SMALL_STORE | PATIENT | {"listenPort": str(port), "storePathRootDir": str(directory / "store")}
    file = directory / "broker.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return ("-c", str(file))


def page(url: str) -> str:
    """Return the console's page of brokers."""
    answer = httpx.get(f"{url}brokers", timeout=PAGE_SECONDS)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_the_console_starts_and_stops_with_the_broker(tmp_path: Path) -> None:
    """It shows the broker, and no longer listens when the command has ended."""
    _, port = free_ports()
    arguments = ("-p", str(port), "--name-server-port", "0", "--store", str(tmp_path / "store"), "--console", "0")
    with running("broker", *arguments, cwd=tmp_path) as broker:
        broker.address()
        url = broker.wait_for_output("The console is at ").rstrip().rpartition(" ")[2]
        assert "broker-a" in page(url)
        assert broker.signal(signal.SIGTERM) == 0
        assert broker.output[-1] == "Stopped.\n"
        console = httpx.URL(url)
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((console.host, console.port or 0))


def test_a_console_of_all_needs_a_password(tmp_path: Path) -> None:
    """As for `streamkit console`: its error is shown, and the broker is stopped in order."""
    _, port = free_ports()
    arguments = ("-p", str(port), "--name-server-port", "0", "--store", str(tmp_path / "store"))
    with running("broker", *arguments, "--console", "0.0.0.0:0", cwd=tmp_path) as broker:
        assert broker.wait() == 1
    log = "".join(broker.log)
    assert "other machines could use the console on 0.0.0.0 without a login" in log
    assert "Error: the console at 0.0.0.0:0 could not start" in log
    assert not (tmp_path / "store" / "abort").exists()
    assert "Traceback" not in log


def test_several_brokers_have_one_console(tmp_path: Path) -> None:
    """It is one of the processes that the command keeps running."""
    _, port = free_ports()
    arguments = (*settings(tmp_path, port), "--name-server-port", "0", "--processes", "1", "--console", "0", "--json")
    command = ServerProcess("broker", *arguments, cwd=tmp_path)
    try:
        url = command.cluster()["console"]
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
        assert "broker-a-0" in page(url)
        assert command.signal(signal.SIGTERM) == 0
    finally:
        command.end()
