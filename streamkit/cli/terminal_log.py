"""The log of commands that run an application, on standard error."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from streamkit.log_format import JsonFormatter, LogFormat

if TYPE_CHECKING:  # `streamkit --help` imports no application
    from streamkit.application import StreamApplication

__all__ = ["log_format_option", "log_in_format_of_settings", "log_to_terminal"]

F = TypeVar("F", bound=Callable[..., Any])

_DETAILS = {
    **dict.fromkeys(
        ("rocket_broker", "rocket_client", "rocket_remoting", "kafka", "watchfiles", "uvicorn"),
        logging.WARNING,
    ),
    # They warn of each attempt to connect; a failure is logged as an error besides.
    "kafka.net.manager": logging.ERROR,
    "kafka.net.inet": logging.ERROR,
}
"""The log levels of libraries that log much at INFO."""


def log_format_option(command: F) -> F:
    """Give a command the option `--log-format`, whose argument is a `LogFormat`, or None without the option."""
    option = click.option(
        "--log-format",
        type=click.Choice([each.value for each in LogFormat]),
        callback=lambda context, parameter, value: None if value is None else LogFormat(value),
        help="Format of the log: text, or a JSON object on each line.  [default: text]",
    )
    return option(command)


def log_to_terminal(
    level: str,
    *,
    log_format: LogFormat = LogFormat.TEXT,
    worker: int | None = None,
    own_settings: str | None = None,
) -> None:
    """Log to standard error; of the libraries in `_DETAILS` only warnings and errors, unless the level is debug.

    Args:
        level: The lowest level to log.
        log_format: The format of the lines.
        worker: The number of this worker process, for each line; None if there is one process.
        own_settings: How warnings about settings begin that the command itself gives to the application; they are not
            logged.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_formatter(log_format, worker))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    if own_settings is not None:
        settings_log = logging.getLogger("streamkit.config.environment")
        settings_log.addFilter(lambda record: not record.getMessage().startswith(own_settings))
    if level != "debug":
        for name, least in _DETAILS.items():
            logging.getLogger(name).setLevel(max(least, logging.root.level))


def log_in_format_of_settings(application: "StreamApplication", worker: int | None = None) -> None:
    """Log in the format of `streamkit.logging.format` from now on, if the application has this setting.

    Args:
        application: The application, with its arguments.
        worker: The number of this worker process, for each line; None if there is one process.
    """
    from streamkit.config.application_properties import LOGGING, LoggingProperties
    from streamkit.errors import StreamkitError

    try:
        found = application.environment.bind(LOGGING, LoggingProperties).format
    except StreamkitError:
        return  # the start reports what is wrong with the settings
    if found is not None:
        for handler in logging.root.handlers:
            handler.setFormatter(_formatter(found, worker))


def _formatter(log_format: LogFormat, worker: int | None) -> logging.Formatter:
    if log_format is LogFormat.JSON:
        return JsonFormatter({} if worker is None else {"worker": worker})
    who = "" if worker is None else f"[{worker}] "
    return logging.Formatter(f"%(asctime)s %(levelname)-7s {who}%(name)s: %(message)s")
