"""Which of the plain sends that arrive together their senders may send.

::

    first request of a sender    decoded, and checked as any other request
    its further requests         the signature of what the native core has read

A sender is an account on a connection, which sends to a topic with a certain request code. It keeps its right until
accounts or rights change. Requests that need no signature, or are signed in an unusual way, are checked one by one.
"""

from collections.abc import Sequence
from functools import lru_cache
from hmac import compare_digest
from typing import TYPE_CHECKING

from rocket_broker.access.needs import Needs, RequestCheck
from rocket_broker.limits.refusal import Refusal
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.command import PREFIX, decode_json_header
from rocket_remoting.wire.credentials import BEGIN_OF_SCOPE, SigningKey, scope_of
from rocket_remoting.wire.errors import RemoteProtocolError

if TYPE_CHECKING:
    from rocket_native import PlainSends

__all__ = ["SendGrants"]

_MOST_SENDERS = 4_096
"""Senders that are known. Beyond that number all are forgotten, and checked again."""

_scope_of = lru_cache(maxsize=1024)(scope_of)
"""Requests of one producer have few layouts; the native core reads no layout above some hundred bytes."""

_Sender = tuple[str, int, str, str]
"""The address of a connection, the request code, the access key and the topic."""


class SendGrants:
    """Checks the sends of a run.

    Args:
        access: The access control.
        needs: What a send needs.
    """

    def __init__(self, access: RequestCheck, needs: Needs) -> None:
        self._access = access
        self._needs = needs
        self._needs_scope = access.needs_scope
        # The keys that sign the requests of senders, as long as access control has this version.
        self._keys: dict[_Sender, SigningKey] = {}
        self._version = access.version

    def allowed(
        self, received: Sequence[tuple[Connection, memoryview]], sends: "PlainSends", most: Sequence[int]
    ) -> list[int]:
        """Return for each connection the number of its first requests that their senders may send.

        Args:
            received: For each connection the bytes in which the requests are.
            sends: The requests.
            most: For each connection the number of its first requests to check.
        """
        version = self._access.version
        if self._version is not version or len(self._keys) > _MOST_SENDERS:
            self._version = version
            self._keys.clear()
        topics = [topic for topic, _ in sends.targets]
        senders: list[_Sender] = [
            (received[connection][0].remote_address, code, access_key, topics[target])
            for connection, code, access_key, target in sends.senders
        ]
        keys = [self._keys.get(sender) for sender in senders]
        allowed: list[int] = []
        for number, ((connection, data), bound) in enumerate(zip(received, most, strict=True)):
            count = self._allowed(connection, data, sends.signatures(number), bound, senders, keys) if bound else 0
            if count and not connection.is_known:
                connection.mark_known()
            allowed.append(count)
        return allowed

    def _allowed(  # noqa: PLR0917 - called for each connection of a run
        self,
        connection: Connection,
        data: memoryview,
        signatures: "Sequence[tuple[int, bytes, bytes, tuple[bytes, bytes] | None] | None]",
        most: int,
        senders: Sequence[_Sender],
        keys: list[SigningKey | None],
    ) -> int:
        """Return the number of a connection's first requests that may be sent, of `most`."""
        skipped = position = 0
        for number in range(most):
            signed = signatures[number]
            key = None
            if signed is not None:
                sender, content, signature, scope = signed
                key, code = keys[sender], senders[sender][1]
            if key is not None:
                # As `signed_content` does. What is wrong is left to the request's own handler, which says so.
                if scope is None:
                    if self._needs_scope or content.startswith(BEGIN_OF_SCOPE):
                        return number
                elif _scope_of(code, scope[1]) != scope[0]:
                    return number
                if not compare_digest(key.signature(content), signature):
                    return number
                continue
            for _ in range(skipped, number):
                position += PREFIX.unpack_from(data, position)[0] + 4
            skipped = number
            try:
                is_signed = self._check(connection, data, position)
            except (Refusal, RemoteProtocolError):  # the request's own handler answers it
                return number
            if is_signed and signed is not None:
                key = SigningKey(self._access.secret_key(senders[sender][2]))
                keys[sender] = self._keys[senders[sender]] = key
        return most

    def _check(self, connection: Connection, data: memoryview, position: int) -> bool:
        """Check the request at a position, which the native core has read.

        Raises:
            Refusal: The sender may not send it.
            RemoteProtocolError: It cannot be read.
        """
        length, header_length = PREFIX.unpack_from(data, position)
        body = position + PREFIX.size + header_length
        command = decode_json_header(bytes(data[position + PREFIX.size : body]))
        command.body = data[body : position + 4 + length]
        return self._access.check(connection, command, self._needs)
