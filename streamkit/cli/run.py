"""``streamkit run module:app``: run an application until a signal."""

import gc
import importlib
import logging
import sys
import traceback
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from streamkit.cli.garbage import collect_less_often
from streamkit.cli.setting_arguments import expect_settings
from streamkit.cli.terminal_log import log_format_option, log_in_format_of_settings, log_to_terminal
from streamkit.log_format import LogFormat
from streamkit.processes.supervisor_line import SupervisorLine

if TYPE_CHECKING:  # `streamkit --help` imports no application
    from streamkit.application import StreamApplication

__all__ = ["load_application", "run"]

logger = logging.getLogger(__name__)

_STREAMKIT = str(Path(__file__).parents[1])
_LEVELS = ["critical", "error", "warning", "info", "debug"]
_WATCHED = (".properties", ".yml", ".yaml")


@dataclass(frozen=True, slots=True)
class _Options:
    """The arguments of the command.

    Attributes:
        target: The module and the name of the application in it.
        settings: Settings as arguments.
        app_dir: The directory to import the module from.
        log_level: The lowest level to log.
        log_format: The format of the log, if an option gives it.
        worker: The number of this worker process; None if there is one process.
    """

    target: str
    settings: tuple[str, ...]
    app_dir: str
    log_level: str
    log_format: LogFormat | None = None
    worker: int | None = None

    def worker_command(self, number: int, own: Sequence[str] = ()) -> list[str]:
        """Return the arguments to Python for a worker process.

        Args:
            number: The worker's number, for its log.
            own: Settings of this worker, as arguments.
        """
        options = ["--app-dir", self.app_dir, "--log-level", self.log_level, "--worker-number", str(number)]
        if self.log_format is not None:
            options += ["--log-format", self.log_format.value]
        return ["-m", "streamkit.cli", "run", *options, self.target, *self.settings, *own]


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--app-dir", default=".", show_default=True, help="Directory in which the module is searched first.")
@click.option("--log-level", type=click.Choice(_LEVELS), default="info", show_default=True, help="What is logged.")
@log_format_option
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Run this many processes, each with its own instance index.",
)
@click.option("--reload", is_flag=True, help="Restart when a Python or settings file changes.")
@click.option(
    "--reload-dir", "reload_dirs", multiple=True, help="Directory that is watched; may be repeated. Default: --app-dir."
)
@click.option("--worker-number", type=int, hidden=True)
@click.argument("target", metavar="MODULE[:NAME]")
@click.argument("settings", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def run(
    context: click.Context,
    *,
    target: str,
    settings: tuple[str, ...],
    app_dir: str,
    log_level: str,
    log_format: LogFormat | None,
    workers: int | None,
    reload: bool,
    reload_dirs: tuple[str, ...],
    worker_number: int | None,
) -> None:
    """Run the application NAME (`app` if not given) of MODULE until Ctrl-C or SIGTERM.

    Other arguments are settings that override those of files, such as --spring.cloud.stream.default-binder=inmemory.

    The first signal stops the application gracefully: calls in flight may finish. The second signal ends it at once.
    With --workers, SIGHUP restarts the workers one by one with new settings and code.
    """
    expect_settings(context, "MODULE", target, settings)
    # The supervisor gives its numbers to every worker; only what the user set is worth a warning.
    numbers = None if worker_number is None else "argument --spring.cloud.stream.instance-"
    log_to_terminal(log_level, log_format=log_format or LogFormat.TEXT, worker=worker_number, own_settings=numbers)
    sys.path.insert(0, app_dir)
    options = _Options(target, settings, app_dir, log_level, log_format, worker_number)
    if workers is None and not reload:
        _run_here(options)
        return
    if sys.platform == "win32":
        raise click.ClickException("--workers and --reload need POSIX signals, which Windows does not have")
    from streamkit.cli.supervision import supervise

    watched = _changes(reload_dirs or (app_dir,)) if reload else None
    code = supervise(lambda: _load(options), settings, options.worker_command, workers, watched)
    if code:
        raise click.exceptions.Exit(code)


def _run_here(options: _Options) -> None:
    thresholds = gc.get_threshold()
    application = _load(options)
    collect_less_often(application, thresholds)
    line = SupervisorLine.from_environment()
    if line is not None:
        _attach(application, line)
    application.run()


def _load(options: _Options) -> "StreamApplication":
    """Import the application, give it its arguments, and log in the format of its settings."""
    application = load_application(options.target)
    application.take_arguments(options.settings)
    if options.log_format is None:
        log_in_format_of_settings(application, options.worker)
    return application


def _attach(application: "StreamApplication", line: SupervisorLine) -> None:
    """Notify the supervisor when the application has started; stop the application when the supervisor is gone."""
    from streamkit.events import application_started

    def started(sender: object) -> None:
        line.report_started()

    # Not weakly: nothing else refers to the function.
    application_started.connect(started, sender=application, weak=False)
    line.stop_with_supervisor()


def _changes(directories: Sequence[str]) -> AsyncIterator[Sequence[str]]:
    try:
        from watchfiles import PythonFilter, awatch
    except ImportError as error:
        raise click.ClickException("--reload needs watchfiles: pip install 'streamkit-messaging[reload]'") from error
    missing = [directory for directory in directories if not Path(directory).is_dir()]
    if missing:
        raise click.UsageError(f"there is no directory {missing[0]!r} to watch")

    async def changes() -> AsyncIterator[Sequence[str]]:
        async for changed in awatch(*directories, watch_filter=PythonFilter(extra_extensions=_WATCHED)):
            yield [path for _, path in changed]

    return changes()


def load_application(target: str) -> "StreamApplication":
    """Import the application that ``module:name`` names.

    Raises:
        click.UsageError: The module does not exist, or the name is missing in it or is not an application.
        click.ClickException: The module cannot be imported; the text has the lines of the application's own code.
    """
    from streamkit.application import StreamApplication

    module_name, colon, name = target.partition(":")
    if module_name.endswith(".py") or "/" in module_name:
        named = _module_at(Path(module_name.removesuffix(".py")))
        raise click.UsageError(f"{module_name!r} is a path; name the module: {named}{colon}{name}")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise _import_failure(module_name, error) from error
        raise click.UsageError(f"there is no module {module_name!r} in this directory or on the path") from error
    except Exception as error:  # any error of the application's own code
        raise _import_failure(module_name, error) from error
    found = getattr(module, name or "app", None)
    if isinstance(found, StreamApplication):
        return found
    names = [key for key, value in vars(module).items() if isinstance(value, StreamApplication)]
    hint = f"; it has {', '.join(f'{module_name}:{each}' for each in names)}" if names else ""
    if found is None:
        raise click.UsageError(
            f"module {module_name!r} has no {name or 'app'!r}{hint or ', nor any other StreamApplication'}"
        )
    raise click.UsageError(f"{module_name}:{name or 'app'} is a {type(found).__name__}, not a StreamApplication{hint}")


def _import_failure(module: str, error: Exception) -> click.ClickException:
    """Return the error for a module that cannot be imported, with the lines that lead there but those of streamkit."""
    logger.debug("Cannot import %r", module, exc_info=error)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_of_application(frame.filename)]
    # Python puts the place of a syntax error before its text.
    is_syntax = isinstance(error, SyntaxError)
    *place, text = traceback.format_exception_only(error) if is_syntax else [f"{type(error).__name__}: {error}"]
    lines = "".join([f"cannot import {module!r}: {text.rstrip()}\n", *traceback.format_list(frames), *place])
    return click.ClickException(lines.rstrip())


def _is_of_application(filename: str) -> bool:
    return not filename.startswith(("<frozen", _STREAMKIT, importlib.__file__))


def _module_at(path: Path) -> str:
    """Return the arguments that name the module at this path, given without its suffix."""
    if path.is_absolute() or ".." in path.parts:
        return f"--app-dir {quote(str(path.parent))} {path.name}"
    return ".".join(path.parts)
