"""Changing a running server's settings from afar: UPDATE_BROKER_CONFIG and UPDATE_NAMESRV_CONFIG."""

import logging

from rocket_broker.apache_settings import ApacheSettings
from rocket_broker.errors import BrokerError
from rocket_broker.properties_file import parse_properties
from rocket_remoting.codes import ResponseCode
from rocket_remoting.command import RemotingCommand
from rocket_remoting.connection import Connection

__all__ = ["answer_settings", "answer_settings_update"]

_log = logging.getLogger(__name__)

PROTECTED = frozenset({"kvConfigPath", "configStorePath", "configBlackList", "brokerConfigPath"})
"""Nobody moves a server's files from afar."""


def answer_settings(settings: ApacheSettings, command: RemotingCommand) -> RemotingCommand:
    """Answer the effective settings as the text of a properties file."""
    return RemotingCommand.response(command, body=settings.to_properties().encode())


def answer_settings_update(
    settings: ApacheSettings, connection: Connection, command: RemotingCommand
) -> RemotingCommand:
    """Change the settings in the body, all or none, in memory and in the settings file if there is one."""
    peer = connection.remote_address
    try:
        entries = parse_properties(bytes(command.body).decode(), f"request of {peer}")
        if any(entry.key in PROTECTED for entry in entries):
            remark = "Can not update config path"
            return RemotingCommand.response(command, ResponseCode.NO_PERMISSION, remark=remark)
        settings.update(entries)
    except (BrokerError, UnicodeDecodeError, OSError) as e:
        _log.warning("settings not changed: %s", e)
        return RemotingCommand.response(command, ResponseCode.SYSTEM_ERROR, remark=str(e))
    _log.info("settings changed by %s: %s", peer, {entry.key: entry.value for entry in entries})
    return RemotingCommand.response(command)
