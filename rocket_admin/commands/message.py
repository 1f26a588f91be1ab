"""`streamkit message`: send, follow, find, show and send again the messages of a RocketMQ cluster."""

import sys
from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from rocket_admin.commands.completion import complete_groups, complete_topics, topic_argument
from rocket_admin.commands.confirmation import confirm, yes_option
from rocket_admin.commands.connection_options import ClusterConnection, connection_options
from rocket_admin.commands.message_options import (
    condition_options,
    dry_run_option,
    message_line,
    only_time,
    pair,
    short_time,
)
from rocket_admin.commands.output import Column, Output, json_option, output_options, time_text
from rocket_admin.commands.targets import offset_or_time

if TYPE_CHECKING:
    from rocket_admin.conditions import Condition
    from rocket_admin.messages import SentMessage, StoredMessage
    from rocket_admin.offsets import Target
    from rocket_admin.stories import Delivery, GroupStory, Story
    from rocket_admin.tailing import Tail
    from rocket_client import Admin
    from rocket_remoting.wire.message import MessageExt

__all__ = ["message"]

MANY_TOPICS: Final = 500
"""Topics after which a search says how far it is."""


@click.group()
def message() -> None:
    """Send, follow, find, show and resend the messages of a RocketMQ cluster."""


@message.command()
@topic_argument("topic")
@click.argument("body")
@click.option("--tags", help="The tag that consumers can subscribe to.")
@click.option("--key", "keys", multiple=True, help="A key by which the message can be found; may be repeated.")
@click.option("--property", "properties", type=pair, multiple=True, metavar="NAME=VALUE", help="May be repeated.")
@click.option("--content-type", help="The property contentType, which tells consumers what the body is.")
@click.option("--queue", "queue_id", type=click.IntRange(min=0), help="The number of the queue. Default: any queue.")
@click.option("--delay-level", type=click.IntRange(min=1), default=None, help="The broker's delay level.")
@connection_options
@json_option
@dry_run_option
def send(
    *,
    topic: str,
    body: str,
    tags: str | None,
    keys: tuple[str, ...],
    properties: tuple[tuple[str, str], ...],
    content_type: str | None,
    queue_id: int | None,
    delay_level: int | None,
    cluster: ClusterConnection,
    output: Output,
    is_dry: bool,
) -> None:
    """Send one message with BODY to TOPIC, which must exist. A BODY of - is read from standard input."""
    data = sys.stdin.buffer.read() if body == "-" else body.encode(errors="surrogateescape")

    async def send_(admin: "Admin") -> None:
        from rocket_admin.messages import CONTENT_TYPE, send_message
        from rocket_remoting.wire.message import Message

        sent = Message(topic, data, tags=tags, keys=keys, delay_level=delay_level or 0)
        for name, value in [*properties, *([(CONTENT_TYPE, content_type)] if content_type else [])]:
            sent.set_user_property(name, value)
        if is_dry:
            queues = len((await admin.topic_route(topic)).publish_queues)
            output.say(f"Would send {len(data)} bytes to {topic}, which has {queues} writable queues.")
            return
        stored = await send_message(admin, sent, queue_id=queue_id)
        output.facts(stored, _sent_facts(stored))

    cluster.run(send_)


@message.command(short_help="Show messages as they arrive.")
@topic_argument("topic")
@click.option(
    "--from",
    "start",
    type=offset_or_time,
    default="latest",
    show_default=True,
    help="Where to begin: earliest, latest, an offset in each queue, 30m (ago; s, m, h, d), 2026-11-26T14:30.",
)
@click.option("--tags", default="*", help="Only messages with these tags, such as 'a || b'.")
@click.option(
    "--sql", help="Only messages whose properties match this SQL92 expression; brokers need enablePropertyFilter=true."
)
@condition_options
@click.option("--count", type=click.IntRange(min=1), help="End after this many messages.")
@click.option("--no-follow", is_flag=True, help="End after the present messages have been shown.")
@connection_options
@json_option
def tail(
    *,
    topic: str,
    start: "Target",
    tags: str,
    sql: str | None,
    conditions: "tuple[Condition, ...]",
    count: int | None,
    no_follow: bool,
    cluster: ClusterConnection,
    output: Output,
) -> None:
    """Show the messages of TOPIC as they arrive, until Ctrl-C; no group misses any.

    A line has the time at which the message was stored, its id, its queue and offset, and the beginning of its body.
    """

    async def follow(admin: "Admin") -> None:
        from rocket_admin.messages import StoredMessage
        from rocket_admin.tailing import tail as messages_of

        left = count
        wanted = _tail(topic, start, tags, sql, conditions, follows=not no_follow)
        async with aclosing(messages_of(admin, wanted)) as messages:
            async for each in messages:
                stored = StoredMessage.of(each, whole_body=output.as_json)
                _line(output, stored)
                left = None if left is None else left - 1
                if left == 0:
                    return

    try:
        cluster.run(follow)
    except KeyboardInterrupt:
        pass


@message.command(short_help="Find messages by key or time.")
@topic_argument("topic")
@click.option("--key", help="Only messages with this key.")
@click.option("--since", type=only_time, metavar="TIME", help="Stored since: 30m (ago; s, m, h, d), 2026-11-26T14:30.")
@click.option("--until", type=only_time, metavar="TIME", help="Stored until then. Default: now.")
@condition_options
@click.option("--limit", type=click.IntRange(min=1), default=64, show_default=True, help="The most messages.")
@connection_options
@json_option
def query(
    *,
    topic: str,
    key: str | None,
    since: datetime | None,
    until: datetime | None,
    conditions: "tuple[Condition, ...]",
    limit: int,
    cluster: ClusterConnection,
    output: Output,
) -> None:
    """Find the messages of TOPIC with a key, or those that were stored in a period."""
    if key is None and since is None:
        raise click.UsageError("give --key, or --since; `streamkit message show ID` finds one message by its id")

    async def find(admin: "Admin") -> None:
        from rocket_admin.conditions import matches_all
        from rocket_admin.messages import StoredMessage, messages_between, messages_with_key

        if key is not None:
            found = await messages_with_key(admin, topic, key, begin=since, end=until, limit=limit)
            found = [each for each in found if matches_all(conditions, each)]
        else:
            assert since is not None, "checked above"
            end = until or datetime.now(UTC)
            found = await messages_between(admin, topic, since, end, conditions=conditions, limit=limit)
        for each in found:
            _line(output, StoredMessage.of(each, whole_body=output.as_json))
        if not found:
            output.hint("No message was found.")
        elif len(found) >= limit:
            output.hint(f"There may be more than {limit} messages: --limit shows more.")

    cluster.run(find)


@message.command(short_help="Show the history of a message: where it is, and who received it.")
@click.argument("message_id", metavar="ID")
@click.option(
    "--topic", shell_complete=complete_topics, help="Topic of the message. Without it all topics are searched in turn."
)
@click.option(
    "--group", "groups", multiple=True, shell_complete=complete_groups, help="Only this group; may be repeated."
)
@connection_options
@output_options
def show(
    *, message_id: str, topic: str | None, groups: tuple[str, ...], cluster: ClusterConnection, output: Output
) -> None:
    """Show where a message is stored, which groups received it, each delivery, and what comes next.

    ID is the id that the sender gave it, or the offset message id of any of its records. Without --topic, the first id
    is searched in all topics of applications in turn, a request for each, until one has it.
    """

    async def tell(admin: "Admin") -> None:
        from rocket_admin.stories import story

        found = await story(admin, message_id, topic, groups or None, progress=_SearchProgress(output))
        if found is None:
            where = f"topic {topic}" if topic is not None else "any topic"
            raise ValueError(
                f"no message {message_id} is found in {where}: it is deleted, or the index of the brokers lacks it"
            )
        output.facts(found, _story_facts(found))
        if not output.as_json:
            _tell(output, found)

    cluster.show(tell, output)


@message.command(short_help="Send a copy of a message to its topic.")
@click.argument("message_id", metavar="ID")
@click.option(
    "--topic", shell_complete=complete_topics, help="Topic of the message. Without it all topics are searched in turn."
)
@click.option("--to", shell_complete=complete_topics, help="The topic to send it to; by default its own.")
@connection_options
@json_option
@dry_run_option
@yes_option
def resend(
    *,
    message_id: str,
    topic: str | None,
    to: str | None,
    cluster: ClusterConnection,
    output: Output,
    is_dry: bool,
    is_sure: bool,
) -> None:
    """Send a copy of a message with an id of its own, to the topic that the message was first sent to.

    Every group of the topic receives the copy. ID may be that of a dead letter; `streamkit dlq replay` sends back many.
    """

    async def find(admin: "Admin") -> "MessageExt":
        from rocket_admin.messages import messages_with_id

        found = await messages_with_id(admin, message_id, topic, progress=_SearchProgress(output))
        if not found:
            raise ValueError(f"no message {message_id} is found; it may be deleted")
        return found[0]

    from rocket_admin.messages import fresh_copy, origin_topic, send_message

    stored = cluster.run(find)
    copy = fresh_copy(stored, to or origin_topic(stored))
    if is_dry:
        output.say(f"Would send a copy of {len(copy.body)} bytes to {copy.topic}.")
        return
    confirm(f"Send a copy to every group of {copy.topic}?", is_sure=is_sure)

    async def send_(admin: "Admin") -> None:
        sent = await send_message(admin, copy)
        output.facts(sent, _sent_facts(sent))

    cluster.run(send_)


def _tail(
    topic: str, start: "Target", tags: str, sql: str | None, conditions: "Sequence[Condition]", *, follows: bool
) -> "Tail":
    from rocket_admin.offsets import End
    from rocket_admin.tailing import Tail

    offset = 0 if start is End.EARLIEST else start if isinstance(start, int) else None
    return Tail(
        topic=topic,
        since=start if isinstance(start, datetime) else None,
        offset=offset,
        tags=tags,
        sql=sql,
        conditions=conditions,
        follows=follows,
    )


def _line(output: Output, stored: "StoredMessage") -> None:
    if output.as_json:
        output.json(stored)
    else:
        click.echo(message_line(stored))


def _sent_facts(sent: "SentMessage") -> "list[tuple[str, object]]":
    return [
        ("Message", sent.message_id),
        ("Topic", sent.topic),
        ("Stored", f"broker {sent.broker}, queue {sent.queue}, offset {sent.offset}"),
        ("Status", sent.status),
    ]


class _SearchProgress:
    """Says that a search takes long, and how far it is.

    Args:
        output: What the command prints with.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._next = 0

    def __call__(self, searched: int, topics: int) -> None:
        if topics < MANY_TOPICS or searched < self._next:
            return
        self._next = searched + MANY_TOPICS
        if searched:
            self._output.hint(f"{searched:,} of {topics:,} topics searched.")
        else:
            self._output.hint(f"Searching {topics:,} topics for the message, until one has it; --topic names it.")


def _story_facts(found: "Story") -> "list[tuple[str, object]]":
    stored = found.message
    broker = stored.broker or "?"
    own = ", ".join(f"{name}={value}" for name, value in sorted(stored.properties.items()))
    size = "1 byte" if stored.body_size == 1 else f"{stored.body_size:,} bytes"
    return [
        ("Message", stored.message_id),
        ("Record", stored.offset_message_id),
        ("Topic", stored.topic),
        ("Stored", f"{time_text(stored.stored_at)}, broker {broker}, queue {stored.queue}, offset {stored.offset}"),
        ("Sent", f"{time_text(stored.born_at)} from {stored.born_host}"),
        ("Due", time_text(found.waits_until)),
        ("Tags", stored.tags),
        ("Keys", stored.keys),
        ("Properties", own or None),
        ("Body", f"{size}{f', {stored.content_type}' if stored.content_type else ''}"),
    ]


def _tell(output: Output, found: "Story") -> None:
    output.say("")
    output.say(found.message.body)
    if found.groups:
        output.say("")
        output.table(found.groups, _GROUPS)
        deliveries = [(group.group, each) for group in found.groups for each in group.deliveries]
        if any(each.outcome == "failed" for _, each in deliveries):
            output.say("")
            output.table(deliveries, _DELIVERIES)
    for sentence in found.unknown:
        output.hint(f"Not known: {sentence}.")


def _known(group: "GroupStory") -> str:
    return (
        group.detail
        if group.next_delivery is None
        else f"{group.detail}; it is due at {time_text(group.next_delivery)}"
    )


def _cause(delivery: "Delivery") -> str | None:
    cause = delivery.cause
    if cause is None:
        return None
    texts = [text for text in (cause.type, cause.message) if text]
    return ": ".join(texts) + (f" ({cause.place})" if cause.place else "")


_GROUPS: "list[Column[GroupStory]]" = [
    Column(title="GROUP", text=lambda group: group.group, may_wrap=True),
    Column(title="STATE", text=lambda group: group.state.value),
    Column(title="MEMBERS", text=lambda group: group.members, is_number=True),
    Column(title="WHAT IS KNOWN", text=_known, may_wrap=True),
]
_DELIVERIES: "list[Column[tuple[str, Delivery]]]" = [
    Column(title="GROUP", text=lambda row: row[0], may_wrap=True),
    Column(title="NO", text=lambda row: row[1].number, is_number=True),
    Column(title="DUE", text=lambda row: short_time(row[1].due_at)),
    Column(title="FAILED", text=lambda row: short_time(row[1].failed_at)),
    Column(title="OUTCOME", text=lambda row: row[1].outcome),
    Column(title="CAUSE", text=lambda row: _cause(row[1]), may_wrap=True),
]
