"""The command ``streamkit broker promote``, which makes a slave the master in its settings file."""

from pathlib import Path

import click

__all__ = ["promote"]


@click.command(short_help="Make a slave the master, in its settings file.")
@click.argument("config", metavar="BROKER.CONF", type=click.Path(path_type=Path))
@click.option(
    "--role",
    type=click.Choice(["SYNC_MASTER", "ASYNC_MASTER"]),
    default="SYNC_MASTER",
    show_default=True,
    help="The role of the new master.",
)
@click.option("--force", is_flag=True, help="Promote it even if messages may be lost.")
def promote(*, config: Path, role: str, force: bool) -> None:
    """Promote the slave with the settings file BROKER.CONF to master, after its master was lost.

    The slave keeps running. It is not promoted if a master is registered, or if another slave has a longer log or does
    not answer, because acknowledged messages could be lost. Restart the slave afterwards.
    """
    import asyncio

    from rocket_broker.errors import BrokerError
    from rocket_broker.replication.promotion import examine
    from rocket_broker.settings.broker_settings import BrokerSettings
    from rocket_broker.settings.properties_file import parse_properties, read_text, replace_text, rewritten
    from rocket_remoting.transports.tcp import TcpTransport

    try:
        text = read_text(config)
        settings = BrokerSettings.from_entries(parse_properties(text, str(config)))
        if not settings.is_slave:
            raise click.ClickException(f"{config} is not the settings file of a slave: brokerRole is not SLAVE")
        candidate = asyncio.run(examine(settings, TcpTransport()))
        for obstacle in candidate.obstacles:
            click.echo(f"{'Ignored' if force else 'Refused'}: {obstacle}", err=True)
        if candidate.obstacles and not force:
            raise click.ClickException("the slave is not promoted; --force promotes it although messages may be lost")
        promoted = rewritten(text, {"brokerId": "0", "brokerRole": role})
        BrokerSettings.from_entries(parse_properties(promoted, str(config)))
        replace_text(config, promoted)
    except (BrokerError, OSError) as e:
        raise click.ClickException(str(e)) from e
    click.echo(f"{config}: brokerId=0, brokerRole={role}. Restart the broker; its log ends at {candidate.end:,}.")
    click.echo("If the former master was an ASYNC_MASTER, messages that it had not sent to the slave yet are lost.")
