"""Changing a running server's settings from afar: UPDATE_BROKER_CONFIG and UPDATE_NAMESRV_CONFIG.

Anybody who reaches the server may send these requests. What they may change is said by each setting
(`rocket_broker.settings.apache_settings`); how much one request may hold is bounded here.
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

__all__ = ["answer_settings", "answer_settings_update"]

logger = logging.getLogger(__name__)

MAX_KEYS = 256
"""Of a request: more than a server has settings, so that a tool may send all it was told back."""
MAX_KEY_CHARACTERS = 128
"""The longest key of Apache's has half as many."""
MAX_VALUE_CHARACTERS = 1_024
"""Each setting that requests may change needs far fewer."""
MAX_BODY = 64 * 1024
"""Bytes of a request, read before keys and values are known."""


def answer_settings(settings: ApacheSettings, command: RemotingCommand) -> RemotingCommand:
    """Answer the effective settings as the text of a properties file."""
    return RemotingCommand.response(command, body=settings.to_properties().encode())


def answer_settings_update(
    settings: ApacheSettings, connection: Connection, command: RemotingCommand
) -> RemotingCommand:
    """Change the settings in the body, all or none, in memory and in the settings file if there is one.

    A setting that requests may not change is answered with NO_PERMISSION, as Apache's servers answer for the keys of
    their configBlackList; every other mistake with SYSTEM_ERROR.
    """
    peer = connection.remote_address
    try:
        entries = _entries(bytes(command.body), f"request of {peer}")
        settings.update(entries)
    except (BrokerError, UnicodeDecodeError, OSError) as e:
        logger.warning("settings not changed: %s", e, extra=connection.log_peer)
        code = ResponseCode.NO_PERMISSION if isinstance(e, LocalSetting) else ResponseCode.SYSTEM_ERROR
        return RemotingCommand.response(command, code, remark=str(e))
    changed = {entry.key: entry.value for entry in entries}
    logger.info("settings changed by %s: %s", peer, changed, extra=connection.log_peer)
    return RemotingCommand.response(command)


def _entries(body: bytes, origin: str) -> list[Entry]:
    """Return what a request asks for.

    Raises:
        BrokerError: The request is too large, or a key or value is, or holds control characters.
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
    """Whether a text has characters that end lines, or that cannot be written as UTF-8."""
    return any(unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"} for text in texts for c in text)
