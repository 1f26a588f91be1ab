"""The settings of several brokers that one command starts from the settings of one broker.

::

    brokerName           broker-a-0           broker-a-1           broker-a-2
    listenPort           10911                10921                10931
    VIP channel          10909                10919                10929        listenPort - 2, as on Apache's brokers
    haListenPort         10912                10922                10932        if slaves are accepted
    storePathRootDir     store/broker-a-0     store/broker-a-1     store/broker-a-2

All other settings are the same.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from rocket_broker.errors import BrokerError, SettingError
from rocket_broker.settings.apache_settings import DEFAULT_ORIGIN
from rocket_broker.settings.broker_settings import BrokerSettings

__all__ = ["PORTS_APART", "check_several", "settings_of_number", "stores_without_broker"]

PORTS_APART: Final = 10
"""Ports from one broker's `listenPort` to the next one's. A broker uses those from listenPort - 2 to listenPort + 1."""


def check_several(common: BrokerSettings) -> None:
    """Check that several brokers can be started from these settings.

    Raises:
        SettingError: A setting does not allow it.
        BrokerError: The directory of the stores has the store of a single broker.
    """
    if not common.listen_port:
        raise _refused(
            common, "listenPort", "0", "a killed broker comes back at the same port; expected a number above 0"
        )
    if common.is_slave:
        reason = "brokers are masters; start each slave with a settings file of its own, so that it can be promoted"
        raise _refused(common, "brokerRole", common.broker_role.name, reason)
    root = common.store_path_root_dir
    if (root / "config").is_dir() or (root / "commitlog").is_dir():
        first = root / f"{common.broker_name}-0"
        raise BrokerError(
            f"{root} is the store of a single broker, whose messages no broker of --processes would serve: move its "
            f"content to {first}, or choose another directory (--store, storePathRootDir)"
        )


def settings_of_number(common: BrokerSettings, number: int) -> Mapping[str, str]:
    """Return the settings in which a broker differs from the common ones, by Apache's keys.

    Args:
        common: The settings that were given for all brokers.
        number: The number of the broker, from 0 on.
    """
    name = f"{common.broker_name}-{number}"
    keys = {
        "brokerName": name,
        "listenPort": str(common.listen_port + PORTS_APART * number),
        "storePathRootDir": str(common.store_path_root_dir / name),
    }
    if common.ha_listen_port:
        keys["haListenPort"] = str(common.ha_listen_port + PORTS_APART * number)
    if common.store_path_commit_log is not None:
        keys["storePathCommitLog"] = str(common.store_path_commit_log / name)
    if common.audit_log_path is not None:
        keys["auditLogPath"] = str(common.audit_log_path.with_name(f"{name}-{common.audit_log_path.name}"))
    if common.log_format != "text":
        keys["logFormat"] = common.log_format
    if common.serves_metrics and common.metrics_prom_exporter_port:
        keys["metricsPromExporterPort"] = str(common.metrics_prom_exporter_port + number)
    return keys


def stores_without_broker(common: BrokerSettings, processes: int) -> Iterator[Path]:
    """Yield the stores that a command with more processes has left, whose messages none of these brokers serves."""
    root = common.store_path_root_dir
    for path in sorted(root.glob(f"{common.broker_name}-*")):
        number = path.name.rpartition("-")[2]
        if number.isdecimal() and int(number) >= processes and (path / "config").is_dir():
            yield path


def _refused(common: BrokerSettings, key: str, value: str, reason: str) -> SettingError:
    return SettingError(key, value, common.origins.get(key, DEFAULT_ORIGIN), f"with --processes, {reason}")
