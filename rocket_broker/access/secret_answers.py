"""The question whether an answer may show secret keys and passwords: only to another broker of the same account."""

from rocket_broker.access.needs import AccessRefusal
from rocket_broker.access.signature import check_signature
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.credentials import ACCESS_KEY
from rocket_remoting.wire.headers import WITH_SECRETS

__all__ = ["HIDDEN", "may_see_secrets"]

HIDDEN = "******"
"""The text that answers have in place of a secret. It is refused as a secret, since tools send back what they read."""


def may_see_secrets(command: RemotingCommand, settings: BrokerSettings) -> bool:
    """Return whether a request asks for secrets, and is signed with the key by which this broker signs its own ones.

    Its slave has the same key (`innerClientAuthenticationCredentials`), and takes the accounts over. The signature is
    checked here, since access control lets addresses of white lists pass unsigned.
    """
    own = settings.credentials
    if own is None or command.ext_fields.get(WITH_SECRETS) != "true":
        return False
    if command.ext_fields.get(ACCESS_KEY) != own.access_key:
        return False
    try:
        check_signature(command, command.ext_fields, own.secret_key, "", needs_scope=settings.require_signed_code)
    except AccessRefusal:
        return False
    return True
