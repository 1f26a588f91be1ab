"""Checks the signature of a request, which both kinds of access control have in common."""

import hmac

from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.credentials import SIGNATURE, signature_of

__all__ = ["is_signed_by"]

_UNSIGNED_FIELD = "_UNIQUE_KEY_QUERY"
"""Apache's clients before 4.9.4 add this field to a request after they have signed it."""


def is_signed_by(command: RemotingCommand, secret_key: str) -> bool:
    """Return whether a request has the signature that this secret key gives it."""
    fields = command.ext_fields
    given = fields.get(SIGNATURE, "").encode("utf-8", "replace")
    if hmac.compare_digest(signature_of(fields, command.body, secret_key).encode(), given):
        return True
    if _UNSIGNED_FIELD not in fields:
        return False
    signature = signature_of(fields, command.body, secret_key, without=(_UNSIGNED_FIELD,))
    return hmac.compare_digest(signature.encode(), given)
