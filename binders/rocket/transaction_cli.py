"""The command ``streamkit transaction``, for half messages that a broker has put aside."""

import click

__all__ = ["transaction"]


@click.group()
def transaction() -> None:
    """Bring back transactions that a RocketMQ broker has given up."""


@transaction.command()
@click.argument("message_id")
@click.option(
    "-n",
    "--name-server",
    "name_servers",
    envvar="NAMESRV_ADDR",
    default="127.0.0.1:9876",
    show_default=True,
    help="Name servers: host:port;host:port. The environment variable NAMESRV_ADDR counts as -n.",
)
def resume(*, message_id: str, name_servers: str) -> None:
    """Resume the checks of a transaction that the broker has given up; their number begins anew.

    MESSAGE_ID is the offset message id of the message in topic TRANS_CHECK_MAX_TIME_TOPIC. The broker has logged it
    with the error.
    """
    import asyncio

    from rocket_client import Admin, ClientSettings
    from rocket_remoting import RemotingError

    async def ask() -> None:
        async with Admin(ClientSettings(name_servers=name_servers)) as admin:
            await admin.resume_transaction(message_id)

    try:
        asyncio.run(ask())
    except RemotingError as error:
        raise click.ClickException(f"the transaction of message {message_id} was not brought back: {error}") from error
    click.echo(f"The broker checks the transaction of message {message_id} again.")
