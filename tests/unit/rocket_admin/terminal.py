"""Runs commands of ``streamkit`` against a cluster, and returns what they print."""

import io
import json
from typing import Any

import click
from click.testing import CliRunner, Result


class Terminal:
    """Runs commands against a cluster.

    Attributes:
        name_server: The cluster's name server.
    """

    def __init__(self, name_server: str) -> None:
        self.name_server = name_server

    def run(self, command: click.Command, *arguments: str, columns: int | None = None, answer: str = "") -> Result:
        """Run a command; its output goes to a terminal with so many columns, or to none."""
        variables = {"NAMESRV_ADDR": self.name_server, "COLUMNS": None if columns is None else str(columns)}
        return CliRunner().invoke(command, arguments, env=variables, input=answer)

    def lines(self, command: click.Command, *arguments: str, columns: int | None = None) -> list[str]:
        """Run a command that succeeds; return the lines of its standard output."""
        done = self.run(command, *arguments, columns=columns)
        assert done.exit_code == 0, done.output
        return done.stdout.splitlines()

    def json(self, command: click.Command, *arguments: str) -> list[Any]:
        """Run a command with `--json` that succeeds; return its objects."""
        return [json.loads(line) for line in self.lines(command, *arguments, "--json")]


class Screen(io.StringIO):
    """The standard output of a command that runs on a terminal."""

    CLEARED = "\033[2J\033[1;1H"

    def isatty(self) -> bool:
        """Return that it is a terminal."""
        return True

    def tables(self) -> list[str]:
        """Return what was on the screen, each time until it was cleared."""
        nothing, *shown = self.getvalue().split(self.CLEARED)
        assert not nothing
        return shown
