"""The settings of the name server: Apache's keys that have an effect here.

Defaults are those of Apache RocketMQ 4.9.7 unless a field says otherwise; keys that only 5.x has say so.
"""

# ruff: noqa: RUF009 - `setting` specifies a field, as dataclasses.field does

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rocket_broker.settings import checks
from rocket_broker.settings.apache_keys import NAME_SERVER_MEANINGLESS
from rocket_broker.settings.apache_settings import setting
from rocket_broker.settings.audit_settings import AuditSettings
from rocket_broker.settings.checks import LARGEST_PORT
from rocket_broker.settings.monitoring_settings import MonitoringSettings
from rocket_broker.settings.server_settings import LOOPBACK, address_connections_ratio, rocketmq_home
from rocket_broker.settings.tls_settings import TlsSettings

__all__ = ["NameServerSettings"]

_FILE = "it names a file of the server"
"""The reason why requests cannot change a setting."""


@dataclass(init=False, repr=False, eq=False)
class NameServerSettings(TlsSettings, AuditSettings, MonitoringSettings):
    """The settings of a name server, from ``namesrv.conf``, options and code."""

    meaningless: ClassVar[Mapping[str, str]] = NAME_SERVER_MEANINGLESS

    listen_port: int = setting(
        9876, "TCP port for brokers and clients; 0 takes any free port.", maximum=LARGEST_PORT, fixed=True
    )
    bind_address: str = setting(LOOPBACK, "Address to listen on (5.x).", check=checks.host, fixed=True)
    acl_enable: bool = setting(
        False,
        "Let only signed requests of administrators register brokers, write the key-value configuration, delete "
        "topics, and change permissions and settings, by the accounts in plain_acl.yml (no key of Apache's name "
        "server).",
        fixed=True,
    )
    require_signed_code: bool = setting(
        False,
        "Refuse signed requests whose signature does not cover the request's code, such as those of Apache's clients "
        "(no key of Apache's).",
        fixed=True,
    )
    remote_administration_enable: bool = setting(
        False,
        "Without aclEnable, let clients on other machines write the key-value configuration, delete topics, and change "
        "permissions and settings (no key of Apache's).",
        fixed=True,
    )
    rocketmq_home: Path | None = rocketmq_home()
    kv_config_path: Path = setting(
        Path.home() / "namesrv" / "kvConfig.json",
        "File of the key-value configuration (PUT_KV_CONFIG).",
        fixed=True,
        local=_FILE,
    )
    config_store_path: Path | None = setting(
        None,
        "File that settings changed by requests are written to; default: the settings file.",
        fixed=True,
        local=_FILE,
    )
    order_message_enable: bool = setting(
        False,
        "Put the order configuration of topics (orderTopicConf) into routes; default when embedded, and "
        "beside a broker without a settings file: true.",
    )
    return_order_topic_config_to_broker: bool = setting(
        True, "Answer registrations with the order configuration of topics (5.x)."
    )
    delete_topic_with_broker_registration: bool = setting(
        False, "Remove the topics of a broker that its new registration does not list (5.x)."
    )
    enable_all_topic_list: bool = setting(True, "Answer requests for the list of all topics (5.x).")
    enable_topic_list: bool = setting(True, "Answer requests for lists of topics by cluster or kind (5.x).")
    scan_not_active_broker_interval: int = setting(
        10_000, "Milliseconds between scans for brokers that have stopped registering.", minimum=1, fixed=True
    )
    server_channel_max_idle_time_seconds: int = setting(
        120, "Seconds without traffic after which a connection is closed; 0: never.", fixed=True
    )
    max_address_connections_ratio: int = address_connections_ratio()

    @property
    def accounts_dir(self) -> Path:
        """Directory of ``plain_acl.yml``."""
        if self.rocketmq_home is not None:
            return self.rocketmq_home / "conf"
        return self.kv_config_path.parent if self.source is None else self.source.parent
