"""Transaction listeners: they check the local transactions of a producer group, and may execute them.

A function only checks::

    @app.transaction_listener("orders-producer")
    async def check(order: Order, transaction: Annotated[str, Header("TRANSACTION_ID")]) -> TransactionState:
        return COMMIT if await database.has(transaction) else ROLLBACK

A class also executes the local transaction of each message sent to its group's bindings::

    @app.transaction_listener("orders-producer")
    class OrderTransactions:
        def execute_local_transaction(self, message: Message[Order], argument: object) -> TransactionState: ...
        def check_local_transaction(self, message: Message[Order]) -> TransactionState: ...

`def` methods run on threads of the group, `async def` methods on the application's loop. If a check raises, the state
is UNKNOWN, and the broker checks again later.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, Protocol

from streamkit.binder.local_transactions import TransactionHandlers
from streamkit.errors import ConfigurationError
from streamkit.listeners.arguments import (
    ProviderLookup,
    ReaderFactory,
    annotations_of,
    describe,
    plan_arguments,
)
from streamkit.listeners.invocation import call_on_thread
from streamkit.messaging.handler import awaited, is_async
from streamkit.messaging.message import Message
from streamkit.messaging.transaction import TransactionState

__all__ = ["TransactionListener", "prepare_listener"]

logger = logging.getLogger(__name__)


class TransactionListener(Protocol):
    """The methods of a transaction listener that is a class; they may be `async def` as well."""

    def execute_local_transaction(self, message: Message[Any], argument: Any) -> Any:
        """Execute the local transaction of a message and return its `TransactionState`.

        The broker has already stored the message, but does not deliver it before it knows the state.

        Args:
            message: The message as it was sent, its payload not yet converted.
            argument: The header `TRANSACTIONAL_ARG` or `TRANSACTIONAL_ARGS` of the message.
        """

    def check_local_transaction(self, message: Message[Any]) -> Any:
        """Return the `TransactionState` of a message's local transaction, which any process may have executed.

        Args:
            message: The stored message; its payload is converted to the annotated type, or stays bytes without an
                annotation.
        """


def prepare_listener(
    listener: object, pool: Callable[[], Executor], reader_for: ReaderFactory, providers: ProviderLookup
) -> TransactionHandlers:
    """Return the handlers of a transaction listener.

    Args:
        listener: A function, or an object with `check_local_transaction` and perhaps `execute_local_transaction`.
        pool: Returns the threads for `def` functions.
        reader_for: Returns the reader that converts payloads to a type.
        providers: Resolves the markers of a container.

    Raises:
        ConfigurationError: `listener` is neither of these, or has a parameter that a message cannot satisfy.
    """
    check = getattr(listener, "check_local_transaction", listener)
    if not callable(check) or isinstance(check, type):
        raise ConfigurationError(
            f"{listener!r} is not a transaction listener: pass a function, or an object with check_local_transaction"
        )
    execute = getattr(listener, "execute_local_transaction", None)
    call_check = _Call(check, pool)
    if _first_is_annotated(check):
        plan = plan_arguments(check, reader_for, providers)

        async def checked(message: Message[bytes]) -> object:
            positional, keywords = plan.arguments(message)
            return await call_check(*positional, **keywords)

    else:

        async def checked(message: Message[bytes]) -> object:
            return await call_check(message)

    return TransactionHandlers(_Checker(check, checked), None if execute is None else _Executor(execute, pool))


def _first_is_annotated(function: Callable[..., object]) -> bool:
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is None or first.name in annotations_of(function)


class _Call:
    """Calls a function: an `async def` on the loop, a `def` on a thread."""

    def __init__(self, function: Callable[..., object], pool: Callable[[], Executor]) -> None:
        self._function = function
        self._pool = pool
        self._is_async = is_async(function)

    async def __call__(self, *positional: object, **keywords: object) -> object:
        if self._is_async:
            return await awaited(self._function(*positional, **keywords))
        return await call_on_thread(self._pool(), self._function, *positional, **keywords)


class _Checker:
    """Checks a transaction by a listener; any failure yields UNKNOWN, so that the broker checks again."""

    def __init__(self, function: Callable[..., object], call: Callable[[Message[bytes]], Awaitable[object]]) -> None:
        self._function = function
        self._call = call

    async def __call__(self, message: Message[bytes]) -> TransactionState:
        try:
            return _state(self._function, await self._call(message))
        except Exception:
            logger.exception(
                "The transaction checker %s failed; the transaction stays unknown and will be checked again",
                describe(self._function),
            )
            return TransactionState.UNKNOWN


class _Executor:
    """Executes a local transaction by a listener."""

    def __init__(self, function: Callable[..., object], pool: Callable[[], Executor]) -> None:
        self._function = function
        self._call = _Call(function, pool)

    async def __call__(self, message: Message[object], argument: object) -> TransactionState:
        return _state(self._function, await self._call(message, argument))


def _state(function: Callable[..., object], said: object) -> TransactionState:
    if isinstance(said, TransactionState):
        return said
    raise TypeError(f"{describe(function)} returned {said!r}: expected a TransactionState")
