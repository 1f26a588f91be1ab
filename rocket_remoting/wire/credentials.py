"""Credentials, and the signature with which they prove where a request comes from.

::

    content     values of all header fields, in the order of the fields' names, one after the other | body
    Signature   base64 of the HMAC-SHA1 of the content, with the secret key as its key

The fields ``AccessKey`` and, if there is one, ``SecurityToken`` are part of the content; ``Signature`` is not. The code
of the request is no part of it, nor is a time: whoever sees a request can send it again, so only TLS protects against
that. Apache's clients of 4.9 and 5.x sign in this way (``AclClientRPCHook``). This module does no I/O.
"""

import hmac
from binascii import b2a_base64
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

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
    # Java compares texts by their UTF-16 units, Python by code points; they differ beyond U+FFFF only.
    names = sorted(fields, key=None if "".join(fields).isascii() else _utf_16)
    content = "".join([fields[name] for name in names if name != SIGNATURE and name not in without])
    mac = _keyed(secret_key).copy()
    # As Java does, a surrogate without its partner becomes a question mark.
    mac.update(content.encode("utf-8", "replace"))
    mac.update(body)
    return b2a_base64(mac.digest(), newline=False).decode()


@lru_cache(maxsize=256)
def _keyed(secret_key: str) -> hmac.HMAC:
    """Return an HMAC that has taken the key in; a copy of it takes less time than a new one."""
    return hmac.new(secret_key.encode("utf-8", "replace"), digestmod="sha1")


def _utf_16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
