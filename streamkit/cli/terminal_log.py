"""The log of commands that run an application, on standard error."""

import logging

__all__ = ["log_to_terminal"]

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


def log_to_terminal(level: str, *, worker: int | None = None, own_settings: str | None = None) -> None:
    """Log to standard error; of the libraries in `_DETAILS` only warnings and errors, unless the level is debug.

    Args:
        level: The lowest level to log.
        worker: The number of this worker process, for each line; None if there is one process.
        own_settings: How warnings about settings begin that the command itself gives to the application; they are not
            logged.
    """
    who = "" if worker is None else f"[{worker}] "
    logging.basicConfig(
        level=level.upper(), format=f"%(asctime)s %(levelname)-7s {who}%(name)s: %(message)s", force=True
    )
    if own_settings is not None:
        settings_log = logging.getLogger("streamkit.config.environment")
        settings_log.addFilter(lambda record: not record.getMessage().startswith(own_settings))
    if level != "debug":
        for name, least in _DETAILS.items():
            logging.getLogger(name).setLevel(max(least, logging.root.level))
