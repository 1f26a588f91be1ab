"""Apache's keys that this broker does not honour, with the reasons, from ``apache_keys.toml``."""

import tomllib
from importlib.resources import files

from rocket_broker.settings.apache_settings import Refused

__all__ = ["BROKER_MEANINGLESS", "BROKER_REFUSED", "BROKER_REPORTED", "NAME_SERVER_MEANINGLESS"]


def _by_key(reasons: dict[str, str]) -> dict[str, str]:
    return {key: reason for reason, keys in reasons.items() for key in keys.split()}


_KEYS = tomllib.loads(files("rocket_broker.settings").joinpath("apache_keys.toml").read_text("utf-8"))

BROKER_MEANINGLESS = _by_key(_KEYS["broker"]["meaningless"])
"""Keys that a broker accepts with a warning, and the reason why each has no effect."""
NAME_SERVER_MEANINGLESS = _by_key(_KEYS["name_server"]["meaningless"])
"""Keys that a name server accepts with a warning, and the reason why each has no effect."""

BROKER_REFUSED = {key: Refused(**rule) for key, rule in _KEYS["broker"]["refused"].items()}
"""Keys that a broker refuses, each with its harmless value and the reason why other values are refused."""

BROKER_REPORTED = {key: rule.harmless for key, rule in BROKER_REFUSED.items()} | _KEYS["broker"]["reported"]
"""Keys that a broker reports in addition to its settings, with their values."""
