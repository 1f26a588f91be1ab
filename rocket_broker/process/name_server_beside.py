"""The name server that is started with brokers if none is named."""

from collections.abc import Iterable
from typing import Final

from rocket_broker.namesrv.settings import NameServerSettings
from rocket_broker.process.broker_options import WITHOUT_FILE
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.settings.properties_file import Entry, entries_of
from rocket_broker.settings.tls_settings import name_server_entries

__all__ = ["NAME_SERVER_PORT", "name_server_beside"]

NAME_SERVER_PORT: Final = 9876


def name_server_beside(broker: BrokerSettings, entries: Iterable[Entry], port: int) -> NameServerSettings:
    """Return the settings of the name server: it listens where brokers do, and has the same settings of TLS.

    Args:
        broker: The settings of the broker, or those that several brokers share.
        entries: The entries of these settings.
        port: The port of the name server; 0 for a free one.
    """
    keys = {
        "listenPort": str(port),
        "bindAddress": broker.listen_host,
        "kvConfigPath": str(broker.store_path_root_dir / "namesrv" / "kvConfig.json"),
        "orderMessageEnable": "true",
    }
    return NameServerSettings.from_entries([*entries_of(keys, WITHOUT_FILE), *name_server_entries(entries)])
