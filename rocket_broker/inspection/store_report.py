"""The reports that the command ``streamkit store`` prints; `rich` is imported only then."""

from collections.abc import Iterator
from pathlib import Path

from rocket_broker.store.log_scan import Damage
from rocket_broker.store.repair import RepairPlan
from rocket_broker.store.survey import Survey

__all__ = ["damage_sentence", "print_plan", "print_repair", "print_survey"]

_SHOWN = 10


def print_survey(root: Path, found: Survey) -> None:
    """Print the content of a store, and its problems."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=str(root), show_header=False, title_justify="left")
    for name, value in _rows(found).items():
        table.add_row(name, value)
    console = Console(soft_wrap=True)
    console.print(table)
    _print_list(list(_troubles(found)))
    if found.is_sound:
        console.print("✓ The store is sound.", style="green")
    else:
        console.print(f"✗ The store is damaged. Try: streamkit store repair {root}", style="red")


def print_plan(plan: RepairPlan, *, is_sound: bool) -> None:
    """Print what a repair would do."""
    from rich.console import Console

    console = Console(soft_wrap=True)
    console.print("There is nothing to repair. A repair would:" if is_sound else "A repair would:")
    _print_list(list(_steps(plan)))
    lost = f"Lost: {_counted(plan.lost, 'message')}. {_named(plan.lost_messages)}"
    deleted = f"Deleted with their topic, and not brought back: {_counted(plan.deleted, 'message')}."
    for line in (lost, deleted):
        console.print(f"  {line}", highlight=False, markup=False)


def print_repair(after: Survey, kept_in: Path) -> None:
    """Print the result of a repair.

    Args:
        after: The survey of the store after the repair.
        kept_in: The directory with the former files.
    """
    from rich.console import Console

    console = Console(soft_wrap=True)
    if after.is_sound:
        console.print("✓ Repaired and checked again: the store is sound.", style="green", highlight=False)
    else:
        console.print("✗ The store is still damaged; details: streamkit store verify", style="red")
    console.print(f"  It has {after.entries:,} queue entries in {after.queues:,} queues.", highlight=False)
    console.print(f"  The replaced files are in {kept_in}", highlight=False, markup=False)


def damage_sentence(damage: Damage) -> str:
    """Return a sentence about damaged bytes of the log."""
    what = "the log's end is torn" if damage.is_end else "the log is damaged"
    return f"{what} at {damage.offset}: {damage.length} bytes: {damage.reason}"


def _rows(found: Survey) -> dict[str, str]:
    files = (
        found.missing_files
        + found.short_files
        + found.odd_queue_files
        + found.short_index_files
        + found.short_timer_files
    )
    is_torn = found.torn_at >= 0 or any(damage.is_end for damage in found.damages)
    return {
        "commit log": f"from {found.first:,} to {found.end:,}",
        "messages": f"{found.records:,}",
        "messages of deleted topics": f"{found.deleted:,}",
        "queues": f"{found.queues:,} with {found.entries:,} entries",
        "index": _counted(found.index_files, "file"),
        "files missing or of a wrong size": f"{len(files):,}",
        "strange files": f"{len(found.strange_files):,}",
        "damaged places": f"{sum(not damage.is_end for damage in found.damages):,}",
        "damaged properties": f"{len(found.damaged_properties):,}",
        "messages in damaged bytes": f"{found.lost:,}",
        "messages without entry": f"{found.missing_entries:,}",
        "entries without message": f"{found.foreign_entries:,}",
        "torn end": "yes: the next start cuts it off" if is_torn else "no",
        "messages that wait for their entry": _healed(found.late_entries, "makes them"),
        "entries ahead of the log": _healed(found.early_entries, "takes them back"),
    }


def _healed(number: int, how: str) -> str:
    return f"{number:,}: the next start {how}" if number else "0"


def _troubles(found: Survey) -> Iterator[str]:
    """Yield a sentence for each problem, also for those that the next start mends."""
    for name in found.missing_files:
        yield f"commitlog/{name} is missing"
    for name in found.short_files:
        yield f"commitlog/{name} was cut short"
    for path in (
        *(f"index/{name}" for name in found.short_index_files),
        *found.short_timer_files,
        *found.odd_queue_files,
    ):
        yield f"{path} was cut short, or the broker has other settings: give them by -c"
    for path in found.strange_files:
        yield f"{path} is not a file of the store: no broker starts with it"
    if found.log_short_of:
        yield f"the log ends at {found.end}, but reached {found.log_short_of} when the checkpoint was written"
    yield from map(damage_sentence, found.damages)
    if found.behind_tear:
        yield (
            f"the next start cuts the log off at {found.torn_at}, with {_counted(found.behind_tear, 'whole message')} "
            "behind that; a repair keeps them"
        )
    for note in found.damaged_deletions:
        yield f"the damaged message at {note.offset} recorded that topic {note.topic} was deleted"
    for topic in found.late_deletions:
        yield f"the next start deletes the queues of topic {topic}"
    for offset in found.damaged_properties:
        yield f"the properties of the message at {offset} are damaged: it is delivered with the readable ones"
    for topic, queue_id, number in found.missing:
        yield f"message {number} of {topic} queue {queue_id} has no entry, or a wrong one"
    for topic, queue_id, number in found.lost_messages:
        yield f"message {number} of {topic} queue {queue_id} is in damaged bytes, or was"
    if not found.queue_file_size_is_certain:
        yield (
            f"the queues' files have {found.queue_file_size:,} bytes, and no file confirms that size: give the "
            "broker's settings by -c"
        )


def _steps(plan: RepairPlan) -> Iterator[str]:
    """Yield a sentence for each step of a repair."""
    for name in plan.completed_files:
        yield f"give commitlog/{name} its full length, or make it"
    for damage in plan.stepped_over:
        yield f"step over {damage.length:,} bytes of the log at {damage.offset}"
    for note in plan.renewed_deletions:
        yield f"write the record at {note.offset} again: topic {note.topic} was deleted"
    yield f"move aside: {', '.join(plan.put_aside) or 'nothing'}"
    yield f"make {plan.queue_messages:,} queue entries, in files of {plan.queue_file_size:,} bytes"
    yield f"index {plan.keyed_messages:,} messages by their keys"
    for topic in plan.noted_deletions:
        yield f"record in the log that topic {topic} was deleted"
    for topic, queue_id in plan.deleted_queues:
        yield f"make no entries for queue {queue_id} of {topic}: its messages were deleted"
    for topic, queue_id, count in plan.counts:
        yield f"let the next message of {topic} queue {queue_id} have the offset {count}"


def _print_list(sentences: list[str]) -> None:
    from rich.console import Console

    console = Console(soft_wrap=True)
    for sentence in sentences[:_SHOWN]:
        console.print(f"• {sentence}", highlight=False, markup=False)
    if len(sentences) > _SHOWN:
        console.print(f"  and more; --json lists {_counted(len(sentences), 'place')}")


def _named(messages: list[tuple[str, int, int]]) -> str:
    """Return some messages as a sentence; an empty text if there are none."""
    some = [f"{topic} queue {queue_id} offset {offset}" for topic, queue_id, offset in messages[:_SHOWN]]
    return f"Among them: {'; '.join(some)}." if some else ""


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
