"""The question before a command destroys something, and the option that answers it."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["confirm", "yes_option"]

C = TypeVar("C", bound=Callable[..., Any])


def yes_option(command: C) -> C:
    """Add `--yes` to a command, which gets it as its argument `is_sure`."""
    return click.option("--yes", "-y", "is_sure", is_flag=True, help="Do not ask for confirmation.")(command)


def confirm(question: str, *, is_sure: bool) -> None:
    """Ask on standard error, unless the user is sure.

    Raises:
        click.Abort: The answer is no, or there is none.
    """
    if not is_sure:
        click.confirm(question, abort=True, err=True)
