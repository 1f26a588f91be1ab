"""`streamkit topic`: list, show, create, change and delete topics."""

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click

from rocket_admin.commands.connection_options import ClusterConnection, connection_options
from rocket_admin.commands.output import Column, Output, output_options

if TYPE_CHECKING:
    from rocket_admin.topics import Topic
    from rocket_client import Admin

__all__ = ["topic"]


@click.group()
def topic() -> None:
    """List, show, create, change and delete the topics of a RocketMQ cluster."""


@topic.command("list")
@click.argument("pattern", default="*")
@click.option("--all", "wants_all", is_flag=True, help="Also retry, dead-letter and system topics.")
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

    cluster.run(show, output)


def _queues(topic: "Topic") -> str | None:
    if topic.write_queues == topic.read_queues:
        return None if topic.write_queues is None else str(topic.write_queues)
    return f"{topic.write_queues} w, {topic.read_queues} r"


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
