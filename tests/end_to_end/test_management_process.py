"""The management endpoints of a process under slow and hostile clients, until SIGTERM."""

import re
import signal
import socket
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from streamkit.management.connection import ConnectionLimits
from tests.unit.application.test_application_process import program, rest_of, until

pytestmark = pytest.mark.slow

POST = b"POST /actuator/bindings/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HALVES = (
    b"",
    b"GET /actuator/health HTTP/1.1\r\nHost: loc",
    POST + b"Content-Length: 20\r\n\r\n{",
    POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
    POST + b"Content-Length: 400000000\r\n\r\n{",
    b"GET /actuator/bindings HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20,
)
SETTINGS = (
    "--management.server.port=0",
    "--management.endpoints.web.exposure.include=*",
    "--seconds=1000000",
)


def test_slow_clients_block_neither_probes_nor_the_stop(tmp_path: Path) -> None:
    """With twice the maximum of idle connections a probe is answered, and SIGTERM stops in order."""
    command = (
        "-m",
        "streamkit.cli",
        "run",
        "shop",
        "--spring.lifecycle.timeout-per-shutdown-phase=1s",
        *SETTINGS,
    )
    with program(tmp_path, *command) as process, ExitStack() as slow:
        reported = until(process, "Started: ")
        url = httpx.URL(re.findall(r"Management endpoints at (\S+):", reported)[0])
        for number in range(2 * ConnectionLimits().connections):
            stranger = slow.enter_context(socket.create_connection((url.host, url.port or 0)))
            stranger.sendall(HALVES[number % len(HALVES)])
        with httpx.Client(base_url=url, timeout=60) as client:
            assert client.get("/health").json()["status"] == "UP"
            stop, foreign = {"state": "STOPPED"}, {"origin": "https://evil.example"}
            assert client.post("/bindings/a", json=stop, headers=foreign).status_code == 403
            assert client.get("/bindings/a").json()["state"] == "running"
        process.send_signal(signal.SIGTERM)
        rest = rest_of(process)
        assert process.wait() == 0
    assert "Traceback" not in rest
    assert "ERROR" not in rest
