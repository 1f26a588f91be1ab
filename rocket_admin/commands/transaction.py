"""`streamkit transaction`, for half messages that a broker has put aside."""

from typing import TYPE_CHECKING

import click

from rocket_admin.commands.connection_options import ClusterConnection, connection_options

if TYPE_CHECKING:
    from rocket_client import Admin

__all__ = ["transaction"]


@click.group()
def transaction() -> None:
    """Bring back transactions that a RocketMQ broker has given up."""


@transaction.command(short_help="Resume the checks of a transaction that was given up.")
@click.argument("message_id")
@connection_options
def resume(*, message_id: str, cluster: ClusterConnection) -> None:
    """Resume the checks of a transaction that the broker has given up; their count begins at 0 again.

    MESSAGE_ID is the offset message id of the message in topic TRANS_CHECK_MAX_TIME_TOPIC. The broker has logged it
    with the error.
    """

    async def ask(admin: "Admin") -> None:
        from rocket_remoting import RemotingError

        try:
            await admin.resume_transaction(message_id)
        except RemotingError as error:
            text = f"the transaction of message {message_id} was not brought back: {error}"
            raise click.ClickException(text) from error

    cluster.run(ask)
    click.echo(f"The broker checks the transaction of message {message_id} again.")
