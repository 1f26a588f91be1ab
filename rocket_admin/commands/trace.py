"""`streamkit trace`: what clients have written about a message's send and consumption."""

from typing import TYPE_CHECKING

import click

from rocket_admin.commands.connection_options import ClusterConnection, connection_options
from rocket_admin.commands.output import Column, Output, output_options

if TYPE_CHECKING:
    from rocket_client import Admin
    from rocket_remoting.wire.message_trace import TraceRecord

__all__ = ["trace"]


@click.group()
def trace() -> None:
    """Show the message traces that clients of a RocketMQ cluster have written."""


@trace.command(short_help="Show the trace of a message.")
@click.argument("message_id")
@click.option("--topic", default="RMQ_SYS_TRACE_TOPIC", show_default=True, help="The topic that clients write to.")
@connection_options
@output_options
def show(*, message_id: str, topic: str, cluster: ClusterConnection, output: Output) -> None:
    """Show the trace of the message with MESSAGE_ID, the unique id that its sender has logged.

    Only clients with enable-msg-trace write traces, within some seconds.
    """

    async def show_(admin: "Admin") -> None:
        records = await admin.message_trace(message_id, topic=topic)
        output.table(records, _COLUMNS)
        if not records:
            output.hint(f"{topic} has no trace of message {message_id}: does its client write any?")

    cluster.show(show_, output)


def _time(record: "TraceRecord") -> str | None:
    from datetime import UTC, datetime

    if not record.time_ms:
        return None
    moment = datetime.fromtimestamp(record.time_ms / 1000, UTC).astimezone()
    return f"{moment:%Y-%m-%d %H:%M:%S.%f}"[:-3]


def _result(record: "TraceRecord") -> str | None:
    if record.transaction_state is not None:
        return record.transaction_state
    if record.type == "SubBefore":
        return f"delivery {record.retry_times + 1}"
    return "success" if record.success else "failed"


_COLUMNS: "list[Column[TraceRecord]]" = [
    Column(title="TIME", text=_time),
    Column(title="TYPE", text=lambda record: record.type.value),
    Column(title="GROUP", text=lambda record: record.group, may_wrap=True),
    Column(title="CLIENT", text=lambda record: record.client_host),
    Column(title="MS", text=lambda record: record.cost_ms if record.type != "SubBefore" else None, is_number=True),
    Column(title="RESULT", text=_result),
]
