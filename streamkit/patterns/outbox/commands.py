"""`streamkit outbox`: the rows of an outbox, their relay, and the tables for them."""

import dataclasses
import functools
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from streamkit.cli.terminal_log import log_format_option, log_in_format_of_settings, log_to_terminal
from streamkit.log_format import LogFormat
from streamkit.patterns.table_schema import alembic_migration, require_sqlalchemy, schema_options, sql_script
from streamkit.printable_text import printable

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from streamkit.patterns.outbox.administration import OutboxRow, Selection
    from streamkit.patterns.outbox.database import Database

__all__ = ["outbox"]

R = TypeVar("R")

_MOST_SHOWN = 50
"""The most rows in the table of messages that were sent again or rolled back."""
_STATUSES = (
    "NOT_CONSUMED",
    "CONSUMED",
    "CONSUMPTION_FAILED",
    "CONSUMPTION_RETRIES_EXCEEDED",
    "CONFIRMATION_RETRIES_EXCEEDED",
    "ROLLED_BACK",
)


@click.group()
def outbox() -> None:
    """Relay, list, send again and roll back the messages of an application's outbox."""
    require_sqlalchemy("the outbox")


def url_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add `--url` to a command, which gets the `Database` as its argument `database`."""

    @click.option(
        "--url",
        envvar="STREAMKIT_OUTBOX_URL",
        help="The database, such as postgresql://user@host/shop; if not given, the setting streamkit.outbox.url.",
    )
    @functools.wraps(command)
    def run(*args: object, url: str | None, **options: object) -> R:
        return command(*args, database=_database(url), **options)

    return run


def selection_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add ids, `--topic` and `--status` to a command, which gets a `Selection` as its argument `selection`."""

    @click.argument("ids", nargs=-1)
    @click.option("--topic", help="Only messages to this output binding.")
    @click.option("--status", "statuses", multiple=True, type=click.Choice(_STATUSES), help="May be repeated.")
    @functools.wraps(command)
    def run(*args: object, ids: tuple[str, ...], topic: str | None, statuses: tuple[str, ...], **options: object) -> R:
        from streamkit.patterns.outbox.administration import Selection
        from streamkit.patterns.outbox.status import MessageStatus

        return command(*args, selection=Selection(topic, [MessageStatus(each) for each in statuses], ids), **options)

    return run


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
dry_run_option = click.option("--dry-run", "is_dry", is_flag=True, help="Show what would be done, and change nothing.")
yes_option = click.option("--yes", "-y", "is_sure", is_flag=True, help="Do not ask for confirmation.")


def change_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options of a command that changes rows."""
    for option in (url_option, json_option, yes_option, dry_run_option, selection_options):
        command = option(command)
    return command


@outbox.command("list")
@selection_options
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The most rows, newest first.")
@click.option("--summary", "wants_counts", is_flag=True, help="Only the numbers of rows by topic and status.")
@json_option
@url_option
def list_(*, selection: "Selection", limit: int, wants_counts: bool, as_json: bool, database: "Database") -> None:
    """List the messages of the outbox, the newest first.

    \b
    streamkit outbox list --status CONFIRMATION_RETRIES_EXCEEDED --topic orders
    """
    from streamkit.patterns.outbox.administration import list_rows, topic_counts

    if wants_counts:
        _print(_done(database, topic_counts), ["topic", "status", "rows", "pending"], as_json)
        return
    _print_rows(_done(database, lambda connection: list_rows(connection, selection, limit)), as_json)


@outbox.command()
@click.argument("id")
@click.option("--topic", help="The output binding, if several have such a message.")
@json_option
@url_option
def show(*, id: str, topic: str | None, as_json: bool, database: "Database") -> None:  # noqa: A002
    """Show the message ID with its headers and its body."""
    from streamkit.patterns.outbox.administration import Selection, show_row

    row = _done(database, lambda connection: show_row(connection, Selection(topic, ids=[id])))
    if as_json:
        _print([row], [], as_json)
        return
    for name, value in _plain(row).items():
        click.echo(f"{name.replace('_', ' ')}: {_text(value)}")


@outbox.command()
@change_options
def resend(*, selection: "Selection", is_dry: bool, is_sure: bool, as_json: bool, database: "Database") -> None:
    """Send messages again that have exceeded a limit: those named by IDS, or all that the options select.

    Their status becomes NOT_CONSUMED, and their count of sends 0.
    """
    from streamkit.patterns.outbox.administration import resend as act

    _change(
        database, selection, act, ("Send", "sent again", "send again"), is_dry=is_dry, is_sure=is_sure, as_json=as_json
    )


@outbox.command()
@change_options
def rollback(*, selection: "Selection", is_dry: bool, is_sure: bool, as_json: bool, database: "Database") -> None:
    """Give up messages that have exceeded a limit: those named by IDS, or all that the options select.

    The application that relays them runs its function of @outbox.compensate for each. Consumers are not notified, and
    their work is not undone.
    """
    from streamkit.patterns.outbox.administration import roll_back as act

    _change(
        database,
        selection,
        act,
        ("Roll back", "rolled back", "roll back"),
        is_dry=is_dry,
        is_sure=is_sure,
        as_json=as_json,
    )


@outbox.command()
@click.option("--side", type=click.Choice(["producer", "consumer"]), help="Only the tables of one side.")
@schema_options
def schema(*, database: str, side: str | None, wants_alembic: bool) -> None:
    """Print the statements that create the tables."""
    from streamkit.patterns.outbox.tables import CONSUMER_TABLES, PRODUCER_TABLES

    sides = {"producer": PRODUCER_TABLES, "consumer": CONSUMER_TABLES}
    tables = (*PRODUCER_TABLES, *CONSUMER_TABLES) if side is None else sides[side]
    click.echo(alembic_migration(tables) if wants_alembic else sql_script(database, tables), nl=False)


@outbox.command(context_settings={"ignore_unknown_options": True})
@click.argument("topics", nargs=-1, required=True, metavar="OUTPUT... [--KEY=VALUE]...", type=click.UNPROCESSED)
@click.option("--log-level", default="info", show_default=True, help="What is logged.")
@log_format_option
@url_option
def relay(*, topics: tuple[str, ...], log_level: str, log_format: LogFormat | None, database: "Database") -> None:
    """Send the rows of output bindings until Ctrl-C or SIGTERM.

    The bindings are those of the settings in the current directory. Any number of relays may run at the same time, also
    beside applications that relay their own rows.

    \b
    streamkit outbox relay orders invoices --url postgresql://shop@db/shop
    """
    from streamkit.application import StreamApplication
    from streamkit.patterns.outbox.outbox import Outbox

    outputs = [each for each in topics if not each.startswith("--")]
    settings = [each for each in topics if each.startswith("--")]
    log_to_terminal(log_level, log_format=log_format or LogFormat.TEXT)
    app = StreamApplication(args=settings)
    if log_format is None:
        log_in_format_of_settings(app)
    Outbox(app, database.engine, *outputs)
    app.run()


def _database(url: str | None) -> "Database":
    """Return the database of a URL, or of the settings in the current directory."""
    from streamkit.patterns.outbox.errors import OutboxError
    from streamkit.patterns.outbox.operator_database import database_at, url_of_settings

    url = url or url_of_settings()
    if url is None:
        raise click.UsageError("name the database: --url, STREAMKIT_OUTBOX_URL, or the setting streamkit.outbox.url")
    try:
        return database_at(url)
    except OutboxError as error:
        raise click.UsageError(str(error)) from error


def _done(database: "Database", work: "Callable[[Connection], R]") -> R:
    from sqlalchemy.exc import SQLAlchemyError

    from streamkit.patterns.outbox.errors import OutboxError
    from streamkit.patterns.outbox.operator_database import refusal_text

    try:
        return database.run_sync(work)
    except OutboxError as error:
        raise click.ClickException(str(error)) from error
    except SQLAlchemyError as error:
        raise click.ClickException(refusal_text(error)) from error


def _change(
    database: "Database",
    selection: "Selection",
    act: "Callable[..., Sequence[OutboxRow]]",
    words: tuple[str, str, str],
    *,
    is_dry: bool,
    is_sure: bool,
    as_json: bool,
) -> None:
    from streamkit.clock import current_clock
    from streamkit.patterns.outbox.administration import count_over_limits

    if not selection.ids and not selection.topic and not selection.statuses:
        raise click.UsageError("name messages by their ids, or select them by --topic or --status")
    verb, done, undone = words
    count = _done(database, lambda connection: count_over_limits(connection, selection))
    if count and not is_dry and not is_sure:
        click.confirm(f"{verb} {count} message(s)?", abort=True, err=True)
    now, shown, count = current_clock().now_ms(), list["OutboxRow"](), 0
    while rows := _done(database, functools.partial(act, selection=selection, now=now, dry_run=is_dry)):
        count += len(rows)
        if as_json:
            _print(rows, [], as_json)
        else:
            shown += rows[: _MOST_SHOWN - len(shown)]
        selection = dataclasses.replace(selection, after=rows[-1].number)
    if not as_json:
        _print_rows(shown, as_json)
        more = f" The table shows the first {_MOST_SHOWN}." if count > _MOST_SHOWN else ""
        click.echo(f"{f'Would {undone} {count} message(s).' if is_dry else f'{count} message(s) {done}.'}{more}")


def _print_rows(rows: "Sequence[OutboxRow]", as_json: bool) -> None:
    _print(rows, ["topic", "id", "status", "key", "created_at", "sent_at", "send_times", "error"], as_json)


def _print(items: Sequence[Any], columns: Sequence[str], as_json: bool) -> None:
    """Print dataclasses as a table, or as lines of JSON without what is None."""
    if as_json:
        for item in items:
            click.echo(json.dumps(_plain(item), ensure_ascii=False))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD)
    for name in columns:
        table.add_column(name.upper().replace("_", " ").removesuffix(" AT"))
    for item in items:
        table.add_row(*(Text(_text(getattr(item, name))) for name in columns))
    Console().print(table)


def _plain(item: Any) -> dict[str, Any]:
    """Return a dataclass as JSON has it."""
    pairs = ((field.name, getattr(item, field.name)) for field in dataclasses.fields(item))
    return {name: _plain_value(value) for name, value in pairs if value is not None}


def _plain_value(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value


def _text(value: object) -> str:
    """Return a value as people read it; control characters of messages do not reach the terminal."""
    if isinstance(value, datetime):
        return f"{value.astimezone():%Y-%m-%d %H:%M:%S}"
    text = "-" if value is None else json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
    return printable(text)
