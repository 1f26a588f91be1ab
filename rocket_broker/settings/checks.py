"""Checks of settings: each returns what was expected instead of a wrong value, and None for a right one."""

import re
from collections.abc import Callable

import msgspec

from rocket_broker.settings.delay_levels import DelayLevels
from rocket_broker.settings.networks import Networks
from rocket_broker.settings.timer_settings import PRECISIONS_MS
from rocket_remoting.wire.bodies import UserInfo
from rocket_remoting.wire.credentials import Credentials

__all__ = [
    "LARGEST_PORT",
    "MASTER_ID",
    "addresses",
    "client_certificates",
    "codes",
    "credentials",
    "delay_levels",
    "host",
    "hours",
    "labels",
    "log_format",
    "metrics_exporter",
    "name",
    "networks",
    "no_test_mode",
    "only",
    "parse_credentials",
    "parse_networks",
    "parse_user",
    "permission",
    "region",
    "timer_precision",
    "tls_mode",
    "user",
]

LARGEST_PORT = 65_535
MASTER_ID = 0
"""The broker id of a master."""

MAX_DELAY_LEVELS = 1_000
"""Maximum number of delay levels, since each has a queue and a timer."""

KEYS_EXAMPLE = '{"accessKey":"…","secretKey":"…"}'
USER_EXAMPLE = '{"username":"…","password":"…"}'


class _Keys(msgspec.Struct, rename="camel"):
    access_key: str
    secret_key: str
    security_token: str | None = None


_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
_REGION = re.compile(r"[!-~]{0,127}")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*:[^:]+")
_OWN_LABELS = (
    "cluster", "consume_mode", "consumer_group", "is_retry", "is_system", "language", "le", "level", "metric",
    "node_id", "node_type", "protocol_type", "slave", "storage_medium", "storage_type", "topic",
)  # fmt: skip
"""The labels of the servers' metrics."""
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\s;]+):[0-9]{1,5}")


def name(value: str) -> str | None:
    """Check the name of a topic, a broker or a cluster."""
    return None if _NAME.fullmatch(value) else "1 to 127 of the characters a-z A-Z 0-9 _ - % |"


def region(value: str) -> str | None:
    """Check a region; every answer to a producer contains it, so its length is bounded."""
    return None if _REGION.fullmatch(value) else "at most 127 printable ASCII characters without blanks"


def addresses(value: str) -> str | None:
    """Check the addresses of name servers; there may be none."""
    parts = [part.strip() for part in value.split(";") if part.strip()]
    good = parts and all(_ADDRESS.fullmatch(part) and int(part.rpartition(":")[2]) <= LARGEST_PORT for part in parts)
    return None if good or not value else "host:port, several separated by ';', as 127.0.0.1:9876;192.168.0.1:9876"


def networks(value: str) -> str | None:
    """Check addresses and networks, separated by commas; there may be none."""
    return None if parse_networks(value) is not None else "addresses and networks, as 192.168.0.2,10.1.0.0/24"


def parse_networks(value: str) -> Networks | None:
    """Return the addresses and networks in a text; None if it has something else."""
    try:
        return Networks(part.strip() for part in value.split(",") if part.strip())
    except ValueError:
        return None


def credentials(value: str) -> str | None:
    """Check the keys of an account; there may be none."""
    return None if not value or parse_credentials(value) else f"a JSON object such as {KEYS_EXAMPLE}"


def parse_credentials(value: str) -> Credentials | None:
    """Return the keys in the JSON text that Apache's brokers of 5.x read; None if it has none."""
    try:
        keys = msgspec.json.decode(value, type=_Keys)
        return Credentials(keys.access_key, keys.secret_key, keys.security_token)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def user(value: str) -> str | None:
    """Check the first user; there may be none."""
    return None if not value or parse_user(value) else f"a JSON object such as {USER_EXAMPLE}"


def parse_user(value: str) -> UserInfo | None:
    """Return the super user in the JSON text that Apache's brokers of 5.3 read; None if it has none."""
    try:
        given = msgspec.json.decode(value, type=UserInfo)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if not (given.username or "").strip() or not (given.password or "").strip():
        return None
    status = "disable" if (given.user_status or "").lower() == "disable" else "enable"
    return UserInfo(username=given.username, password=given.password, user_type="Super", user_status=status)


def codes(value: str) -> str | None:
    """Check the codes of requests; there may be none."""
    good = all(part.strip().isdecimal() for part in value.split(",")) if value else True
    return None if good else "codes of requests, separated by commas, as 10,310"


def only(accepted: str, reason: str, *also: str) -> Callable[[str], str | None]:
    """Return a check of one of Apache's classes; the reason says why others are refused."""
    choices = ("", accepted, *also)
    return lambda value: None if value in choices else f"{' or '.join(choices[1:])}: {reason}"


def host(value: str) -> str | None:
    """Check a host to listen on or to advertise."""
    return "a host name or an IP address" if re.search(r"[\s/;]", value) else None


def delay_levels(value: str) -> str | None:
    """Check the delays of the levels."""
    try:
        levels = DelayLevels(value)
    except ValueError:
        return "delays separated by spaces, as 1s 5s 10m 2h 1d"
    return None if 1 <= levels.max_level <= MAX_DELAY_LEVELS else f"1 to {MAX_DELAY_LEVELS} delays"


def hours(value: str) -> str | None:
    """Check hours of the day."""
    parts = [part.strip() for part in value.split(";") if part.strip()]
    good = parts and all(part.isdecimal() and int(part) < 24 for part in parts)
    return None if good else "hours from 00 to 23, several separated by ';', as 04;16"


def timer_precision(value: int) -> str | None:
    """Check the milliseconds between two moments of the timers."""
    return None if value in PRECISIONS_MS else f"one of {', '.join(map(str, PRECISIONS_MS))}"


def permission(value: int) -> str | None:
    """Check the permission of a broker."""
    return None if value in (2, 4, 6) else "6 (read and write), 4 (read only) or 2 (write only)"


def log_format(value: str) -> str | None:
    """Check the format of the log."""
    return None if value in ("text", "json") else "text or json"


def metrics_exporter(value: str) -> str | None:
    """Check how metrics leave the server."""
    return None if value in ("DISABLE", "PROM") else "DISABLE or PROM: metrics are served to Prometheus, not pushed"


def labels(value: str) -> str | None:
    """Check labels of metrics; there may be none."""
    parts = [part.strip() for part in value.split(",") if part.strip()]
    names = {part.partition(":")[0] for part in parts}
    good = all(_LABEL.fullmatch(part) for part in parts) and len(names) == len(parts) and names.isdisjoint(_OWN_LABELS)
    return None if good else f"labels as zone:a,rack:7, none of them twice, and none of {', '.join(_OWN_LABELS)}"


def tls_mode(value: str) -> str | None:
    """Check which connections a server accepts; the empty text is the default."""
    return None if value in ("", "disabled", "permissive", "enforcing") else "disabled, permissive or enforcing"


def client_certificates(value: str) -> str | None:
    """Check whether clients are asked for certificates."""
    return None if value in ("none", "optional", "require") else "none, optional or require"


def no_test_mode(value: bool) -> str | None:
    """Check that Apache's test mode of TLS is off."""
    return "false: certificates are not made up here, set tls.server.certPath" if value else None
