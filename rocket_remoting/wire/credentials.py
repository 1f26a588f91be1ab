"""Credentials, and the signature with which they prove where a request comes from.

::

    content     values of all header fields, in the order of the fields' names, one after the other | body
    Signature   base64 of the HMAC-SHA1 of the content, with the secret key as its key

The fields ``AccessKey`` and, if there is one, ``SecurityToken`` are part of the content; ``Signature`` is not. The code
of the request is no part of it, nor is a time: whoever sees a request can send it again, so only TLS protects against
that. Apache's clients of 4.9 and 5.x sign in this way (``AclClientRPCHook``). This module does no I/O.
"""

import base64
import hmac
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

__all__ = ["ACCESS_KEY", "SECURITY_TOKEN", "SIGNATURE", "Credentials", "signature_of"]

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"


@dataclass(frozen=True)
class Credentials:
    """The keys of an account; its repr has no secret.

    Raises:
        ValueError: A key is empty.
    """

    access_key: str
    """The name of the account."""
    secret_key: str = field(repr=False)
    """The secret that signs requests."""
    security_token: str | None = field(default=None, repr=False)
    """Sent along with temporary keys, for servers that ask for it."""

    def __post_init__(self) -> None:
        for name in ("access_key", "secret_key"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty: requests are signed with both access_key and secret_key")

    def signed(self, fields: Mapping[str, str], body: bytes | memoryview) -> dict[str, str]:
        """Return the header fields of a request with the access key and the signature."""
        signed = {**fields, ACCESS_KEY: self.access_key}
        if self.security_token is not None:
            signed[SECURITY_TOKEN] = self.security_token
        signed[SIGNATURE] = signature_of(signed, body, self.secret_key)
        return signed


def signature_of(
    fields: Mapping[str, str], body: bytes | memoryview, secret_key: str, *, without: Collection[str] = ()
) -> str:
    """Return the signature of a request.

    Args:
        fields: The header fields.
        body: The body.
        secret_key: The secret key of the account.
        without: The names of fields that are not signed, beside the signature itself.
    """
    names = [name for name in fields if name != SIGNATURE and name not in without]
    # Java compares texts by their UTF-16 units, Python by code points; they differ beyond U+FFFF only.
    names.sort(key=None if all(map(str.isascii, names)) else _utf_16)
    content = "".join([fields[name] for name in names])
    # As Java does, a surrogate without its partner becomes a question mark.
    mac = hmac.new(secret_key.encode("utf-8", "replace"), content.encode("utf-8", "replace"), "sha1")
    mac.update(body)
    return base64.b64encode(mac.digest()).decode()


def _utf_16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
