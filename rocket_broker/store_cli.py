"""The command ``streamkit store``: looks into a store that no broker has open, ours or Apache's, and repairs it."""

import asyncio
import errno
import json
import logging
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import click

from rocket_broker.errors import BrokerError, DamagedTable
from rocket_broker.properties_file import entries_of, read_properties
from rocket_broker.schedule.timer_settings import TimerSettings
from rocket_broker.schedule.timer_store import odd_files
from rocket_broker.settings import SMALL_STORE, BrokerSettings
from rocket_broker.store.errors import StoreError
from rocket_broker.store.files import OsFileSystem
from rocket_broker.store.index_file import file_size
from rocket_broker.store.repair import GAP_TOPIC, RepairReport, repair
from rocket_broker.store.settings import StoreSettings
from rocket_broker.store.survey import Damage, StoreLayout, Survey, read_log, survey
from rocket_broker.topic_table import TopicTable
from rocket_remoting.clock import SystemClock
from rocket_remoting.errors import RemoteProtocolError
from rocket_remoting.message import MessageExt
from rocket_remoting.message_id import create_offset_id
from rocket_remoting.properties import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQUE_KEY
from rocket_remoting.record import RecordHeader, decode_record

__all__ = ["store"]

_DEFAULT = ".streamkit"
_DAMAGED = 1
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
_SHOWN = 10
_ENTRIES_A_SLOT = 4
_REPORT_EVERY = 1 << 20

_path = click.argument("path", type=click.Path(path_type=Path, file_okay=False), default=_DEFAULT)
_as_json = click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
_config = click.option(
    "-c",
    "--config",
    type=click.Path(path_type=Path),
    help="The broker's settings file, for sizes and directories.",
)


@click.group()
def store() -> None:
    """Verify, dump and repair a store, ours or Apache's.

    PATH is the store's directory (storePathRootDir), ./.streamkit if not given.
    """


@store.command(short_help="Say what is in a store, and what is wrong.")
@_path
@_config
@_as_json
def verify(*, path: Path, config: Path | None, as_json: bool) -> None:
    """Read the whole store, and say what is in it and what is wrong. Nothing is changed.

    The exit status is 1 when messages or their entries are damaged. What a kill leaves is no damage: the next start of
    a broker cuts off a torn end, and makes the entries of the last messages.
    """
    with _clear_errors():
        layout, settings, timers, exists = _layout(path, config)
        with _lock(settings, if_possible=True):
            found = _survey(layout, settings, timers, exists)
    if as_json:
        click.echo(json.dumps({**asdict(found), "sound": found.is_sound}, indent=1))
    else:
        _print_survey(layout, found)
    if not found.is_sound:
        sys.exit(_DAMAGED)


@store.command(short_help="Write the messages as lines of JSON.")
@_path
@_config
@click.option("--topic", help="Only messages of this topic.")
@click.option("--queue", "queue_id", type=int, help="Only messages of this queue.")
@click.option("--offset", type=int, default=0, help="Begin with this queue offset.")
@click.option("--key", help="Only messages with this key, or this unique key.")
@click.option("--limit", type=int, help="At most so many messages.")
def dump(  # each option is one of the command's
    *,
    path: Path,
    config: Path | None,
    topic: str | None,
    queue_id: int | None,
    offset: int,
    key: str | None,
    limit: int | None,
) -> None:
    """Write the messages, in the order they were stored, as lines of JSON.

    A body that is UTF-8 stands in "body", any other one in "bodyBase64". A broker may have the store open.
    """
    with _clear_errors():
        layout, *_ = _layout(path, config)
        written = 0
        for item in read_log(layout):
            if limit is not None and written >= limit:
                break
            if isinstance(item, Damage):
                click.echo(f"Warning: {_sentence(item)}", err=True)
                continue
            record, data = item
            if (
                record.topic == GAP_TOPIC
                or (topic is not None and record.topic != topic)
                or (queue_id is not None and record.queue_id != queue_id)
                or record.queue_offset < offset
            ):
                continue
            message = _message(data)
            keys = _keys(message)
            if key is None or key in keys:
                click.echo(json.dumps({**_fields(record, message), "keys": keys}, ensure_ascii=False))
                written += 1


@store.command(name="repair", short_help="Step over damaged bytes, and make queues and index anew.")
@_path
@_config
@click.option("--yes", is_flag=True, help="Do not ask.")
@_as_json
def repair_command(*, path: Path, config: Path | None, yes: bool, as_json: bool) -> None:
    """Step over damaged bytes of the log, and make queues and index anew from it.

    What was there before is kept in a directory before-repair-<time>. Messages in damaged bytes are lost, the others
    keep their queue offsets.
    """
    with _clear_errors():
        layout, settings, timers, exists = _layout(path, config)
        with _lock(settings):
            found = _survey(layout, settings, timers, exists)
        if config is None and _tells_no_size(layout) and found.foreign_entries:
            raise StoreError(
                f"{layout.log[0]} was cut short to {layout.log_file_size} bytes, and no other file tells its size: "
                "give the broker's settings by -c, or a file with the line mappedFileSizeCommitLog=…"
            )
        if not as_json:
            _print_survey(layout, found)
        if not yes:
            anyway = "Make its queues and index anew all the same?"
            click.confirm(anyway if found.is_sound else "Repair it?", abort=True, err=True)
        logging.getLogger("rocket_broker.store").setLevel(logging.ERROR)  # it is told below
        report = asyncio.run(repair(layout, settings, found.damages, SystemClock(), exists))
        if found.short_timer_files:
            with _lock(settings):
                _put_aside(timers, report.kept_in)
    if as_json:
        told = {"keptIn": str(report.kept_in), "gaps": report.gaps, "files": report.files}
        click.echo(json.dumps({**told, "recovery": asdict(report.recovery)}, indent=1))
    else:
        _print_repair(report)


def _layout(
    path: Path, config: Path | None
) -> tuple[StoreLayout, StoreSettings, TimerSettings, Callable[[str], bool]]:
    """Return the store's files, settings with the sizes that they have, and what tells whether a topic exists."""
    if config is not None:
        entries = read_properties(config)
        if path != Path(_DEFAULT):
            entries += entries_of({"storePathRootDir": str(path)}, "the path given")
        wanted = BrokerSettings.from_entries(entries)
    else:
        keys = {"storePathRootDir": str(path), "brokerName": "store"}
        found = StoreLayout.of(path)
        if found.log_file_size == int(SMALL_STORE["mappedFileSizeCommitLog"]):
            keys |= SMALL_STORE
        keys |= _index_keys(found)
        if found.log_file_size:
            keys["mappedFileSizeCommitLog"] = str(found.log_file_size)
        if found.queue_file_size:
            keys["mappedFileSizeConsumeQueue"] = str(found.queue_file_size)
        sizes = [file.stat().st_size for file in (path / "timerlog").glob("[0-9]*")]
        if sizes and sizes.count(max(sizes)) > 1:
            keys["mappedFileSizeTimerLog"] = str(max(sizes))
        wanted = BrokerSettings.from_entries(entries_of(keys, "streamkit store"))
    settings = wanted.store_settings()
    layout = StoreLayout.of(settings.root, settings.commit_log_dir)
    if config is not None and _tells_no_size(layout):
        layout = replace(layout, log_file_size=settings.mapped_file_size_commit_log)
    return layout, settings, wanted.timer_settings(), _exists(wanted)


def _index_keys(layout: StoreLayout) -> dict[str, str]:
    """Return what the largest whole file of the index says of its settings: all have four entries a slot."""
    empty = file_size(0, 0)
    for size in sorted((file.stat().st_size for file in layout.index), reverse=True):
        slots, rest = divmod(size - empty, file_size(1, _ENTRIES_A_SLOT) - empty)
        if slots > 0 and not rest:
            return {"maxHashSlotNum": str(slots), "maxIndexNum": str(slots * _ENTRIES_A_SLOT)}
    return {}


def _put_aside(timers: TimerSettings, directory: Path) -> None:
    """Move the timers' files away: the broker makes others from the messages (`timer_store`)."""
    for path in (timers.wheel_path, timers.log_path):
        if path.exists():
            path.rename(directory / path.name)


def _tells_no_size(layout: StoreLayout) -> bool:
    """Whether the log has one file, of none of the usual sizes: it may have been cut short."""
    usual = (
        int(SMALL_STORE["mappedFileSizeCommitLog"]),
        StoreSettings(layout.root).mapped_file_size_commit_log,
    )
    return len(layout.log) == 1 and layout.log_file_size not in usual


def _exists(settings: BrokerSettings) -> Callable[[str], bool]:
    """Return what tells whether a topic exists: all do where no table says what there is."""
    topics = TopicTable(settings, SystemClock())
    try:
        if topics.load():
            return lambda topic: topic in topics or topics.is_system(topic)
    except DamagedTable as e:
        click.echo(f"Warning: {e}", err=True)
    return lambda topic: True


@contextmanager
def _lock(settings: StoreSettings, *, if_possible: bool = False) -> Iterator[None]:
    """Keep brokers out meanwhile; ``if_possible``, where this process may write to the store."""
    try:
        lock = OsFileSystem().lock(settings.lock_path)
    except OSError as e:
        if not if_possible or e.errno not in _READ_ONLY:
            raise
        problem = (
            f"{settings.lock_path}: {e.strerror}, so it is not known whether a broker has the store open"
        )
        click.echo(f"Warning: {problem}", err=True)
        yield
        return
    try:
        yield
    finally:
        lock.release()


def _survey(
    layout: StoreLayout, settings: StoreSettings, timers: TimerSettings, exists: Callable[[str], bool]
) -> Survey:
    """Survey the store, with a bar on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = TextColumn("reading the log"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    first = int(layout.log[0].name) if layout.log else 0
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=len(layout.log) * layout.log_file_size)
        progress = _rarely(lambda offset: bar.update(task, completed=offset - first))
        index_file_size = file_size(settings.max_hash_slot_num, settings.max_index_num)
        found = survey(layout, progress, exists, index_file_size)
    found.short_timer_files = list(map(str, odd_files(timers)))
    return found


def _rarely(show: Callable[[int], None]) -> Callable[[int], None]:
    shown = -_REPORT_EVERY

    def progress(offset: int) -> None:
        nonlocal shown
        if offset - shown >= _REPORT_EVERY:
            shown = offset
            show(offset)

    return progress


def _print_survey(layout: StoreLayout, found: Survey) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=str(layout.root), show_header=False, title_justify="left")
    rows = {
        "commit log": f"{_counted(len(layout.log), 'file')}, from {found.first:,} to {found.end:,}",
        "messages": f"{found.records:,}",
        "queues": f"{found.queues:,} with {found.entries:,} entries",
        "index": _counted(found.index_files, "file"),
        "files missing or cut short": f"{_missing_or_short(found):,}",
        "strange files": f"{len(found.strange_files):,}",
        "damaged places": f"{sum(not damage.is_end for damage in found.damages):,}",
        "damaged properties": f"{len(found.damaged_properties):,}",
        "torn end": "yes: the next start cuts it off" if any(d.is_end for d in found.damages) else "no",
        "messages without entry": f"{found.missing_entries:,}",
        "messages that wait for theirs": f"{found.late_entries:,}: the next start makes them"
        if found.late_entries
        else "0",
        "messages of deleted topics": f"{found.deleted:,}",
        "entries without message": f"{found.foreign_entries:,}",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    console = Console(soft_wrap=True)
    console.print(table)
    details = [
        *(f"commitlog/{name} is missing" for name in found.missing_files),
        *(f"commitlog/{name} was cut short" for name in found.short_files),
        *(
            f"index/{name} was cut short, or the broker has other settings: give them by -c"
            for name in found.short_index_files
        ),
        *(
            f"{path} was cut short, or the broker has other settings: give them by -c"
            for path in found.short_timer_files
        ),
        *(f"{path} is no file of the store: no broker starts beside it" for path in found.strange_files),
        *map(_sentence, found.damages),
        *(
            f"the properties of the message at {offset} are damaged: it is delivered with what is left of them"
            for offset in found.damaged_properties
        ),
        *(
            f"message {offset} of {topic} queue {queue_id} has no entry, or a wrong one"
            for topic, queue_id, offset in found.missing
        ),
    ]
    for detail in details[:_SHOWN]:
        console.print(f"• {detail}", highlight=False, markup=False)
    if len(details) > _SHOWN:
        console.print(f"  and more; --json tells of {_counted(len(details), 'place')}")
    if found.is_sound:
        console.print("✓ The store is sound.", style="green")
    else:
        console.print(f"✗ The store is damaged. Try: streamkit store repair {layout.root}", style="red")


def _missing_or_short(found: Survey) -> int:
    kinds = found.missing_files, found.short_files, found.short_index_files, found.short_timer_files
    return sum(map(len, kinds))


def _print_repair(report: RepairReport) -> None:
    from rich.console import Console

    console = Console(soft_wrap=True)
    done = report.recovery
    parts = [
        f"{done.entries_added:,} queue entries and the keys of {done.messages_indexed:,} messages made anew"
    ]
    if report.files:
        parts.insert(0, f"{_counted(report.files, 'file')} of the log completed")
    if report.gaps:
        parts.insert(0, f"{_counted(report.gaps, 'place')} of the log stepped over")
    console.print(f"✓ Repaired: {', '.join(parts)}.", style="green", highlight=False)
    console.print(f"  What was there before is in {report.kept_in}", highlight=False)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _sentence(damage: Damage) -> str:
    what = "the log's end is torn" if damage.is_end else "the log is damaged"
    return f"{what} at {damage.offset}: {damage.length} bytes: {damage.reason}"


def _message(data: memoryview) -> MessageExt:
    try:
        return decode_record(data)
    except RemoteProtocolError:  # its body cannot be unpacked: as it was stored
        return decode_record(data, decompress=False)


def _keys(message: MessageExt) -> list[str]:
    """Return the message's unique key and its keys."""
    properties = message.properties
    keys = properties.get(PROPERTY_UNIQUE_KEY), *properties.get(PROPERTY_KEYS, "").split(" ")
    return [key for key in keys if key]


def _fields(record: RecordHeader, message: MessageExt) -> dict[str, object]:
    """Return a message as JSON has it, its keys left out."""
    fields: dict[str, object] = {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "commitLogOffset": record.commit_log_offset,
        "messageId": create_offset_id(*record.store_host, record.commit_log_offset),
        "tags": message.properties.get(PROPERTY_TAGS),
        "bornTimestamp": record.born_timestamp,
        "bornHost": ":".join(map(str, record.born_host)),
        "storeTimestamp": record.store_timestamp,
        "reconsumeTimes": record.reconsume_times,
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "properties": message.properties,
    }
    try:
        fields["body"] = message.body.decode()
    except UnicodeDecodeError:
        fields["bodyBase64"] = b64encode(message.body).decode()
    return fields


@contextmanager
def _clear_errors() -> Iterator[None]:
    """Show what went wrong as one sentence; a traceback is for mistakes of ours."""
    try:
        yield
    except BrokenPipeError:
        raise  # nobody reads any more, as behind `| head`: click ends quietly
    except (BrokerError, StoreError, OSError) as e:
        raise click.ClickException(str(e)) from e
