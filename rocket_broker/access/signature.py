"""Checks the signature of a request, which both kinds of access control have in common."""

import hmac
from collections.abc import Mapping

from rocket_broker.access.needs import refused
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.credentials import SIGNATURE, signature_of, signed_content
from rocket_remoting.wire.errors import RemoteProtocolError

__all__ = ["check_signature"]

_UNSIGNED_FIELD = "_UNIQUE_KEY_QUERY"
"""Apache's clients before 4.9.4 add this field to a request after they have signed it."""


def check_signature(
    command: RemotingCommand, fields: Mapping[str, str], secret_key: str, remark: str, *, needs_scope: bool
) -> None:
    """Check that a request has the signature that a secret key gives it.

    Args:
        command: The request.
        fields: Its header fields.
        secret_key: The secret key.
        remark: The remark of the refusal.
        needs_scope: Whether a signature that does not cover the request's code is refused.

    Raises:
        AccessRefusal: The signature is not that of the request.
    """
    given = fields.get(SIGNATURE, "").encode("utf-8", "replace")
    try:
        content = signed_content(command.code, fields, needs_scope=needs_scope)
        if hmac.compare_digest(signature_of(content, command.body, secret_key).encode(), given):
            return
        if _UNSIGNED_FIELD in fields:
            content = signed_content(command.code, fields, without=(_UNSIGNED_FIELD,), needs_scope=needs_scope)
            if hmac.compare_digest(signature_of(content, command.body, secret_key).encode(), given):
                return
    except RemoteProtocolError as error:
        raise refused(f"{remark.removesuffix('.')}: {error}") from None
    raise refused(remark)
