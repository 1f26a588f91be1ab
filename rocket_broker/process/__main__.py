"""One broker of `streamkit broker --processes`, which starts this program for each of its brokers."""

from pathlib import Path

import click

from rocket_broker.process.broker_options import BrokerOptions
from rocket_broker.process.launch import launch_one_of_several


@click.command()
@click.option("-c", "--config", type=click.Path(path_type=Path))
@click.option("-n", "--namesrv", "name_servers")
@click.option("--set", "own", multiple=True)
def main(*, config: Path | None, name_servers: str | None, own: tuple[str, ...]) -> None:
    """Run the broker with the settings of the file, changed by each --set KEY=VALUE."""
    keys = {key: value for key, _, value in (text.partition("=") for text in own)}
    launch_one_of_several(BrokerOptions(config, name_servers, own=keys))


if __name__ == "__main__":
    main()
