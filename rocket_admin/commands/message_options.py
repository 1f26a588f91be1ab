"""Options of the commands for messages and dead letters: conditions, times, and how messages look in a terminal."""

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rocket_admin.commands.targets import time_or_end

if TYPE_CHECKING:
    from rocket_admin.messages import StoredMessage

__all__ = ["dry_run_option", "message_line", "only_time", "pair", "short_time", "where_option"]

C = TypeVar("C", bound=Callable[..., Any])


def where_option(command: C) -> C:
    """Add `--where`, which may be repeated, to a command, which gets the texts as its argument `where`."""
    return click.option(
        "--where",
        multiple=True,
        metavar="CONDITION",
        callback=_checked,
        help="Only messages of which this is true: NAME=VALUE, NAME!=VALUE, NAME~TEXT (contains) or NAME!~TEXT, of a "
        "property, tags, keys or body; may be repeated.",
    )(command)


def dry_run_option(command: C) -> C:
    """Add `--dry-run` to a command, which gets it as its argument `is_dry`."""
    return click.option("--dry-run", "is_dry", is_flag=True, help="Say what would be done, and do nothing.")(command)


def only_time(text: str) -> datetime:
    """Return the time that a text names: 30m (ago; s, m, h, d), or 2026-11-26T14:30.

    Raises:
        click.BadParameter: The text is no time.
    """
    found = time_or_end(text)
    if not isinstance(found, datetime):
        raise click.BadParameter(f"{text!r} is neither 30m (ago; s, m, h, d) nor 2026-11-26T14:30")
    return found


def pair(text: str) -> tuple[str, str]:
    """Return name and value of a text NAME=VALUE.

    Raises:
        click.BadParameter: The text has another form.
    """
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    return name, value


def short_time(time: datetime | None) -> str | None:
    """Return a time as lines of messages show it: local, without the year; None for None."""
    return None if time is None else f"{time.astimezone():%m-%d %H:%M:%S}"


def message_line(message: "StoredMessage") -> str:
    """Return a message as one line: when it was stored, its id, its queue and offset, the beginning of its body."""
    from rocket_admin.previews import printable

    where = f"{message.queue}@{message.offset}"
    # The id is the sender's, and so may have any characters.
    return printable(f"{short_time(message.stored_at)}  {message.message_id}  {where:>8}  {message.body}")


def _checked(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    from rocket_admin.conditions import conditions_of

    try:
        conditions_of(texts)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return texts
