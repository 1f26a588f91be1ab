"""The command ``streamkit transaction``, for half messages that a broker has put aside."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from binders.rocket.account_options import account_options

if TYPE_CHECKING:
    from rocket_client import Credentials

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
@click.option("--tls", "uses_tls", is_flag=True, help="Encrypt the connections.")
@click.option(
    "--tls-config",
    type=click.Path(path_type=Path),
    help="With --tls: file with Apache's settings tls.client.*, such as tls.client.trustCertPath=ca.pem. "
    "Without it the authorities that the system trusts are trusted.",
)
@account_options
def resume(
    *, message_id: str, name_servers: str, uses_tls: bool, tls_config: Path | None, credentials: "Credentials | None"
) -> None:
    """Resume the checks of a transaction that the broker has given up; their number begins anew.

    MESSAGE_ID is the offset message id of the message in topic TRANS_CHECK_MAX_TIME_TOPIC. The broker has logged it
    with the error.
    """
    if tls_config is not None and not uses_tls:
        raise click.UsageError("--tls-config needs --tls")
    import asyncio

    from rocket_client import Admin, ClientSettings, ClientTls
    from rocket_remoting import RemotingError
    from rocket_remoting.tls.properties import client_tls_of_file

    async def ask() -> None:
        tls = ClientTls() if tls_config is None else client_tls_of_file(tls_config)
        settings = ClientSettings(name_servers=name_servers, tls=tls if uses_tls else None, credentials=credentials)
        async with Admin(settings) as admin:
            await admin.resume_transaction(message_id)

    try:
        asyncio.run(ask())
    except RemotingError as error:
        raise click.ClickException(f"the transaction of message {message_id} was not brought back: {error}") from error
    click.echo(f"The broker checks the transaction of message {message_id} again.")
