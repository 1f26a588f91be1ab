"""`streamkit cluster`: a cluster at a glance."""

from typing import TYPE_CHECKING

import click

from rocket_admin.commands.broker import BROKERS
from rocket_admin.commands.connection_options import ClusterConnection, connection_options
from rocket_admin.commands.output import Output, output_options

if TYPE_CHECKING:
    from rocket_admin.cluster import Overview
    from rocket_client import Admin

__all__ = ["cluster"]


@click.command()
@connection_options
@output_options
def cluster(*, cluster: ClusterConnection, output: Output) -> None:
    """Show an overview of a RocketMQ cluster: brokers, rates, numbers of topics and groups."""

    async def print_(admin: "Admin") -> None:
        from rocket_admin.cluster import overview

        found = await overview(admin)
        output.facts(found, _facts(found))
        if not output.as_json:
            output.say("")
            output.table(found.brokers, BROKERS)
        output.failures(found.failures, "it did not answer")

    cluster.show(print_, output)


def _facts(found: "Overview") -> list[tuple[str, object]]:
    return [
        ("name servers", ", ".join(found.name_servers)),
        ("clusters", ", ".join(found.clusters)),
        ("topics", found.topics),
        ("dead-letter topics", found.dead_letter_topics),
        ("groups", found.groups),
        ("stored a second", found.sends_per_second),
        ("delivered a second", found.deliveries_per_second),
    ]
