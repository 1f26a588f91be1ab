"""Credentials, and the signature with which they prove where a request comes from.

::

    content     values of all header fields, in the order of the fields' names, one after the other | body
    Signature   base64 of the HMAC-SHA1 of the content, with the secret key as its key

The fields ``AccessKey`` and, if there is one, ``SecurityToken`` are part of the content; ``Signature`` is not. Apache's
clients of 4.9 and 5.x sign in this way (``AclClientRPCHook``).

The content has neither the code of the request, nor names, nor the borders between values: whoever sees a signed
request could send it with another code, or as fields of other names and lengths. So requests of our clients have one
more field, which Apache's servers ignore. Its name comes before all others, so the content begins with its value:

::

    !Scope      code=310;fields=0b2c…;
                     |          `- the first 32 hexadecimal digits of the SHA-256 of [[names], [lengths]] in JSON
                     `- the code of the request

The names are those of all other fields but ``Signature``, in order, and the lengths those of their values in
characters. `signed_content` refuses a request that does not agree with its scope, or has lost it.

There is no time in it: whoever sees a request can send it again as it is. Only TLS protects against that. This module
does no I/O.
"""

import hashlib
from binascii import b2a_base64
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

import msgspec

from rocket_remoting.wire.codes import request_name
from rocket_remoting.wire.errors import RemoteProtocolError

__all__ = [
    "ACCESS_KEY", "BEGIN_OF_SCOPE", "SCOPE", "SECURITY_TOKEN", "SIGNATURE", "Credentials", "SigningKey", "scope_of",
    "signature_of", "signed_content",
]  # fmt: skip

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"
SCOPE = "!Scope"
"""The field with the code and the layout of the request that is signed. ``!`` comes before letters and digits."""

_NO_SCOPE = f"its code is not signed, and this server has requireSignedCode=true (its client sends no field {SCOPE})"
_BEGIN = "code="
BEGIN_OF_SCOPE = _BEGIN.encode()
"""What a signed content begins with if, and only if, its request has a scope."""
_DIGITS = 32
_to_json = msgspec.json.Encoder().encode


class Credentials(msgspec.Struct, frozen=True):
    """The keys of an account; its repr has no secret.

    Raises:
        ValueError: A key is empty.
    """

    access_key: str
    """The name of the account."""
    secret_key: str
    """The secret that signs requests."""
    security_token: str | None = None
    """Sent along with temporary keys, for servers that ask for it."""

    def __post_init__(self) -> None:
        for name in ("access_key", "secret_key"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty: requests are signed with both access_key and secret_key")

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("access_key", self.access_key)]

    def signed(self, code: int, fields: Mapping[str, str], body: bytes | memoryview) -> dict[str, str]:
        """Return the header fields of a request with the access key, the scope and the signature."""
        signed = {**fields, ACCESS_KEY: self.access_key}
        if self.security_token is not None:
            signed[SECURITY_TOKEN] = self.security_token
        names = _in_order(signed, (SCOPE,))
        signed[SCOPE] = scope = _scope_of(code, names, signed)
        content = scope + "".join([signed[name] for name in names])
        signed[SIGNATURE] = signature_of(content, body, self.secret_key)
        return signed


def signed_content(
    code: int, fields: Mapping[str, str], *, without: Collection[str] = (), needs_scope: bool = False
) -> str:
    """Return the text that is signed beside the body of a received request.

    Args:
        code: The code of the request.
        fields: The header fields.
        without: The names of fields that are not signed, beside the signature itself.
        needs_scope: Whether a request without a scope is refused.

    Raises:
        RemoteProtocolError: The request is not the one that was signed, if the signature is right.
    """
    names = _in_order(fields, without)
    content = "".join([fields[name] for name in names])
    if not content.startswith(_BEGIN):
        if needs_scope:
            raise RemoteProtocolError(_NO_SCOPE)
        return content
    # If the scope has become the value of another field, the request was changed: Apache's clients begin otherwise.
    scope = fields[SCOPE] if names[0] == SCOPE else ""
    if scope != _scope_of(code, names[1:], fields):
        signed = scope.removeprefix(_BEGIN).partition(";")[0]
        if signed != str(code) and signed.isascii() and signed.isdigit() and len(signed) <= _DIGITS:
            raise RemoteProtocolError(f"it was signed as {request_name(int(signed))}, and sent as {request_name(code)}")
        raise RemoteProtocolError("its fields are not those that were signed")
    return content


def signature_of(content: str, body: bytes | memoryview, secret_key: str) -> str:
    """Return the signature of a request.

    Args:
        content: The values of the header fields, in the order of their names.
        body: The body.
        secret_key: The secret key of the account.
    """
    # As Java does, a surrogate without its partner becomes a question mark.
    return _signing_key(secret_key).signature(content.encode("utf-8", "replace"), body).decode()


def _in_order(fields: Mapping[str, str], without: Collection[str] = ()) -> list[str]:
    """Return the names of the fields that are signed, in the order in which their values are."""
    # Java compares texts by their UTF-16 units, Python by code points; they differ beyond U+FFFF only.
    names = sorted(fields, key=None if "".join(fields).isascii() else _utf_16)
    for name in (SIGNATURE, *without):
        if name in fields:
            names.remove(name)
    return names


def _scope_of(code: int, names: Sequence[str], fields: Mapping[str, str]) -> str:
    """Return the scope of a request with these other fields."""
    lengths = [len(fields[name]) for name in names]
    return scope_of(code, _to_json((names, lengths))).decode()


def scope_of(code: int, layout: bytes) -> bytes:
    """Return the scope of a request.

    Args:
        code: The code of the request.
        layout: ``[[names], [lengths]]`` of its other fields, in JSON without spaces.
    """
    return f"{_BEGIN}{code};fields={hashlib.sha256(layout).hexdigest()[:_DIGITS]};".encode()


class SigningKey:
    """A secret key that signs one request after the other.

    ::

        HMAC    SHA1(key ^ 0x5C… | SHA1(key ^ 0x36… | content))        key: zeros up to 64 bytes; a longer one is hashed

    Both hashes have taken the key in, and are copied for each request. That takes less than half the time of `hmac`,
    which looks its hash up at each call or has a method in Python for each step.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret_key: str) -> None:
        key = secret_key.encode("utf-8", "replace")
        if len(key) > _BLOCK:
            key = hashlib.sha1(key, usedforsecurity=False).digest()
        key = key.ljust(_BLOCK, b"\0")
        # Without the flag, OpenSSL may refuse SHA-1 where it is held to FIPS; Apache's clients sign with nothing else.
        self._inner = hashlib.sha1(key.translate(_INNER), usedforsecurity=False)
        self._outer = hashlib.sha1(key.translate(_OUTER), usedforsecurity=False)

    def signature(self, *content: bytes | memoryview) -> bytes:
        """Return the signature of the content, given in pieces."""
        inner, outer = self._inner.copy(), self._outer.copy()
        for piece in content:
            inner.update(piece)
        outer.update(inner.digest())
        return b2a_base64(outer.digest(), newline=False)


_BLOCK = 64
"""Bytes of a block of SHA-1."""
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))

_signing_key = lru_cache(maxsize=256)(SigningKey)


def _utf_16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
