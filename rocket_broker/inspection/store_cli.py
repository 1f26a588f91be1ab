"""The command ``streamkit store``: inspects and repairs a store that no broker has open, ours or Apache's."""

import asyncio
import errno
import json
import logging
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click

from rocket_broker.errors import BrokerError, DamagedTable
from rocket_broker.inspection.store_report import damage_sentence, print_plan, print_repair, print_survey
from rocket_broker.schedule.timer_store import files_of_wrong_size
from rocket_broker.settings.broker_settings import SMALL_STORE, BrokerSettings
from rocket_broker.settings.properties_file import entries_of, read_properties
from rocket_broker.settings.store_settings import StoreSettings
from rocket_broker.settings.timer_settings import TimerSettings
from rocket_broker.store.errors import StoreError, StoreLocked
from rocket_broker.store.files import APACHES_SIGNATURE, OsFileSystem
from rocket_broker.store.gap import is_gap
from rocket_broker.store.index_file import file_size
from rocket_broker.store.layout import StoreLayout
from rocket_broker.store.log_scan import Damage, read_log
from rocket_broker.store.repair import RepairPlan, plan_repair, repair
from rocket_broker.store.survey import Survey
from rocket_broker.store.surveyor import survey
from rocket_broker.tables.topic_table import TopicTable
from rocket_remoting.clock import SystemClock
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.message import MessageExt
from rocket_remoting.wire.message_id import create_offset_id
from rocket_remoting.wire.properties import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQUE_KEY
from rocket_remoting.wire.record import RecordHeader, decode_record

__all__ = ["store"]

_DEFAULT = ".streamkit"
_DAMAGED = 1
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
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


@store.command(short_help="Report the contents of a store and any damage.")
@_path
@_config
@_as_json
def verify(*, path: Path, config: Path | None, as_json: bool) -> None:
    """Read the whole store, and report its contents and any damage. Nothing is changed.

    The exit status is 1 if messages or their entries are damaged. The traces of a kill are not damage: the next start
    of a broker cuts off a torn end, and makes the entries of the last messages.
    """
    with _clear_errors():
        opened = _open(path, config)
        with _lock(opened.settings) as is_apaches:
            found = opened.survey(is_apaches=is_apaches)
    if as_json:
        _echo_json(_as_dict(found))
    else:
        print_survey(opened.layout.root, found)
    if not found.is_sound:
        sys.exit(_DAMAGED)


@store.command(short_help="Print messages as lines of JSON.")
@_path
@_config
@click.option("--topic", help="Only messages of this topic.")
@click.option("--queue", "queue_id", type=int, help="Only messages of this queue.")
@click.option("--offset", type=int, default=0, help="Start at this queue offset.")
@click.option("--key", help="Only messages with this key, or this unique key.")
@click.option("--limit", type=int, help="Maximum number of messages.")
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

    A body in UTF-8 is in the field "body", any other body in "bodyBase64". A broker may have the store open.
    """
    with _clear_errors():
        layout = _open(path, config).layout
        written = 0
        for item in read_log(layout):
            if limit is not None and written >= limit:
                break
            if isinstance(item, Damage):
                click.echo(f"Warning: {damage_sentence(item)}", err=True)
                continue
            record, data = item
            if (
                is_gap(record)
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


@store.command(name="repair", short_help="Show what a repair would do, or repair the store.")
@_path
@_config
@click.option("--apply", "applies", is_flag=True, help="Repair the store. Without this, nothing is changed.")
@click.option("--yes", is_flag=True, help="With --apply: do not ask.")
@_as_json
def repair_command(*, path: Path, config: Path | None, applies: bool, yes: bool, as_json: bool) -> None:
    """Show what a repair of the store would do; with --apply, repair it.

    A repair skips damaged bytes of the log, and rebuilds queues and index from the log. The replaced files are kept in
    a directory before-repair-<time>. Messages in damaged bytes are lost, other messages keep their queue offsets, and
    messages of deleted topics stay deleted.

    Without --apply the exit status is 1 if there is something to repair. With --apply it is 1 if the store has not been
    repaired, or is not sound afterwards.
    """
    with _clear_errors():
        opened = _open(path, config)
        if applies:
            is_sound = _repair(opened, path, config, asks=not yes, as_json=as_json)
        else:
            is_sound = _show_repair(opened, path, config, as_json=as_json)
    if not is_sound:
        sys.exit(_DAMAGED)


def _show_repair(opened: "_Opened", path: Path, config: Path | None, *, as_json: bool) -> bool:
    """Print what a repair would do; return whether there is nothing to repair."""
    with _lock(opened.settings) as is_apaches:
        found = opened.survey(is_apaches=is_apaches)
    plan = _plan(opened, found, has_config=config is not None)
    if as_json:
        _echo_json({"applied": False, "plan": asdict(plan)})
    else:
        print_survey(opened.layout.root, found)
        print_plan(plan, is_sound=found.is_sound)
        command = f"streamkit store repair {path}{f' -c {config}' if config else ''} --apply"
        click.echo(f"Nothing has been changed. To repair the store: {command}")
    return found.is_sound


def _repair(opened: "_Opened", path: Path, config: Path | None, *, asks: bool, as_json: bool) -> bool:
    """Repair the store; return whether it is sound afterwards. From the survey on, no broker can open the store."""
    lock = OsFileSystem().lock(opened.settings.lock_path)
    try:
        found = opened.survey(is_apaches=lock.is_apaches)
        plan = _plan(opened, found, has_config=config is not None)
        if not as_json:
            print_survey(opened.layout.root, found)
            print_plan(plan, is_sound=found.is_sound)
        if asks:
            anyway = "Rebuild its queues and index anyway?"
            click.confirm(anyway if found.is_sound else "Repair it?", abort=True, err=True)
    except BaseException:
        lock.release()
        raise
    logging.getLogger("rocket_broker.store").setLevel(logging.ERROR)  # the report below says the rest
    kept_in = asyncio.run(repair(opened.layout, opened.settings, plan, SystemClock(), lock))
    opened = _open(path, config)
    with _lock(opened.settings) as is_apaches:
        after = opened.survey(is_apaches=is_apaches)
    if as_json:
        report = {"applied": True, "plan": asdict(plan), "kept_in": str(kept_in), "after": _as_dict(after)}
        _echo_json(report)
    else:
        print_repair(after, kept_in)
    return after.is_sound


@dataclass(frozen=True, slots=True)
class _Opened:
    """A store to inspect.

    Attributes:
        layout: The store's files.
        settings: Settings with the sizes of these files.
        timers: Settings of the store's timers.
        exists: Returns whether a topic exists.
    """

    layout: StoreLayout
    settings: StoreSettings
    timers: TimerSettings
    exists: Callable[[str], bool]

    def survey(self, *, is_apaches: bool) -> Survey:
        """Survey the store, with a progress bar on a terminal; `is_apaches` as for `survey`."""
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = TextColumn("reading the log"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
        log, settings = self.layout.log, self.settings
        first = int(log[0].name) if log else 0
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task("", total=len(log) * self.layout.log_file_size)
            progress = _rarely(lambda offset: bar.update(task, completed=offset - first))
            index_file_size = file_size(settings.max_hash_slot_num, settings.max_index_num)
            found = survey(self.layout, progress, self.exists, index_file_size, is_apaches=is_apaches)
        found.short_timer_files = list(map(str, files_of_wrong_size(self.timers)))
        return found


def _plan(opened: _Opened, found: Survey, *, has_config: bool) -> RepairPlan:
    """Return the plan of a repair.

    Raises:
        StoreError: The plan needs the broker's settings, or a repaired store would not open.
    """
    layout = opened.layout
    if not has_config and _size_is_unknown(layout) and (found.foreign_entries or found.log_short_of):
        raise StoreError(
            f"{layout.log[0]} was cut short to {layout.log_file_size} bytes, and no other file shows its size: "
            "give the broker's settings by -c, or a file with the line mappedFileSizeCommitLog=…"
        )
    timers = [opened.timers.wheel_path, opened.timers.log_path] if found.short_timer_files else []
    return plan_repair(layout, opened.settings, found, timers)


def _echo_json(value: object) -> None:
    click.echo(json.dumps(value, indent=1))


def _as_dict(found: Survey) -> dict[str, object]:
    return {**asdict(found), "sound": found.is_sound}


def _open(path: Path, config: Path | None) -> _Opened:
    """Find a store's files, and make settings with the sizes of the files, or those of a settings file."""
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
    if config is not None:
        layout = replace(layout, queue_file_size=settings.mapped_file_size_consume_queue)
        if _size_is_unknown(layout):
            layout = replace(layout, log_file_size=settings.mapped_file_size_commit_log)
    return _Opened(layout, settings, wanted.timer_settings(), _exists(wanted))


def _index_keys(layout: StoreLayout) -> dict[str, str]:
    """Return the index settings that the largest complete index file implies, with four entries for each slot."""
    empty = file_size(0, 0)
    for size in sorted((file.stat().st_size for file in layout.index), reverse=True):
        slots, rest = divmod(size - empty, file_size(1, _ENTRIES_A_SLOT) - empty)
        if slots > 0 and not rest:
            return {"maxHashSlotNum": str(slots), "maxIndexNum": str(slots * _ENTRIES_A_SLOT)}
    return {}


def _size_is_unknown(layout: StoreLayout) -> bool:
    """Return whether the log is one file of an unusual size, which may have been cut short."""
    usual = (
        int(SMALL_STORE["mappedFileSizeCommitLog"]),
        StoreSettings(layout.root).mapped_file_size_commit_log,
    )
    return len(layout.log) == 1 and layout.log_file_size not in usual


def _exists(settings: BrokerSettings) -> Callable[[str], bool]:
    """Return a function that tells whether a topic exists; without a table of topics, every topic does."""
    topics = TopicTable(settings, SystemClock())
    try:
        if topics.load():
            return lambda topic: topic in topics or topics.is_system(topic)
    except DamagedTable as e:
        click.echo(f"Warning: {e}", err=True)
    return lambda topic: True


@contextmanager
def _lock(settings: StoreSettings) -> Iterator[bool]:
    """Keep brokers from opening the store within the block; warn if this process may not lock it.

    Return whether Apache's broker was the last one that opened it.
    """
    try:
        lock = OsFileSystem().lock(settings.lock_path)
    except OSError as e:
        if e.errno not in _READ_ONLY:
            raise
        problem = f"{settings.lock_path}: {e.strerror}, so it is not known whether a broker has the store open"
        click.echo(f"Warning: {problem}", err=True)
        yield _is_apaches(settings.lock_path)
        return
    try:
        yield lock.is_apaches
    finally:
        lock.release()


def _is_apaches(path: Path) -> bool:
    """Return whether Apache's broker was the last one that wrote into a lock file that this process may not lock."""
    try:
        return path.read_bytes().startswith(APACHES_SIGNATURE)
    except OSError:
        return False


def _rarely(show: Callable[[int], None]) -> Callable[[int], None]:
    shown = -_REPORT_EVERY

    def progress(offset: int) -> None:
        nonlocal shown
        if offset - shown >= _REPORT_EVERY:
            shown = offset
            show(offset)

    return progress


def _message(data: memoryview) -> MessageExt:
    try:
        return decode_record(data)
    except RemoteProtocolError:  # the body cannot be decompressed: return it as stored
        return decode_record(data, decompress=False)


def _keys(message: MessageExt) -> list[str]:
    """Return the message's unique key and its other keys."""
    properties = message.properties
    keys = properties.get(PROPERTY_UNIQUE_KEY), *properties.get(PROPERTY_KEYS, "").split(" ")
    return [key for key in keys if key]


def _fields(record: RecordHeader, message: MessageExt) -> dict[str, object]:
    """Return a message's fields for JSON, without its keys."""
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
    """Turn expected errors into one sentence; a traceback is for defects of this program."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader has gone, as with `| head`: click ends quietly
    except StoreLocked as e:
        raise click.ClickException(
            f"{e.path} is locked: a broker has this store open. Stop the broker first; only `streamkit store dump` "
            "works beside it"
        ) from e
    except (BrokerError, StoreError, OSError) as e:
        raise click.ClickException(str(e)) from e
