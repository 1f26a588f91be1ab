"""The options of commands that sign their requests: keys on the command line, in the environment, or in a file.

::

    --access-key, --secret-key                                    visible to other users in the list of processes
    ROCKETMQ_ACCESS_KEY, ROCKETMQ_SECRET_KEY
    $ROCKETMQ_HOME/conf/tools.yml, or the file of --tools-file    accessKey: …, secretKey: …, as mqadmin reads them

The first of these places that has a key gives both. Without any, requests are not signed.
"""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

if TYPE_CHECKING:
    from rocket_client import Credentials

__all__ = ["account_options"]

R = TypeVar("R")

MAX_TOOLS_FILE: Final = 64 * 1024
"""Bytes of a file with keys."""


def account_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options to a command, which gets the keys as its argument `credentials`, or None."""

    @click.option("--access-key", help="Access key of an account; the environment variable is ROCKETMQ_ACCESS_KEY.")
    @click.option("--secret-key", help="Its secret key; better in the environment variable ROCKETMQ_SECRET_KEY.")
    @click.option(
        "--tools-file",
        type=click.Path(path_type=Path),
        help="File with the keys as mqadmin reads them; by default $ROCKETMQ_HOME/conf/tools.yml, if it exists.",
    )
    @functools.wraps(command)
    def run(
        *args: object, access_key: str | None, secret_key: str | None, tools_file: Path | None, **options: object
    ) -> R:
        return command(*args, credentials=_credentials(access_key, secret_key, tools_file), **options)

    return run


def _credentials(access_key: str | None, secret_key: str | None, tools_file: Path | None) -> "Credentials | None":
    given = _pair("--access-key and --secret-key", access_key, secret_key)
    if given is None and tools_file is None:
        variables = os.environ.get("ROCKETMQ_ACCESS_KEY"), os.environ.get("ROCKETMQ_SECRET_KEY")
        given = _pair("ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY", *variables)
    if given is not None:
        return given
    if tools_file is not None:
        return _from_file(tools_file)
    home = os.environ.get("ROCKETMQ_HOME")
    usual = Path(home) / "conf" / "tools.yml" if home else None
    return _from_file(usual) if usual is not None and usual.exists() else None


def _pair(where: str, access_key: str | None, secret_key: str | None) -> "Credentials | None":
    if not access_key and not secret_key:
        return None
    if not access_key or not secret_key:
        raise click.UsageError(f"{where} belong together: set both, or none")
    from rocket_client import Credentials

    return Credentials(access_key, secret_key)


def _from_file(path: Path) -> "Credentials":
    import yaml

    try:
        with path.open("rb") as file:
            text = file.read(MAX_TOOLS_FILE + 1)
        if len(text) > MAX_TOOLS_FILE:
            raise click.ClickException(f"{path} has more than {MAX_TOOLS_FILE} bytes: expected accessKey and secretKey")
        # Texts as they are written: Java turns the number 12345678 into the same text.
        keys = yaml.load(text, Loader=yaml.BaseLoader)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        # The error's own text may show a line of the file, which has a secret.
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise click.ClickException(f"{path}{line} is not YAML: expected accessKey and secretKey") from None
    values = keys if isinstance(keys, dict) else {}
    access_key, secret_key = values.get("accessKey"), values.get("secretKey")
    if not (isinstance(access_key, str) and isinstance(secret_key, str) and access_key and secret_key):
        raise click.ClickException(f"{path} must have accessKey and secretKey, a text each")
    from rocket_client import Credentials

    return Credentials(access_key, secret_key)
