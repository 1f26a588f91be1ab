"""Transaction listeners: who tells how a local transaction ended, and who may execute it.

A function that is only asked::

    @app.transaction_listener("orders-producer")
    async def check(order: Order, transaction: Annotated[str, Header("TRANSACTION_ID")]) -> TransactionState:
        return COMMIT if await database.has(transaction) else ROLLBACK

A class that executes the local transaction of whatever is sent to its group's bindings, too::

    @app.transaction_listener("orders-producer")
    class OrderTransactions:
        def execute_local_transaction(self, message: Message[Order], argument: object) -> TransactionState: ...
        def check_local_transaction(self, message: Message[Order]) -> TransactionState: ...

`def` runs on threads of the group, `async def` on the application's loop. A checker that raises says UNKNOWN.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, Protocol, cast

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
from streamkit.messaging.handler import is_async
from streamkit.messaging.message import Message
from streamkit.messaging.transaction import TransactionState

__all__ = ["TransactionListener", "prepare_listener"]

logger = logging.getLogger(__name__)


class TransactionListener(Protocol):
    """What a class of a transaction listener has; its methods may be `async def` as well."""

    def execute_local_transaction(self, message: Message[Any], argument: Any) -> Any:
        """Execute the local transaction of a message that is stored, and return its `TransactionState`.

        Args:
            message: What was sent, its payload as it was.
            argument: The header `TRANSACTIONAL_ARG` or `TRANSACTIONAL_ARGS` of what was sent.
        """

    def check_local_transaction(self, message: Message[Any]) -> Any:
        """Return the `TransactionState` of the local transaction of a message, whoever executed it.

        Args:
            message: As it was stored; its payload read as the annotation says, bytes without one.
        """


def prepare_listener(
    listener: object, pool: Callable[[], Executor], reader_for: ReaderFactory, providers: ProviderLookup
) -> TransactionHandlers:
    """Make the handlers of a transaction listener.

    Args:
        listener: A function, or an object with `check_local_transaction` and perhaps `execute_local_transaction`.
        pool: Where it runs if it is `def`.
        reader_for: Makes what reads payloads as a type.
        providers: Where the markers of a container are looked up.

    Raises:
        ConfigurationError: It is neither, or asks for what a message cannot give.
    """
    check = getattr(listener, "check_local_transaction", listener)
    if not callable(check) or isinstance(check, type):
        raise ConfigurationError(
            f"{listener!r} is no transaction listener: it is neither a function nor has it check_local_transaction"
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

    return TransactionHandlers(
        _Checker(check, checked), None if execute is None else _Executor(execute, pool)
    )


def _first_is_annotated(function: Callable[..., object]) -> bool:
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is None or first.name in annotations_of(function)


class _Call:
    """Calls a function where it belongs."""

    def __init__(self, function: Callable[..., object], pool: Callable[[], Executor]) -> None:
        self._function = function
        self._pool = pool
        self._is_async = is_async(function)

    async def __call__(self, *positional: object, **keywords: object) -> object:
        if self._is_async:
            return await cast("Awaitable[object]", self._function(*positional, **keywords))
        return await call_on_thread(self._pool(), self._function, *positional, **keywords)


class _Checker:
    """Asks a listener; whatever goes wrong is UNKNOWN, so that it is asked again."""

    def __init__(
        self, function: Callable[..., object], call: Callable[[Message[bytes]], Awaitable[object]]
    ) -> None:
        self._function = function
        self._call = call

    async def __call__(self, message: Message[bytes]) -> TransactionState:
        try:
            return _state(self._function, await self._call(message))
        except Exception:
            logger.exception("The checker %s failed and is asked again later", describe(self._function))
            return TransactionState.UNKNOWN


class _Executor:
    """Executes local transactions by a listener."""

    def __init__(self, function: Callable[..., object], pool: Callable[[], Executor]) -> None:
        self._function = function
        self._call = _Call(function, pool)

    async def __call__(self, message: Message[object], argument: object) -> TransactionState:
        return _state(self._function, await self._call(message, argument))


def _state(function: Callable[..., object], said: object) -> TransactionState:
    if isinstance(said, TransactionState):
        return said
    raise TypeError(f"{describe(function)} returned {said!r}: expected a TransactionState")
