"""The package as users see it: names, imports, life cycle, errors."""

import ast
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import rocket_client
from rocket_client import (
    ClientSettings,
    ClientStateError,
    Producer,
    ProducerSettings,
    PushConsumer,
    PushConsumerSettings,
)
from rocket_client.connection.identity import client_id, new_instance_name
from rocket_client.core.state import Lifecycle, ServiceState
from rocket_client.errors import ClientError, SendError, SendTimeoutError
from rocket_remoting.wire.errors import ConnectError, RemotingError

NAME_SERVERS = "127.0.0.1:9876"


def test_exported_names_exist() -> None:
    """Each name in `__all__` can be imported, and `dir` shows it."""
    for name in rocket_client.__all__:
        assert getattr(rocket_client, name) is not None
    assert set(rocket_client.__all__) <= set(dir(rocket_client))
    with pytest.raises(AttributeError, match="nonsense"):
        rocket_client.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_stub_matches_the_exported_names() -> None:
    """Type checkers see the same names from the same modules."""
    stub = ast.parse(Path(rocket_client.__file__).with_suffix(".pyi").read_text())
    named = {
        alias.asname: node.module for node in ast.walk(stub) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert named == rocket_client._MODULE_OF  # type: ignore[attr-defined]
    assert sorted(filter(None, named)) == rocket_client.__all__


def test_package_imports_its_modules_lazily() -> None:
    """Scripts that use the blocking client do not load the other."""
    code = "import sys, rocket_client; print([name for name in sys.modules if name.startswith('rocket_')])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "['rocket_client']"


def test_client_id_has_apaches_format() -> None:
    """Address, instance name and unit name."""
    settings = ClientSettings(name_servers=NAME_SERVERS, client_ip="10.0.0.7", unit_name="unit")
    assert client_id(settings, "one") == "10.0.0.7@one@unit"
    assert new_instance_name() != new_instance_name()


def test_lifecycle_can_be_passed_through_once() -> None:
    """No second start, no restart after the end, no use before the start."""
    life = Lifecycle("producer")
    with pytest.raises(ClientStateError, match="not started: await start"):
        life.require_running()
    life.begin()
    assert life.state is ServiceState.START_FAILED
    life.succeed()
    life.require_running()
    with pytest.raises(ClientStateError, match="it can be started once"):
        life.begin()
    assert life.end()
    assert not life.end()
    with pytest.raises(ClientStateError, match="shut down: make a new one"):
        life.require_running()


@pytest.mark.parametrize("group", ["", "a b", "x" * 256, "DEFAULT_PRODUCER"])
def test_illegal_producer_groups_are_refused(group: str) -> None:
    """Before anything is started."""
    with pytest.raises(ValueError, match="group"):
        Producer(group, ProducerSettings(name_servers=NAME_SERVERS))


def test_default_consumer_group_is_refused() -> None:
    """Every consumer needs its own group name."""
    with pytest.raises(ValueError, match="DEFAULT_CONSUMER"):
        PushConsumer("DEFAULT_CONSUMER", PushConsumerSettings(name_servers=NAME_SERVERS))


def test_send_error_lists_every_attempt() -> None:
    """Brokers and causes in parallel, and the number of attempts."""
    causes = [ConnectError("10.0.0.1:10911", "refused"), ConnectError("10.0.0.2:10911", "refused")]
    error = SendError("orders", ["broker-a", "broker-b"], causes)
    assert error.attempts == 2
    assert "broker-b: cannot connect to 10.0.0.2:10911: refused" in str(error)
    assert isinstance(error, ClientError)
    assert isinstance(error, RemotingError)


def test_timeout_is_a_send_error() -> None:
    """One `except SendError` catches all."""
    error = SendTimeoutError("orders", [], [], 3.0)
    assert isinstance(error, SendError)
    assert "in 3 s (nothing was sent)" in str(error)


def test_results_travel_between_processes() -> None:
    """Settings are pickled into workers."""
    settings = PushConsumerSettings(name_servers=NAME_SERVERS)
    assert pickle.loads(pickle.dumps(settings)) == settings
