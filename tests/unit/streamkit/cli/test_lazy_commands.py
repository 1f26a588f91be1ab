"""The command ``streamkit`` lists the installed commands and imports only the one that runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Install a distribution with two commands: one reports its import, the other cannot be imported."""
    (tmp_path / "zoo_tools.py").write_text(
        "import click\n"
        "print('zoo_tools is imported')\n"
        "@click.command()\n"
        "@click.option('--kind')\n"
        "def feed(kind):\n"
        '    """Feed the animals. Not after midnight.\n\n    At all."""\n'
        "    print('fed', kind)\n"
    )
    info = tmp_path / "zoo-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zoo\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[streamkit.commands]\nfeed = zoo_tools:feed\nbroken = zoo_missing:run\nmodule = zoo_tools:click\n"
    )
    return tmp_path


def streamkit(*arguments: str, path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(path), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", "streamkit.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=path,
        env=os.environ | {"PYTHONPATH": paths} | environment,
    )


def test_help_lists_commands_without_importing_them(installed: Path) -> None:
    """Each with its first sentence; the cost does not depend on what is installed."""
    done = streamkit("--help", path=installed)
    assert done.returncode == 0
    assert re.search(r"feed +Feed the animals\n", done.stdout)
    assert "broken" in done.stdout
    assert "imported" not in done.stdout


def test_command_runs_with_its_arguments(installed: Path) -> None:
    """The entry point is imported and gets what follows its name."""
    done = streamkit("feed", "--kind", "tiger", path=installed)
    assert done.stdout == "zoo_tools is imported\nfed tiger\n"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "broken",
            "the command broken (zoo_missing:run of package zoo) cannot be loaded: No module named 'zoo_missing'",
        ),
        ("module", "zoo_tools:click of package zoo is not a click command"),
        ("fed", "No such command 'fed'; did you mean 'feed'?"),
        ("eat", "No such command 'eat'."),
    ],
)
def test_command_that_cannot_be_imported_is_reported(installed: Path, command: str, message: str) -> None:
    """With the entry point and the reason, without a traceback."""
    done = streamkit(command, path=installed)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(installed: Path, shell: str) -> None:
    """The script calls streamkit for the words."""
    done = streamkit("completion", shell, path=installed)
    assert done.returncode == 0
    assert f"_STREAMKIT_COMPLETE={shell}_complete" in done.stdout


def test_completion_does_not_import_the_command(installed: Path) -> None:
    """The shell gets names and texts as quickly as help does."""
    done = streamkit(path=installed, _STREAMKIT_COMPLETE="zsh_complete", COMP_WORDS="streamkit fe", COMP_CWORD="1")
    assert done.stdout.splitlines() == ["plain", "feed", "Feed the animals"]


def test_version_is_that_of_the_installed_distribution(installed: Path) -> None:
    """It is found by its commands, whatever the name of the distribution is."""
    assert re.fullmatch(r"streamkit \d+\.\d+\.\d+\n", streamkit("--version", path=installed).stdout)


def test_command_of_two_packages_is_an_error(installed: Path) -> None:
    """It names both, and neither runs; other commands do."""
    info = installed / "park-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: park\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[streamkit.commands]\nfeed = park_tools:feed\n")
    done = streamkit("feed", path=installed)
    assert done.returncode != 0
    assert (
        "the command feed is claimed by park_tools:feed of package park and by zoo_tools:feed of package zoo"
        in done.stderr
    )
    assert streamkit("--help", path=installed).returncode == 0


def test_help_loads_no_plugin(installed: Path) -> None:
    """Nor does it import the plugin registry."""
    (installed / "zoo_plugin.py").write_text("print('zoo_plugin is imported')")
    points = installed / "zoo-1.0.dist-info" / "entry_points.txt"
    points.write_text(points.read_text() + "[streamkit.plugins]\nzoo = zoo_plugin\n")
    done = streamkit("--help", path=installed)
    assert done.returncode == 0
    assert "imported" not in done.stdout
    script = "import sys, streamkit.cli; print('pluggy' in sys.modules)"
    reported = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert reported.stdout == "False\n"
