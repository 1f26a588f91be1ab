"""The tutorial's files are written out and run."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from rocket_broker.pytest_plugin import RocketBroker
from tests.docs.pages import write_files

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
NAME_SERVER = "SPRING_CLOUD_STREAM_ROCKETMQ_BINDER_NAME_SERVER"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A directory with the tutorial's whole Python and properties files."""
    write_files("docs/tutorial.md", tmp_path)
    return tmp_path


def run(shop: Path, *arguments: str, settings: Sequence[tuple[str, str]] = ()) -> str:
    """Return the program's output; it must succeed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=shop,
        env={name: value for name, value in os.environ.items() if name != "COLUMNS"} | dict(settings),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_printed_files_are_those_of_the_text(shop: Path) -> None:
    """Each is printed once, under its name."""
    assert sorted(path.name for path in shop.iterdir()) == [
        "app.py",
        "application-prod.properties",
        "application.properties",
        "send.py",
        "test_app.py",
        "test_broker.py",
    ]


@pytest.mark.slow
def test_tutorials_tests_pass(shop: Path) -> None:
    """In virtual time and on a broker, within seconds."""
    assert "4 passed" in run(shop, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider")


def test_tutorials_settings_are_known(shop: Path) -> None:
    """The report prints what the page prints."""
    reported = run(shop, "-m", "streamkit.cli", "config", "report")
    assert reported in TUTORIAL.read_text()
    run(shop, "-m", "streamkit.cli", "config", "report", "--spring.profiles.active=prod")
    assert "billing" in run(shop, "-m", "streamkit.cli", "config", "explain", "orders")


@pytest.mark.slow
def test_tutorials_application_processes_an_order(shop: Path, rocket_broker: RocketBroker) -> None:
    """`streamkit run` and send.py on a broker; the application ends in order."""
    server = (NAME_SERVER, rocket_broker.name_server)
    with subprocess.Popen(
        [sys.executable, "-m", "streamkit.cli", "run", "app:app"],
        cwd=shop,
        env=os.environ | dict([server]),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            run(shop, "send.py", "o-1", "9.5", settings=[server])
            assert process.stdout is not None
            assert process.stdout.readline() == "charged 9.5 for o-1\n"
        finally:
            process.terminate()
        assert process.wait(20) == 0
