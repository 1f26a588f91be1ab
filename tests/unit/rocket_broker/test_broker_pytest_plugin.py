"""The pytest plugin: it starts brokers for tests and costs other tests nothing."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

USER_TESTS = """
import socket

def reachable(address):
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=60):
        return True

addresses = []

def test_one_broker(rocket_broker):
    assert reachable(rocket_broker.name_server) and reachable(rocket_broker.address)
    addresses.append(rocket_broker.address)

def test_it_is_gone_afterwards():
    host, port = addresses[0].split(":")
    with socket.socket() as probe:
        assert probe.connect_ex((host, int(port))) != 0

def test_several_with_settings(rocket_broker, rocket_broker_factory, tmp_path):
    other = rocket_broker_factory(tmp_path, brokerName="broker-b", autoCreateTopicEnable="false")
    assert len({rocket_broker.address, other.address, rocket_broker.name_server, other.name_server}) == 4
    other.stop()
    assert (tmp_path / "config").is_dir()

def test_failing_with_faults(rocket_broker_factory):
    assert not reachable(rocket_broker_factory(chaos="seed=7,duplicate=1%").address)
"""


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=cwd, env=environment
    )


def test_fixtures_start_real_brokers(tmp_path: Path) -> None:
    """One comes from the fixture, more from the factory, each with its own ports and store; all are removed."""
    (tmp_path / "test_user.py").write_text(USER_TESTS)
    command = (
        "-m",
        "pytest",
        "-q",
        "-p",
        "rocket_broker.pytest_plugin",
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
    )
    done = python(*command, cwd=tmp_path)
    assert "1 failed, 3 passed" in done.stdout, done.stdout + done.stderr
    assert "To repeat it: chaos='seed=7,duplicate=1%'" in done.stdout


def test_plugin_imports_nothing_heavy(tmp_path: Path) -> None:
    """Every pytest run of an environment with this package loads it."""
    code = (
        "import sys, pytest; before = set(sys.modules); import rocket_broker.pytest_plugin;"
        "print(sorted(set(sys.modules) - before))"
    )
    done = python("-c", code, cwd=tmp_path)
    assert done.stdout.strip() == "['rocket_broker', 'rocket_broker.pytest_plugin']"
