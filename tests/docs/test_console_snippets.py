"""Commands on the pages, in blocks and text: programs, options, targets and extras exist."""

import re
import shlex
import tomllib
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from streamkit.cli import main
from tests.docs.pages import PAGES, ROOT, blocks_of, prose_of

OF_OTHERS = {
    "cd", "chown", "cp", "curl", "echo", "export", "java", "mkdir", "mqadmin", "mvn", "openssl", "spark-submit",
    "systemctl", "tail", "tar", "tcpdump", "umask", "useradd", ".",
}  # fmt: skip
"""Programs whose arguments are not for us to know."""

OF_THE_PAGES = {"send.py", "shop.py", "app.py"}
"""Files that a reader has from a page."""

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
TARGETS = set(re.findall(r"^([a-z-]+):.* ## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
WITH_ARGUMENTS = {"demo": "samples.pipeline.__main__", "demo-listeners": "samples.flights.__main__"}
"""Targets that hand ARGS to a command of ours."""

IN_TEXT = re.compile(r"`((?:streamkit|make|python3?|pip|pytest|\.venv/bin/python) [^`]*)`")


class Line(NamedTuple):
    """A command line, and the page it is on."""

    page: str
    text: str


def lines() -> list[Line]:
    """Return all command lines, each once per page."""
    found = [
        Line(page, line.removeprefix("$ "))
        for page in PAGES
        for block in blocks_of(page)
        if block.language == "console"
        for line in block.text.splitlines()
        if line.startswith("$ ")
    ]
    found += [Line(page, " ".join(text.split())) for page in PAGES for text in IN_TEXT.findall(prose_of(page))]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("line", lines(), ids=" ".join)
def test_command_line_is_valid(line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands and options exist."""
    monkeypatch.chdir(tmp_path)
    words = shlex.split(re.sub(r"<[\w ]+>|\bN$", "1", line.text), comments=True)
    command: list[str] = []
    for word in [*words, "&&"]:
        if word != "&&":
            command.append(word)
        else:
            check(*command)
            command = []


def check(program: str, *arguments: str) -> None:
    """Fail if there is no such command."""
    match program.rpartition("/")[2] or program:
        case "streamkit":
            check_click(main, "streamkit", arguments)
        case "make":
            check_make(*arguments)
        case "pip":
            check_pip(arguments)
        case "python" | "python3":
            check_python(*arguments)
        case "pytest":
            assert {option.partition("=")[0] for option in arguments} <= {"-q", "--contract-report"}
        case other:
            assert other in OF_OTHERS, f"{program}: is it one of ours?"


def check_click(command: click.Command, name: str, arguments: Sequence[str]) -> None:
    """Parse the arguments down to the last subcommand, without running it; click raises an error if they are wrong."""
    if not set(arguments) - {"--help", "--update"}:
        return  # it is only named
    with command.make_context(name, list(arguments)) as context:
        # A group that has options of its own does something by itself.
        if isinstance(command, click.Group) and not arguments[0].startswith("-"):
            found, inner, rest = command.resolve_command(context, list(arguments))
            assert found is not None
            assert inner is not None
            check_click(inner, found, rest)
        # What `streamkit run` takes for a setting may be an option that it does not have.
        settings = context.params.get("settings", ())
        assert [setting for setting in settings if "." not in setting and setting != "--key=value"] == []


def check_make(target: str, *variables: str) -> None:
    assert target in TARGETS
    for variable in variables:
        name, _, value = variable.partition("=")
        assert name == "ARGS"
        command = import_module(WITH_ARGUMENTS[target]).main
        check_click(command, target, shlex.split(value))


def check_pip(arguments: Sequence[str]) -> None:
    assert arguments[0] in ("install", "wheel")
    assert not [what for what in arguments if re.match(r"streamkit(\W|$)", what)], "PyPI's is another project"
    for named in re.findall(r"\[([\w,-]+)\]", " ".join(arguments)):
        assert set(named.split(",")) <= EXTRAS.keys()


def check_python(*arguments: str) -> None:
    if arguments[0] == "-m":
        assert find_spec(arguments[1]) is not None
    else:
        assert arguments[0] in OF_THE_PAGES
