"""The settings that a machine has for all servers on it."""

import os
from typing import Final

from rocket_broker.settings.apache_settings import DEFAULT_ORIGIN
from rocket_broker.settings.properties_file import Entry
from rocket_broker.settings.tls_settings import DEFAULT_TLS_FILE

__all__ = ["settings_of_machine"]

_ROCKETMQ_HOME: Final = "ROCKETMQ_HOME"


def settings_of_machine() -> list[Entry]:
    """Return the settings: Apache's file of TLS, and the environment variable ROCKETMQ_HOME."""
    entries = []
    if os.access(DEFAULT_TLS_FILE, os.R_OK):
        entries.append(Entry("tls.config.file", str(DEFAULT_TLS_FILE), DEFAULT_ORIGIN))
    home = os.environ.get(_ROCKETMQ_HOME)
    if home:
        entries.append(Entry("rocketmqHome", home, f"environment variable {_ROCKETMQ_HOME}"))
    return entries
