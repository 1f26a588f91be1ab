"""Changes of a running server's settings by request: UPDATE_BROKER_CONFIG and UPDATE_NAMESRV_CONFIG.

Without access control, every client that reaches the server may send these requests. Each setting says whether requests
may change it (`rocket_broker.settings.apache_settings`); this module limits the size of a request.
"""

import logging
import unicodedata
from collections.abc import Iterable

from rocket_broker.errors import BrokerError, LocalSetting
from rocket_broker.settings.apache_settings import ApacheSettings
from rocket_broker.settings.properties_file import Entry, parse_properties
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand

__all__ = ["answer_settings", "answer_settings_update", "settings_in"]

logger = logging.getLogger(__name__)

MAX_KEYS = 256
"""Settings of one request: more than a server has, so that a tool may send back all settings that it has read."""
MAX_KEY_CHARACTERS = 128
"""Twice the length of Apache's longest key."""
MAX_VALUE_CHARACTERS = 1_024
"""More than any setting needs that requests may change."""
MAX_BODY = 64 * 1024
"""Bytes of a request, checked before keys and values are parsed."""


def answer_settings(settings: ApacheSettings, command: RemotingCommand) -> RemotingCommand:
    """Return the response with the effective settings in the format of a properties file."""
    return RemotingCommand.response(command, body=settings.to_properties().encode())


def answer_settings_update(
    settings: ApacheSettings, connection: Connection, command: RemotingCommand
) -> RemotingCommand:
    """Change the settings in the body, all or none, in memory and in the settings file if there is one.

    A setting that requests may not change is answered with NO_PERMISSION, as by Apache's servers for the keys of their
    configBlackList; any other error with SYSTEM_ERROR.
    """
    peer = connection.remote_address
    try:
        entries = _entries(bytes(command.body), f"request of {peer}")
        settings.update(entries)
    except (BrokerError, UnicodeDecodeError, OSError) as e:
        logger.warning("settings not changed: %s", e, extra=connection.log_peer)
        code = ResponseCode.NO_PERMISSION if isinstance(e, LocalSetting) else ResponseCode.SYSTEM_ERROR
        return RemotingCommand.response(command, code, remark=str(e))
    changed = {entry.key: entry.value for entry in entries if entry.key not in settings.secrets()}
    logger.info("settings changed by %s: %s", peer, changed, extra=connection.log_peer)
    return RemotingCommand.response(command)


def settings_in(command: RemotingCommand) -> list[str]:
    """Return the keys of the settings in a request.

    Raises:
        BrokerError: The request, a key or a value is too long, or a key or value holds control characters.
        UnicodeDecodeError: The body is not UTF-8 text.
    """
    return [entry.key for entry in _entries(bytes(command.body), "request")]


def _entries(body: bytes, origin: str) -> list[Entry]:
    """Return the settings in a request.

    Raises:
        BrokerError: The request, a key or a value is too long, or a key or value holds control characters.
        UnicodeDecodeError: The body is not UTF-8 text.
    """
    if len(body) > MAX_BODY:
        raise BrokerError(f"{origin}: {len(body)} bytes of settings, at most {MAX_BODY} are read")
    entries = parse_properties(body.decode(), origin)
    if len(entries) > MAX_KEYS:
        raise BrokerError(f"{origin}: {len(entries)} settings, at most {MAX_KEYS} are changed at once")
    for number, entry in enumerate(entries, 1):
        if len(entry.key) > MAX_KEY_CHARACTERS:
            raise BrokerError(f"{origin}: key {number} has more than {MAX_KEY_CHARACTERS} characters")
        if len(entry.value) > MAX_VALUE_CHARACTERS:
            raise BrokerError(
                f"{entry.origin}: the value of {entry.key!r} has more than {MAX_VALUE_CHARACTERS} characters"
            )
        if _has_controls((entry.key, entry.value)):
            raise BrokerError(f"{entry.origin}: {entry.key!r} or its value has control characters")
    return entries


def _has_controls(texts: Iterable[str]) -> bool:
    """Return whether a text has characters that end lines, or that UTF-8 cannot encode."""
    return any(unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"} for text in texts for c in text)
