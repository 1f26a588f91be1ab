"""Options of the commands for messages and dead letters: conditions, times, and how messages look in a terminal."""

import functools
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from rocket_admin.commands.targets import time_or_end

if TYPE_CHECKING:
    from rocket_admin.conditions import Condition
    from rocket_admin.messages import StoredMessage

__all__ = ["condition_options", "dry_run_option", "message_line", "only_time", "pair", "short_time"]

R = TypeVar("R")


def condition_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add `--where` and `--schemas` to a command, which gets a tuple of `Condition` as its argument `conditions`."""

    @click.option(
        "--where",
        multiple=True,
        metavar="CONDITION",
        help="Only messages that meet this condition: NAME=VALUE, NAME!=VALUE, NAME~TEXT (contains) or "
        "NAME!~TEXT, on a property, tags, keys, body, or a path in a body that is JSON, or Avro with "
        "--schemas, such as $.customer.name; may be repeated.",
    )
    @click.option(
        "--schemas",
        type=click.Path(path_type=Path, exists=True),
        help="Avro schema (a file .avsc or a directory of them) for the paths of --where in Avro bodies; needs "
        "the extra `avro`.",
    )
    @functools.wraps(command)
    def run(*args: object, where: tuple[str, ...], schemas: Path | None, **options: object) -> R:
        return command(*args, conditions=_conditions(where, schemas), **options)

    return run


def _conditions(texts: tuple[str, ...], schemas: Path | None) -> "tuple[Condition, ...]":
    from rocket_admin.conditions import conditions_of, json_document

    documents = json_document
    if schemas is not None:
        from rocket_admin.avro_schemas import AvroSchemas, SchemaError

        try:
            documents = AvroSchemas.read(schemas).document_of
        except SchemaError as error:
            raise click.ClickException(str(error)) from error
    try:
        return conditions_of(texts, documents)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--where") from None


def dry_run_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add `--dry-run` to a command, which gets it as its argument `is_dry`."""
    return click.option("--dry-run", "is_dry", is_flag=True, help="Show what would be done, and change nothing.")(
        command
    )


def only_time(text: str) -> datetime:
    """Return the time that a text names: 30m (ago; s, m, h, d), or 2026-11-26T14:30.

    Raises:
        click.BadParameter: The text is not a time.
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
    from streamkit.printable_text import printable

    where = f"{message.queue}@{message.offset}"
    # The id is the sender's, and so may have any characters.
    return printable(f"{short_time(message.stored_at)}  {message.message_id}  {where:>8}  {message.body}")
