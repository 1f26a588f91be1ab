"""Projects made by `streamkit new` work without changes."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streamkit.cli.new import new

ROOT = Path(__file__).parents[4]


def make(*arguments: str | Path) -> Result:
    """Run the command."""
    return CliRunner().invoke(new, [str(argument) for argument in arguments])


def made(directory: Path, *arguments: str) -> Path:
    """Make a project in a directory and return the directory."""
    result = make(*arguments, "--directory", directory)
    assert result.exit_code == 0, result.output
    return directory


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments in the project."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def run_tests(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the project's tests."""
    return run(project, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("binder", ["rocketmq", "kafka", "inmemory"])
def test_new_application_passes_its_tests(tmp_path: Path, binder: str) -> None:
    """On each binder; all its settings are known and have an effect."""
    shop = made(tmp_path / "shop", "my-shop", "--on", binder)

    tested = run_tests(shop)
    report = run(shop, "-m", "streamkit.cli", "config", "report")

    assert "2 passed" in tested.stdout, tested.stdout + tested.stderr
    assert report.returncode == 0, report.stdout + report.stderr
    assert re.search(r"^0 wrong, \d+ honoured$", report.stdout, re.MULTILINE), report.stdout
    assert f"default-binder={binder}" in (shop / "application.properties").read_text()


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["shop"], ["streamkit-messaging"]),
        (["shop", "--on", "kafka"], ["streamkit-messaging[kafka]"]),
        (["shop", "--binder"], ["msgspec>=0.19", "streamkit-messaging"]),
    ],
)
def test_new_project_depends_on_the_distribution(tmp_path: Path, arguments: list[str], needed: list[str]) -> None:
    """PyPI's `streamkit` is another project."""
    project = tomllib.loads((made(tmp_path / "shop", *arguments) / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == needed


def test_new_application_uses_rocketmq_by_default(tmp_path: Path) -> None:
    """It includes a program that sends, which would reach nothing in memory."""
    shop = made(tmp_path / "shop", "shop")
    alone = made(tmp_path / "alone", "alone", "--on", "inmemory")

    assert "default-binder=rocketmq" in (shop / "application.properties").read_text()
    assert (shop / "shop" / "send.py").exists()
    assert ".streamkit/" in (shop / ".gitignore").read_text()
    assert not (alone / "alone" / "send.py").exists()


@pytest.mark.slow
def test_new_binder_passes_the_contract_suite(tmp_path: Path) -> None:
    """Without being installed; the report lists what it refuses."""
    project = made(tmp_path / "acme", "--binder", "acme-mq")

    tested = run_tests(project, "--contract-report=page.md")

    assert tested.returncode == 0, tested.stdout + tested.stderr
    page = (project / "page.md").read_text()
    assert "| Messages of one key go to one partition | refused: partition |" in page
    assert "| Every group receives every message | yes |" in page


AT_ONCE = """
    @case
    async def test_what_is_asked_for_at_once_comes_at_once(self, s: Scenario) -> None:
        topic, calls = await s.topic(), s.recorder("calls")

        async def requeue(payload: str) -> None:
            calls.add(payload)
            if len(calls.items) == 1:
                raise Requeue(after=timedelta(0))

        await s.consume(topic, s.name("group"), requeue)
        await s.send(topic, "x")
        await calls.wait(2)
        assert calls.pauses[0] <= s.environment.slack
"""


@pytest.mark.slow
def test_new_binder_redelivers_at_once_for_a_zero_pause(tmp_path: Path) -> None:
    """Zero is distinguished from an unspecified pause."""
    project = made(tmp_path / "acme", "acme", "--binder")
    suite = project / "tests" / "test_acme_contract.py"
    imports = (
        "from datetime import timedelta\n"
        "from streamkit import Requeue\n"
        "from streamkit.testing.contract.scenario import Scenario, case\n"
    )
    suite.write_text(imports + suite.read_text() + AT_ONCE)

    tested = run_tests(project, "-k", "comes_at_once")

    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.slow
def test_binder_that_breaks_the_contract_fails_the_suite(tmp_path: Path) -> None:
    """One that drops rejected messages fails the dead letter cases."""
    project = made(tmp_path / "acme", "acme", "--binder")
    consumer = project / "binders" / "acme" / "consumer.py"
    broken, times = re.subn(r"self\._hub\.topic\(f\"dead.*", "pass", consumer.read_text())
    assert times == 1
    consumer.write_text(broken)

    tested = run_tests(project, "-x", "-k", "dead_letter")

    assert tested.returncode == 1, tested.stdout + tested.stderr
    assert "AssertionError" in tested.stdout or "TimeoutError" in tested.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["My Shop"], "is not a valid project name"),
        (["json"], "choose another name"),
        (["class"], "choose another name"),
        (["acme", "--binder", "--on", "kafka"], "--on and --binder exclude each other"),
        (["rocketmq", "--binder"], "streamkit new NAME --on rocketmq"),
        (["shop", "--binder", "kafka"], "streamkit new shop --on kafka"),
        (["shop", "--on", "rabbit"], "'rocketmq', 'kafka', 'inmemory'"),
    ],
)
def test_invalid_project_is_reported(arguments: list[str], message: str, tmp_path: Path) -> None:
    """Before anything is written."""
    result = make(*arguments, "--directory", tmp_path / "made")

    assert result.exit_code != 0
    assert message in result.output
    assert not (tmp_path / "made").exists()


def test_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    """With its path and the reason, and without a traceback."""
    (tmp_path / "file").touch()
    result = make("shop", "--directory", tmp_path / "file" / "shop")
    assert result.exit_code == 1
    assert result.output == (
        f"Error: cannot write {tmp_path / 'file' / 'shop'}: Not a directory; choose another --directory\n"
    )


def test_directory_that_cannot_be_looked_at_is_an_error(tmp_path: Path) -> None:
    """Such as one whose name is too long."""
    result = make("shop", "--directory", tmp_path / ("x" * 300))
    assert result.exit_code == 1
    assert result.output.endswith("xxx: File name too long; choose another --directory\n")


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """A directory that is not empty is left as it is."""
    (tmp_path / "mine.txt").write_text("mine")

    result = make("shop", "--directory", tmp_path)

    assert "exists and is not empty" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
