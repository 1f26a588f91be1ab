"""`streamkit topic`: list, show, create, change and delete topics."""

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

import click

from rocket_admin.commands.completion import brokers_option, topic_argument
from rocket_admin.commands.confirmation import confirm, yes_option
from rocket_admin.commands.connection_options import ClusterConnection, connection_options
from rocket_admin.commands.output import Column, Output, json_option, output_options, time_text

if TYPE_CHECKING:
    from rocket_admin.topic_rates import TopicRate
    from rocket_admin.topics import Topic, TopicDetails, TopicOnBroker, TopicQueue
    from rocket_client import Admin

__all__ = ["topic"]

PERMISSIONS: Final = ("rw", "r", "w", "none")


@click.group()
def topic() -> None:
    """List, show, create, change and delete the topics of a RocketMQ cluster."""


@topic.command("list", short_help="List topics.")
@click.argument("pattern", default="*")
@click.option("--all", "wants_all", is_flag=True, help="Include retry, dead-letter and system topics.")
@connection_options
@output_options
def list_(*, pattern: str, wants_all: bool, cluster: ClusterConnection, output: Output) -> None:
    """List the topics that match PATTERN, such as 'orders-*'; all topics of applications, if none is given."""

    async def show(admin: "Admin") -> None:
        from rocket_admin.topics import TopicKind, list_topics

        found = await list_topics(admin)
        matching = [topic for topic in found.topics if fnmatchcase(topic.topic, pattern)]
        shown = [topic for topic in matching if wants_all or topic.kind is TopicKind.NORMAL]
        output.table(shown, _LIST_WITH_KINDS if wants_all else _LIST)
        hidden = len(matching) - len(shown)
        if hidden:
            output.hint(f"{hidden:,} retry, dead-letter and system topics are not shown; --all shows them.")
        output.failures(found.failures, "what it has of the topics is missing")

    cluster.show(show, output)


@topic.command(short_help="Show a topic's settings, messages and groups.")
@topic_argument("name", metavar="TOPIC")
@connection_options
@output_options
def show(*, name: str, cluster: ClusterConnection, output: Output) -> None:
    """Show the settings of TOPIC on each broker, how many messages it has, and which groups consume it."""

    async def print_(admin: "Admin") -> None:
        from rocket_admin.topics import show_topic

        found = await show_topic(admin, name)
        output.facts(found, _facts(found))
        if not output.as_json:
            output.say("")
            output.table(found.brokers, _BROKERS)
        output.failures(found.failures, "what it has of the topic is missing")

    cluster.show(print_, output)


@topic.command(short_help="Show a topic's offsets by queue, and its messages a second.")
@topic_argument("name", metavar="TOPIC")
@click.option(
    "--rates",
    "wants_rates",
    is_flag=True,
    help="Show only the rates. With --json they are shown only with this option.",
)
@connection_options
@output_options
def stats(*, name: str, wants_rates: bool, cluster: ClusterConnection, output: Output) -> None:
    """Show the offsets of each queue of TOPIC, and the rates of messages that are stored and that each group receives.

    Brokers count messages from their start. The rates are those of the last minute, hour and day; - means that a
    broker has not counted for long enough, or not at all.
    """

    async def print_(admin: "Admin") -> None:
        from rocket_admin.topic_rates import topic_rates
        from rocket_admin.topics import topic_queues

        if not wants_rates:
            found = await topic_queues(admin, name)
            output.table(found.queues, _QUEUES)
            output.failures(found.failures, "its queues are missing")
            if output.as_json:
                return
            output.say("")
        rates = await topic_rates(admin, name)
        output.table(rates.rates, _RATES)
        if wants_rates:
            output.failures(rates.failures, "rates are not known without it")

    cluster.show(print_, output)


@topic.command(short_help="Create a topic, and wait until the name servers know it.")
@click.argument("name", metavar="TOPIC")
@click.option("--queues", type=click.IntRange(min=0), default=4, show_default=True, help="Queues on each broker.")
@click.option("--read-queues", type=click.IntRange(min=0), help="Readable queues, if their number differs.")
@click.option(
    "--permission",
    type=click.Choice(PERMISSIONS),
    default="rw",
    show_default=True,
    help="Whether the topic can be read (r) and written (w).",
)
@click.option("--order", is_flag=True, help="An ordered topic: see the order configuration of name servers.")
@click.option(
    "--type", "message_type", metavar="TYPE", help="NORMAL, FIFO, DELAY or TRANSACTION; brokers of 5.x check."
)
@brokers_option
@connection_options
@json_option
def create(
    *,
    name: str,
    queues: int,
    read_queues: int | None,
    permission: str,
    order: bool,
    message_type: str | None,
    brokers: tuple[str, ...],
    cluster: ClusterConnection,
    output: Output,
) -> None:
    """Create TOPIC on all brokers, and wait until the name servers know it."""

    async def make(admin: "Admin") -> None:
        from rocket_admin.topics import create_topic, permission_bits

        await create_topic(
            admin,
            name,
            queues=queues,
            read_queues=read_queues,
            perm=permission_bits(permission),
            order=order,
            message_type=message_type,
            brokers=brokers,
        )

    cluster.run(make)
    output.done(f"Created topic {name}.", topic=name)


@topic.command(short_help="Change settings of a topic.")
@topic_argument("name", metavar="TOPIC")
@click.option("--queues", type=click.IntRange(min=0), help="Queues on each broker.")
@click.option("--read-queues", type=click.IntRange(min=0), help="Readable queues, if their number differs.")
@click.option("--permission", type=click.Choice(PERMISSIONS), help="Whether the topic can be read (r) and written (w).")
@brokers_option
@connection_options
@json_option
@yes_option
def update(
    *,
    name: str,
    queues: int | None,
    read_queues: int | None,
    permission: str | None,
    brokers: tuple[str, ...],
    cluster: ClusterConnection,
    output: Output,
    is_sure: bool,
) -> None:
    """Change settings of TOPIC on the brokers that have it; other settings stay as they are.

    Messages in removed queues are no longer consumed. So reduce --queues first, wait until the groups have consumed the
    messages there, then reduce --read-queues.
    """
    if queues is None and read_queues is None and permission is None:
        raise click.UsageError("nothing to change: give --queues, --read-queues or --permission")

    async def unread(admin: "Admin") -> int:
        """Return how many messages are in queues that would not be read any more."""
        from rocket_admin.topics import topic_queues

        readable = queues if read_queues is None else read_queues
        found = await topic_queues(admin, name)
        concerned = (queue for queue in found.queues if not brokers or queue.broker in brokers)
        return sum(queue.messages for queue in concerned if readable is not None and queue.queue >= readable)

    left = cluster.run(unread)
    if left:
        confirm(f"Nobody could read {left:,} message(s) of {name} any more. Go on?", is_sure=is_sure)

    async def change(admin: "Admin") -> "tuple[TopicOnBroker, ...]":
        from rocket_admin.topics import permission_bits, update_topic

        perm = None if permission is None else permission_bits(permission)
        return await update_topic(admin, name, queues=queues, read_queues=read_queues, perm=perm, brokers=brokers)

    output.table(cluster.run(change), _BROKERS)


@topic.command()
@topic_argument("name", metavar="TOPIC")
@connection_options
@json_option
@yes_option
def delete(*, name: str, cluster: ClusterConnection, output: Output, is_sure: bool) -> None:
    """Delete TOPIC with its messages from all brokers and name servers."""

    async def look(admin: "Admin") -> "TopicDetails":
        from rocket_admin.topics import show_topic

        return await show_topic(admin, name)

    found = cluster.run(look)
    messages = "an unknown number of" if found.messages is None else f"{found.messages:,}"
    groups = f", which {', '.join(found.groups)} consume" if found.groups else ""
    confirm(f"Delete {found.kind.value} topic {name} with {messages} message(s){groups}?", is_sure=is_sure)

    async def remove(admin: "Admin") -> None:
        await admin.delete_topic(name)

    cluster.run(remove)
    output.done(f"Deleted topic {name}.", topic=name, messages=found.messages)


def _facts(found: "TopicDetails") -> list[tuple[str, object]]:
    return [
        ("topic", found.topic),
        ("kind", found.kind.value),
        ("messages", found.messages),
        ("newest message", time_text(found.last_stored)),
        ("groups", ", ".join(found.groups) or "none"),
    ]


def _queues(topic: "Topic | TopicOnBroker") -> str | None:
    if topic.write_queues == topic.read_queues:
        return None if topic.write_queues is None else str(topic.write_queues)
    return f"{topic.write_queues} w, {topic.read_queues} r"


def _per_second(rate: float | None) -> str | None:
    """Return a rate as text; one that is small is not 0."""
    return None if rate is None else "under 0.01" if 0 < rate < 0.01 else f"{rate:,.2f}"


_LIST: "list[Column[Topic]]" = [
    Column(title="TOPIC", text=lambda topic: topic.topic, may_wrap=True),
    Column(title="QUEUES", text=_queues, is_number=True),
    Column(title="PERM", text=lambda topic: topic.permission),
    Column(title="BROKERS", text=lambda topic: topic.brokers and ", ".join(topic.brokers), may_wrap=True),
]
_LIST_WITH_KINDS: "list[Column[Topic]]" = [
    *_LIST[:1],
    Column(title="KIND", text=lambda topic: topic.kind.value),
    *_LIST[1:],
]
_BROKERS: "list[Column[TopicOnBroker]]" = [
    Column(title="BROKER", text=lambda on: on.broker, may_wrap=True),
    Column(title="QUEUES", text=_queues, is_number=True),
    Column(title="PERM", text=lambda on: on.permission),
    Column(title="ORDERED", text=lambda on: "yes" if on.order else "no"),
    Column(title="TYPE", text=lambda on: on.message_type),
]
_QUEUES: "list[Column[TopicQueue]]" = [
    Column(title="BROKER", text=lambda queue: queue.broker, may_wrap=True),
    Column(title="QUEUE", text=lambda queue: queue.queue, is_number=True),
    Column(title="MIN OFFSET", text=lambda queue: queue.min_offset, is_number=True),
    Column(title="MAX OFFSET", text=lambda queue: queue.max_offset, is_number=True),
    Column(title="MESSAGES", text=lambda queue: queue.messages, is_number=True),
    Column(title="NEWEST", text=lambda queue: time_text(queue.last_stored)),
]
_RATES: "list[Column[TopicRate]]" = [
    Column(
        title="MESSAGES",
        text=lambda rate: "stored" if rate.group is None else f"delivered to {rate.group}",
        may_wrap=True,
    ),
    Column(title="/S LAST MINUTE", text=lambda rate: _per_second(rate.per_second_minute), is_number=True),
    Column(title="/S LAST HOUR", text=lambda rate: _per_second(rate.per_second_hour), is_number=True),
    Column(title="/S LAST DAY", text=lambda rate: _per_second(rate.per_second_day), is_number=True),
    Column(title="LAST DAY", text=lambda rate: rate.messages_day, is_number=True),
]
