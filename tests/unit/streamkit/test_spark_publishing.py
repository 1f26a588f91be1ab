"""Applications publish their bindings for Spark's processes."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from streamkit import StreamApplication
from streamkit.binder.spark_format import SparkFormat
from streamkit.config.environment import Environment
from streamkit.errors import ConfigurationError
from streamkit.spark.publishing import published, published_channels


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of published applications."""
    monkeypatch.setenv("STREAMKIT_CACHE", str(tmp_path))
    return tmp_path / "applications"


@pytest.fixture
def app() -> StreamApplication:
    """Return an application with one RocketMQ binding; it need not run."""
    return StreamApplication(
        config_location="optional:/none",
        properties={
            "spring.application.name": "sales/eu",
            "spring.cloud.stream.default-binder": "rocketmq",
            "spring.cloud.stream.rocketmq.binder.name-server": "10.0.0.1:9876",
            "spring.cloud.stream.bindings.orders.destination": "orders-v2",
        },
    )


def test_bindings_are_found_by_the_applications_name(app: StreamApplication, directory: Path) -> None:
    """In a file that only the user can read and that is removed when the block ends."""
    with published(app) as name:
        channel = published_channels("sales/eu")["orders"]
        assert published_channels(name).keys() == {"orders"}
        (file,) = directory.iterdir()
        assert (directory.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    assert channel.source.format is not None
    assert channel.source.format.options["nameServer"] == "10.0.0.1:9876"
    assert channel.sink.format is not None
    assert channel.sink.format.options["topic"] == "orders-v2"
    assert list(directory.iterdir()) == []


def test_files_of_a_killed_process_are_removed(app: StreamApplication, directory: Path) -> None:
    """Its bindings may be outdated."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with published(app):
        left = directory / f"sales%2Feu@{ended.pid}"
        left.write_bytes(b"")
        (directory / "sales%2Feu@1~").touch()  # none of ours
        assert published_channels("sales/eu").keys() == {"orders"}
        assert not left.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process does not tell when it started")
def test_files_of_a_killed_process_are_removed_after_its_pid_is_reused(app: StreamApplication, directory: Path) -> None:
    """The new process has another start time."""
    with (
        published(app) as name,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other,
    ):
        left = directory / f"sales%2Feu@{other.pid}"
        left.write_bytes((directory / name).read_bytes())
        assert published_channels("sales/eu").keys() == {"orders"}
        assert not left.exists()
        other.communicate(b"\n")


PUBLISH = """
import sys
from streamkit import StreamApplication
from streamkit.spark.publishing import published

with published(StreamApplication(config_location="optional:/none", args=sys.argv[1:])) as name:
    print(name, flush=True)
    sys.stdin.read()
"""


def test_applications_with_one_name_are_an_error(app: StreamApplication, directory: Path) -> None:
    """It lists their processes, since none can be chosen."""
    arguments = [sys.executable, "-c", PUBLISH, "--spring.application.name=sales/eu"]
    with (
        published(app) as name,
        subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other,
    ):
        assert other.stdout is not None
        assert other.stdout.readline() == f"sales%2Feu@{other.pid}\n"
        with pytest.raises(ConfigurationError, match=f"several processes publish.*{name}"):
            published_channels("sales/eu")
        assert published_channels(name).keys() == {"orders"}
        other.communicate("")
    with pytest.raises(ConfigurationError, match=r"no running application 'sales/eu'.*published: none"):
        published_channels("sales/eu")


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_directory_open_to_other_users_is_refused(app: StreamApplication, directory: Path) -> None:
    """Its files are unpickled."""
    directory.mkdir(mode=0o777)
    directory.chmod(0o777)
    with pytest.raises(ConfigurationError, match="must belong to this user alone"), published(app):
        pass


def test_portable_environment_omits_other_variables() -> None:
    """It keeps settings and the variables that settings refer to."""
    environment = Environment.load(
        config_location="optional:/none",
        variables={"SPRING_PROFILES_ACTIVE": "x", "BROKER": "10.0.0.2:9876", "AWS_SECRET": "s"},
        overrides={"address": "${BROKER}"},
    )
    assert environment.text("address") == "10.0.0.2:9876"
    copied: Environment = pickle.loads(pickle.dumps(environment.portable()))
    assert copied.text("address") == "10.0.0.2:9876"
    assert (copied.text("SPRING_PROFILES_ACTIVE"), copied.text("AWS_SECRET")) == ("x", None)


def test_query_options_may_override_the_start_only() -> None:
    """Options that lead to the destination may not be overridden, in whatever case."""
    found = SparkFormat("f", {"subscribe": "t"}, {"startingOffsets": "latest"})
    assert found.options_with({"tag": "a"}, "in") == {
        "subscribe": "t",
        "startingOffsets": "latest",
        "tag": "a",
    }
    assert found.options_with({"STARTINGTIMESTAMP": "1"}, "in") == {
        "subscribe": "t",
        "STARTINGTIMESTAMP": "1",
    }
    with pytest.raises(ConfigurationError, match="option 'SUBSCRIBE' is given for binding 'in'"):
        found.options_with({"SUBSCRIBE": "u"}, "in")
