"""The command ``streamkit``, which loads its subcommands from entry points.

The subcommands of the entry-point group ``streamkit.commands`` are imported only when they run, so that ``streamkit
--help`` is fast whatever is installed. Their texts in the help are the first sentences of their docstrings, read from
their source without importing it.
"""

import ast
import atexit
import gc
import importlib.util
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from streamkit.entry_points import COMMANDS, EntryPoint, claim_conflict, described, offers_of

__all__ = ["main"]

PROGRAM = "streamkit"

COLLECTED_AFTER: Final = (200_000, 10, 10)
"""Thresholds of `gc.set_threshold` while a command runs that sets no others."""


class LazyGroup(click.Group):
    """A group whose subcommands are entry points, loaded on use."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command of the arguments; the garbage of its imports is collected rarely.

        Modules and classes stay, so collections find little. With the thresholds of Python 3.11, importing an
        application causes some 175 collections; with these, hardly any. At the end of the process nothing is searched
        for garbage.
        """
        before = gc.get_threshold()
        gc.set_threshold(*COLLECTED_AFTER)
        atexit.register(gc.freeze)
        try:
            return super().main(*args, **extra)
        finally:
            if not gc.get_freeze_count():
                # Move the command's objects to the oldest generation, so that the collection at exit does not search
                # them.
                gc.freeze()
                gc.unfreeze()
            gc.set_threshold(*before)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all subcommands, sorted."""
        return sorted({*super().list_commands(ctx), *offers_of(COMMANDS)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand and return it; None if there is none of this name.

        Raises:
            click.ClickException: Several packages have this subcommand, or it cannot be loaded.
        """
        built_in = super().get_command(ctx, cmd_name)
        if built_in is not None:
            return built_in
        entries = offers_of(COMMANDS).get(cmd_name)
        if entries is None:
            return None
        if len(entries) > 1:
            raise click.ClickException(claim_conflict(f"the command {cmd_name}", map(described, entries)))
        (entry,) = entries
        try:
            command = entry.load()
        except ImportError as e:
            raise click.ClickException(f"the command {cmd_name} ({described(entry)}) cannot be loaded: {e}") from e
        if not isinstance(command, click.Command):
            raise click.ClickException(f"{described(entry)} is not a click command, so {cmd_name} cannot be run")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand of the arguments; for an unknown name, raise an error with the most similar one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0], self.list_commands(ctx), n=1)
            if not near:
                raise
            text = f"{error.format_message().rstrip('.')}; did you mean {near[0]!r}?"
            raise click.UsageError(text, ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of subcommands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(self._described(ctx))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the subcommands and options that begin with `incomplete`, without importing any subcommand."""
        names = [item for item in self._described(ctx) if item[0].startswith(incomplete)]
        items = [CompletionItem(name, help=text) for name, text in names]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def _described(self, ctx: click.Context) -> list[tuple[str, str]]:
        entries = offers_of(COMMANDS)
        names = sorted({*super().list_commands(ctx), *entries})
        return [(name, self._short_help(name, entries)) for name in names]

    def _short_help(self, name: str, entries: Mapping[str, Sequence[EntryPoint]]) -> str:
        built_in = self.commands.get(name)
        return built_in.get_short_help_str(100).rstrip(".") if built_in is not None else _short_help(entries[name][0])


def _short_help(entry: EntryPoint) -> str:
    """Return the first sentence of the subcommand's docstring; empty if its source is not available."""
    try:
        spec = importlib.util.find_spec(entry.module)
        if spec is None or spec.origin is None:
            return ""
        function = _function(Path(spec.origin).read_text(encoding="utf-8"), entry.attr)
    except (ImportError, OSError, SyntaxError, ValueError):
        return ""
    text = "" if function is None else (ast.get_docstring(function) or "").partition("\n\n")[0]
    return " ".join(text.split()).partition(". ")[0].rstrip(".")


def _function(source: str, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the function of this name at the top of a module; None if there is none.

    Only the function is parsed, since a module takes some ten times as long.

    Raises:
        SyntaxError: The function, or else the module, cannot be parsed.
    """
    lines = re.search(rf"^(?:async )?def {re.escape(name)}\(.*?(?=^[^\s)]|\Z)", source, re.MULTILINE | re.DOTALL)
    if lines is not None:
        try:
            return _first_function(ast.parse(lines[0]), name)
        except SyntaxError:  # a line of its text begins as a statement would
            pass
    return _first_function(ast.parse(source), name)


def _first_function(tree: ast.Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return next((function for function in functions if function.name == name), None)


def _version() -> str:
    """Return the version of the distribution that offers ``streamkit run``: it has another name than its packages."""
    for entry in offers_of(COMMANDS).get("run", ()):
        if entry.module == "streamkit.cli.run" and entry.version:
            return entry.version
    return "not installed"


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"{PROGRAM} {_version()}")
        ctx.exit()


@click.group(name=PROGRAM, cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Spring Cloud Stream's programming model for Python, and the RocketMQ broker that comes with it."""


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes streamkit's commands and options in your shell.

    \b
    bash: streamkit completion bash >> ~/.bashrc
    zsh:  streamkit completion zsh >> ~/.zshrc
    fish: streamkit completion fish > ~/.config/fish/completions/streamkit.fish
    """
    maker = get_completion_class(shell)
    if maker is None:
        raise click.ClickException(f"this version of click has no completion for {shell}")
    variable = f"_{PROGRAM.upper()}_COMPLETE"
    click.echo(maker(main, {}, PROGRAM, variable).source())
