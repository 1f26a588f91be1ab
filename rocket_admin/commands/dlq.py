"""`streamkit dlq`: list, show, send back and drop the dead letters of groups."""

from collections import Counter
from contextlib import ExitStack, aclosing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocket_admin.commands.completion import complete_topics, group_argument
from rocket_admin.commands.confirmation import confirm, yes_option
from rocket_admin.commands.connection_options import ClusterConnection, connection_options
from rocket_admin.commands.message_options import condition_options, dry_run_option, only_time, short_time
from rocket_admin.commands.output import Column, Output, json_option, output_options, time_text

if TYPE_CHECKING:
    from rocket_admin.conditions import Condition
    from rocket_admin.dead_letters import CauseGroup, DeadLetter, DeadLetterGroup, DroppedLetters, Skipped
    from rocket_admin.replay_account import ReplayAccount
    from rocket_admin.replays import Replay
    from rocket_client import Admin, UnreadableBodyError

__all__ = ["dlq"]


@click.group()
def dlq() -> None:
    """List, show, send back and drop the dead letters of the groups of a RocketMQ cluster."""


@dlq.command("list")
@click.option("--all", "wants_all", is_flag=True, help="Include groups whose dead letters are all dropped.")
@connection_options
@output_options
def list_(*, wants_all: bool, cluster: ClusterConnection, output: Output) -> None:
    """List the groups that have dead letters."""

    async def show(admin: "Admin") -> None:
        from rocket_admin.dead_letters import dead_letter_groups, groups_with_dead_letter_topic

        names = await groups_with_dead_letter_topic(admin)
        longest = max(map(len, names), default=0)
        columns = [Column(title="GROUP", text=_group, may_wrap=True, width=longest), *_LIST]
        async with aclosing(dead_letter_groups(admin, names)) as found:
            shown = (each async for each in found if each.count or wants_all)
            await output.stream(shown, columns)

    cluster.show(show, output)


@dlq.command(short_help="Show a group's dead letters by their causes, or one by one.")
@group_argument("group")
@click.option("--letters", "wants_letters", is_flag=True, help="Show the letters one by one.")
@condition_options
@click.option("--all", "with_dropped", is_flag=True, help="Include dropped letters.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="With --letters: the most letters."
)
@connection_options
@output_options
def show(
    *,
    group: str,
    wants_letters: bool,
    conditions: "tuple[Condition, ...]",
    with_dropped: bool,
    limit: int,
    cluster: ClusterConnection,
    output: Output,
) -> None:
    """Show the dead letters of GROUP by their causes, or with --letters one by one.

    `streamkit message show ID` shows the history of a letter. Letters whose body is damaged or too large are skipped
    and named on standard error; the exit status is then 1.
    """
    unreadable = _Unreadable(output)

    async def print_(admin: "Admin") -> None:
        from rocket_admin.dead_letters import DeadLetter, by_cause, dead_letters

        found = dead_letters(admin, group, conditions=conditions, with_dropped=with_dropped, skipped=unreadable)
        async with aclosing(found) as letters:
            if not wants_letters:
                output.table(by_cause([letter async for letter in letters]), _CAUSES)
                unreadable.sum_up()
                return
            shown: list[DeadLetter] = []
            async for letter in letters:
                if len(shown) == limit:
                    output.hint(f"There are more than {limit} letters: --limit shows more.")
                    break
                shown.append(DeadLetter.of(letter, whole_body=output.as_json))
            output.table(shown, _LETTERS)
            unreadable.sum_up()

    cluster.show(print_, output)


@dlq.command(short_help="Send dead letters back to their topics.")
@group_argument("group")
@condition_options
@click.option(
    "--to",
    shell_complete=complete_topics,
    help="The topic to send to. Default: the topic that each letter was first sent to.",
)
@click.option(
    "--to-group-alone", is_flag=True, help="Send to the group's retry topic, so that no other group receives them."
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="The most letters per second.")
@click.option("--limit", type=click.IntRange(min=1), help="The most letters.")
@click.option("--all", "with_dropped", is_flag=True, help="Include dropped letters.")
@click.option(
    "--account",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File that records what was sent. Default: dead-letters-GROUP.jsonl.",
)
@connection_options
@json_option
@dry_run_option
@yes_option
def replay(
    *,
    group: str,
    conditions: "tuple[Condition, ...]",
    to: str | None,
    to_group_alone: bool,
    rate: float | None,
    limit: int | None,
    with_dropped: bool,
    path: Path | None,
    cluster: ClusterConnection,
    output: Output,
    is_dry: bool,
    is_sure: bool,
) -> None:
    """Send the dead letters of GROUP back to the topics that they were first sent to.

    Every group of these topics receives them again, as new messages without counters of failures. An account file
    records what was sent, and the same command continues after it, so a replay that was killed repeats at most one
    message. Letters that are sent from the beginning of the dead letter topic on are dropped. Letters whose body is
    damaged or too large are skipped and named on standard error; the exit status is then 1.
    """
    if to is not None and to_group_alone:
        raise click.UsageError("--to and --to-group-alone exclude each other")
    from rocket_admin.replay_account import ReplayAccount
    from rocket_admin.replays import Replay

    wanted = Replay(
        group=group,
        to=to,
        to_group_alone=to_group_alone,
        conditions=conditions,
        rate=rate,
        limit=limit,
        with_dropped=with_dropped,
        dry_run=is_dry,
    )
    path = path or Path(f"dead-letters-{group}.jsonl")
    with ExitStack() as opened:
        account = None
        if not is_dry or path.exists():
            try:
                account = opened.enter_context(ReplayAccount(path, group))
            except (OSError, ValueError) as error:
                raise click.ClickException(str(error)) from error
        before = 0 if account is None else len(account)
        if not is_dry and not is_sure:
            _ask(cluster, wanted, account)
        unreadable = _Unreadable(output)
        sent = _replay(cluster, output, wanted, account, unreadable)
    if is_dry:
        output.say(f"Would send {_topics(sent)}.")
    else:
        output.say(f"Sent {_topics(sent)}." + (f" {before} were sent before." if before else ""))
        output.hint(f"The account is {path}.")
    unreadable.sum_up()
    if output.has_failures:
        click.get_current_context().exit(1)


@dlq.command(short_help="Drop dead letters: neither list them nor send them back.")
@group_argument("group")
@click.option(
    "--before",
    type=only_time,
    metavar="TIME",
    help="Only those stored before: 30m (ago; s, m, h, d), 2026-11-26T14:30.",
)
@connection_options
@json_option
@dry_run_option
@yes_option
def drop(
    *,
    group: str,
    before: datetime | None,
    cluster: ClusterConnection,
    output: Output,
    is_dry: bool,
    is_sure: bool,
) -> None:
    """Drop the dead letters of GROUP: they are no longer listed or sent back.

    The broker keeps them until their retention time is over, and the other commands still find them with --all:
    dropping only moves the offset of the group TOOLS_CONSUMER in the dead letter topic. Listeners of that topic are not
    affected.
    """

    async def drop_(admin: "Admin", *, dry_run: bool) -> "list[DroppedLetters]":
        from rocket_admin.dead_letters import drop_dead_letters

        return await drop_dead_letters(admin, group, before=before, dry_run=dry_run)

    planned = cluster.run(lambda admin: drop_(admin, dry_run=True))
    count = sum(each.count for each in planned)
    if not is_dry and count:
        confirm(f"Drop {count} dead letter(s) of {group}?", is_sure=is_sure)
        planned = cluster.run(lambda admin: drop_(admin, dry_run=False))
    output.table(planned, _DROPPED)
    output.say("Nothing was dropped." if is_dry or not count else f"Dropped {count} dead letter(s) of {group}.")


class _Unreadable:
    """Names the letters that cannot be read on standard error, and counts them.

    Args:
        output: What the command prints with; the command then ends with status 1.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._count = 0

    def __call__(self, error: "UnreadableBodyError") -> None:
        self._count += 1
        self._output.has_failures = True
        self._output.warn(f"letter {error.message.offset_message_id} on {error.message.broker_name}: {error}")

    def sum_up(self) -> None:
        """Print the number of letters that could not be read since the last call."""
        if self._count:
            self._output.warn(f"Letters that could not be read and were passed over: {self._count:,}.")
            self._count = 0


def _ask(cluster: ClusterConnection, wanted: "Replay", account: "ReplayAccount | None") -> None:
    """Ask whether to send the letters, with their number by topic.

    Raises:
        click.Abort: The answer is no, or there is none.
    """
    from msgspec.structs import replace

    planned = _replay(cluster, Output(as_json=False), replace(wanted, dry_run=True), account, lambda _: None)
    if not planned:
        return
    who = f"Group {wanted.group} alone" if wanted.to_group_alone else "Every group of a topic"
    confirm(f"Send {_topics(planned)}? {who} receives them.", is_sure=False)


def _replay(
    cluster: ClusterConnection,
    output: Output,
    wanted: "Replay",
    account: "ReplayAccount | None",
    skipped: "Skipped",
) -> Counter[str]:
    """Send the letters, print each with `--json`, and return their number by topic."""
    sent: Counter[str] = Counter()

    async def send(admin: "Admin") -> None:
        from rocket_admin.replays import replay_dead_letters

        async with aclosing(replay_dead_letters(admin, wanted, account, skipped=skipped)) as letters:
            async for each in letters:
                sent[each.topic] += 1
                if output.as_json:
                    output.json(each)

    cluster.run(send)
    return sent


def _topics(counts: Counter[str]) -> str:
    """Return the numbers of letters by topic as text."""
    texts = [f"{count:,} to {topic}" for topic, count in sorted(counts.items())]
    return "no dead letters" if not texts else f"{counts.total():,} dead letter(s): {', '.join(texts)}"


def _cause(type_: str | None, text: str | None) -> str | None:
    """Return a cause as text; that an exception is one of Python's own goes without saying."""
    known = [each for each in (type_ and type_.removeprefix("builtins."), text) if each]
    return ": ".join(known) or None


def _cause_of_letter(letter: "DeadLetter") -> str | None:
    return None if letter.cause is None else _cause(letter.cause.type, letter.cause.message)


def _group(found: "DeadLetterGroup") -> str:
    return found.group


_LIST: "list[Column[DeadLetterGroup]]" = [
    Column(title="LETTERS", text=lambda group: group.count, is_number=True),
    Column(title="DROPPED", text=lambda group: group.dropped, is_number=True),
    Column(title="NEWEST", text=lambda group: time_text(group.newest_at), width=19),
]
_CAUSES: "list[Column[CauseGroup]]" = [
    Column(title="LETTERS", text=lambda cause: cause.count, is_number=True),
    Column(title="CAUSE", text=lambda cause: _cause(cause.type, cause.text), may_wrap=True),
    Column(title="NEWEST", text=lambda cause: short_time(cause.newest_at)),
    Column(title="EXAMPLE", text=lambda cause: cause.example),
]
_LETTERS: "list[Column[DeadLetter]]" = [
    Column(title="STORED", text=lambda letter: short_time(letter.letter.stored_at)),
    Column(title="LETTER", text=lambda letter: letter.letter.offset_message_id),
    Column(title="TOPIC", text=lambda letter: letter.origin_topic, may_wrap=True),
    Column(title="CAUSE", text=_cause_of_letter, may_wrap=True),
    Column(title="BODY", text=lambda letter: letter.letter.body, may_wrap=True),
]
_DROPPED: "list[Column[DroppedLetters]]" = [
    Column(title="BROKER", text=lambda queue: queue.broker, may_wrap=True),
    Column(title="QUEUE", text=lambda queue: queue.queue, is_number=True),
    Column(title="FROM", text=lambda queue: queue.from_offset, is_number=True),
    Column(title="TO", text=lambda queue: queue.to_offset, is_number=True),
    Column(title="LETTERS", text=lambda queue: queue.count, is_number=True),
]
