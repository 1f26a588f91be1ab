"""The settings of a broker, in the order in which they win: defaults, environment, settings file, options."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from rocket_broker.process.machine_settings import settings_of_machine
from rocket_broker.settings.broker_settings import SMALL_STORE, BrokerSettings
from rocket_broker.settings.properties_file import Entry, entries_of, read_properties

__all__ = ["WITHOUT_FILE", "BrokerOptions"]

DEFAULT_STORE = Path(".streamkit")
NAMESRV_ADDR = "NAMESRV_ADDR"
WITHOUT_FILE = "streamkit broker without -c"
"""The origin of settings for a developer's machine."""


class BrokerOptions(msgspec.Struct, frozen=True):
    """The options of a command that are settings of a broker.

    Attributes:
        config: The settings file.
        name_servers: The name servers to register with.
        port: The port to listen on.
        store: The directory of the store.
        log_format: The format of the log.
        own: The settings in which one of several brokers differs from the others, by Apache's keys.
    """

    config: Path | None = None
    name_servers: str | None = None
    port: int | None = None
    store: Path | None = None
    log_format: str | None = None
    own: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def is_alone(self) -> bool:
        """Whether neither a settings file nor name servers are given."""
        return self.config is None and self.name_servers is None and not os.environ.get(NAMESRV_ADDR)

    def entries(self, name_server: str = "") -> list[Entry]:
        """Return the settings; the last entry of a key wins.

        Args:
            name_server: The address of a name server that is started with the broker, if no other one is given.

        Raises:
            BrokerError: The settings file cannot be read.
        """
        entries = settings_of_machine()
        if self.config is None:
            keys = SMALL_STORE | {"storePathRootDir": str(DEFAULT_STORE)}
            entries += entries_of(keys | ({"namesrvAddr": name_server} if name_server else {}), WITHOUT_FILE)
        if addresses := os.environ.get(NAMESRV_ADDR):
            entries.append(Entry("namesrvAddr", addresses, f"environment variable {NAMESRV_ADDR}"))
        if self.config is not None:
            entries += read_properties(self.config)
        for key, value, option in (
            ("namesrvAddr", self.name_servers, "-n"),
            ("listenPort", self.port, "-p"),
            ("storePathRootDir", self.store, "--store"),
            ("logFormat", self.log_format, "--log-format"),
        ):
            if value is not None:
                entries.append(Entry(key, str(value), f"option {option}"))
        return [*entries, *entries_of(self.own, "option --processes")]

    def settings(self, name_server: str = "") -> BrokerSettings:
        """Return the settings; the arguments and errors are those of `entries`.

        Raises:
            SettingError: A value is wrong, or the broker refuses the key.
        """
        settings = BrokerSettings.from_entries(self.entries(name_server))
        settings.source = self.config
        return settings
