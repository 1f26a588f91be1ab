"""The key of a message, by which a listener handles the message once."""

from collections.abc import Callable
from typing import Final, TypeAlias, cast
from uuid import UUID

from streamkit.errors import ConfigurationError, ExpressionError
from streamkit.expression import compile_expression
from streamkit.listeners.listener import Header, IdempotentBy
from streamkit.messaging.handler import is_async
from streamkit.messaging.headers import ID
from streamkit.messaging.message import Message
from streamkit.settlement import Reject

__all__ = ["MESSAGE_ID", "MessageKey", "message_key"]

MESSAGE_ID: Final = "message-id"
"""The key is the id that the sender gave the message: resends, retries, redeliveries and dead letters keep it."""

MessageKey: TypeAlias = Callable[[Message[object]], str]
"""Returns the key of a message; raises `Reject` if the message has none."""


def message_key(by: IdempotentBy, where: str) -> MessageKey:
    """Return the function that finds keys.

    Args:
        by: An expression, a header, a function of the message, or `MESSAGE_ID`.
        where: The place where ``by`` is written, for errors.

    Raises:
        ConfigurationError: The text is not an expression, or ``by`` is of another kind.
    """
    if by == MESSAGE_ID:
        return _key(lambda message: message.headers.get(ID), MESSAGE_ID)
    if cast("object", by) is Header:
        by = Header()
    if isinstance(by, Header):
        name = by.name
        if name is None:
            raise ConfigurationError(f'{where}: the header has no name: write idempotent_by=Header("order-id")')
        return _key(lambda message: message.headers.get(name), f"header {name!r}")
    if isinstance(by, str):
        try:
            return _key(compile_expression(by), f"expression {by!r}")
        except ExpressionError as error:
            raise ConfigurationError(f"{where}: {error}") from error
    if callable(by):
        if is_async(by):
            raise ConfigurationError(
                f"{where}: {getattr(by, '__qualname__', by)} is an async def, and the function that finds the key is "
                "not awaited: write it as a def"
            )
        return _key(by, f"function {getattr(by, '__qualname__', by)}")
    raise ConfigurationError(
        f"{where}: {by!r} gives no key: expected an expression, a Header, a function of the message, or {MESSAGE_ID!r}"
    )


def _key(find: Callable[[Message[object]], object], description: str) -> MessageKey:
    """Return the function that finds keys as text; a message without one can never be handled, so it is rejected."""

    def key_of(message: Message[object]) -> str:
        try:
            found = find(message)
        except ExpressionError as error:
            raise Reject(f"the message has no key by which it is handled once: {error}", cause=error) from error
        if isinstance(found, bytes):  # a header or payload that was not converted
            found = _text(found)
        if found is None or found == "" or isinstance(found, bool) or not isinstance(found, str | int | UUID):
            raise Reject(
                f"the message has no key by which it is handled once: {description} is {found!r}; expected text, a "
                "whole number or a UUID"
            )
        return str(found)

    return key_of


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"bytes {data.hex()}"
