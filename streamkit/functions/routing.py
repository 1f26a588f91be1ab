"""The routing function, binding `functionRouter-in-0`: it hands each message to a function selected for it.

The first of these that names a function decides::

    the routing callback                                     @app.message_routing_callback
    header spring.cloud.function.definition                  a name, or functions composed with |
    header spring.cloud.function.routing-expression          an expression that yields a name; off by default
    setting spring.cloud.function.routing-expression         likewise, for messages without these headers
    setting spring.cloud.function.definition                 if it names only one function

The header with an expression is evaluated only if the setting
`spring.cloud.stream.function.routing.expression-header-enabled` is true, because every sender of a message could
choose the expression. A message for which nothing names a function, or whose function does not exist, is dropped with
a warning. A message whose expression raises fails like any other: with attempts, error channel and dead letter.
Results of the function go to `functionRouter-out-0`, which is bound at the first result.
"""

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, cast

from streamkit.bridge import StreamBridge
from streamkit.errors import ConfigurationError, ExpressionError
from streamkit.expression import Expression, compile_expression
from streamkit.functions.catalog import ROUTER, BoundFunction, FunctionCatalog
from streamkit.functions.definition import Definition, parse_definitions
from streamkit.functions.pipeline import Stage
from streamkit.functions.routing_callback import RoutingCallback
from streamkit.functions.settings import FunctionSettings
from streamkit.functions.wiring import FunctionWiring, ResultTarget
from streamkit.messaging.handler import awaited
from streamkit.messaging.message import Message
from streamkit.settlement import raise_returned

__all__ = [
    "DEFINITION",
    "EXPRESSIONS_KEPT",
    "EXPRESSION_HEADER_ENABLED",
    "MAX_COMPOSED",
    "ROUTING_EXPRESSION",
    "FunctionRouter",
]

logger = logging.getLogger(__name__)

DEFINITION: Final = "spring.cloud.function.definition"
"""The header that names the function."""
ROUTING_EXPRESSION: Final = "spring.cloud.function.routing-expression"
"""The header with an expression that yields the function's name."""

EXPRESSION_HEADER_ENABLED: Final = "spring.cloud.stream.function.routing.expression-header-enabled"
"""The setting that enables the header with an expression."""

EXPRESSIONS_KEPT: Final = 100
"""The number of compiled expressions of messages, and of compositions named by messages, that are cached.

Senders use a few. An expression of the greatest size takes 400 KiB, so the cache takes 40 MiB at most.
"""

MAX_COMPOSED: Final = 10
"""The most functions that a message may compose: ten that each double a text return 1,024 times that text."""

_MAX_DEFINITION: Final = 1000
"""The most characters of a definition in a message: ten names of a hundred characters."""


class _RouterOutput:
    """The output of the routing function, bound at the first result."""

    def __init__(self, name: str, bridge: StreamBridge) -> None:
        self._name = name
        self._send = bridge.asend

    async def asend(self, message: Message[object]) -> bool:
        """Send a result; return whether it was accepted."""
        return await self._send(self._name, message)

    async def asend_all(self, messages: Sequence[Message[object]]) -> None:
        """Send several results, one by one."""
        for message in messages:
            await self._send(self._name, message)


class FunctionRouter:
    """Hands each message to the function selected for it.

    Attributes:
        input: The name of the router's input binding.
    """

    def __init__(
        self,
        settings: FunctionSettings,
        catalog: FunctionCatalog,
        wiring: FunctionWiring,
        bridge: StreamBridge,
        callback: RoutingCallback | None,
    ) -> None:
        """Create a router.

        Args:
            settings: The settings of functions.
            catalog: The functions.
            wiring: Creates the stages of functions.
            bridge: Sends to outputs that are bound on first use.
            callback: The application's routing callback, called first, or None.

        Raises:
            ConfigurationError: The setting `routing-expression` is not a valid expression.
        """
        self.input = settings.binding(ROUTER.input(0))
        self._catalog = catalog
        self._wiring = wiring
        output = _RouterOutput(settings.binding(ROUTER.output(0)), bridge)
        self._exit = ResultTarget((output,), bridge.asend, (DEFINITION, ROUTING_EXPRESSION))
        self._callback = callback
        self._default = _only_one(settings.definition)
        self._expression: Expression | None = None
        if settings.routing_expression is not None:
            try:
                self._expression = compile_expression(settings.routing_expression)
            except ExpressionError as error:
                raise settings.wrong(settings.routing_value, str(error)) from error
        self._trusts_messages = settings.routing_expression_header
        self._has_warned = False
        self._compiled = lru_cache(maxsize=EXPRESSIONS_KEPT)(compile_expression)
        self._stages: dict[str, Stage] = {}
        self._composed = lru_cache(maxsize=EXPRESSIONS_KEPT)(self._compose)

    def prepare(self) -> None:
        """Create the stage of every function that messages can be routed to.

        Raises:
            ConfigurationError: A function has a parameter that a message cannot satisfy.
        """
        for name in self._catalog.names:
            found = self._catalog.find(name)
            if found is not None and found.signature.takes_messages and not found.signature.streams:
                self._stages[name] = self._compose(name)

    @property
    def settles_by_hand(self) -> bool:
        """Whether one of the functions takes an acknowledgment."""
        return any(stage.settles_by_hand for stage in self._stages.values())

    async def handle_message(self, message: Message[object]) -> None:
        """Hand a message to the function selected for it; drop the message with a warning if there is none.

        Raises:
            ExpressionError: The routing expression fails for the message.
        """
        try:
            name = await self._route(message)
            stage = None if name is None else self._stages.get(name) or self._composed(name)
        except ConfigurationError as error:
            logger.warning("Dropped message %s, which cannot be routed: %s", message.headers.id, error)
            return
        if stage is None:
            logger.warning(
                "Dropped message %s, which cannot be routed: there is no routing callback, no header %s%s and no "
                "routing setting",
                message.headers.id,
                DEFINITION,
                f" or {ROUTING_EXPRESSION}" if self._trusts_messages else "",
            )
            return
        await stage.handle_message(message)

    async def _route(self, message: Message[object]) -> str | None:
        """Return the name of the function for a message, or None."""
        if self._callback is not None:
            chosen = await awaited(self._callback(cast("Message[bytes]", message)))
            raise_returned(chosen)
            if chosen:
                return chosen
        named = message.headers.get(DEFINITION)
        if isinstance(named, str) and named:
            return named
        expression = self._expression_for(message)
        if expression is None:
            return self._default
        value = expression(message)
        return value if isinstance(value, str) else None

    def _expression_for(self, message: Message[object]) -> Expression | None:
        """Return the expression in the message if such expressions are enabled, else that of the setting, or None."""
        source = message.headers.get(ROUTING_EXPRESSION)
        if not isinstance(source, str) or not source:
            return self._expression
        if self._trusts_messages:
            return self._compiled(source)
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "Function %s ignores header %s of message %s, and of all messages from now on: expressions in "
                "headers are not evaluated. Set %s=true to evaluate them, if you trust everybody who can send to "
                "binding %r",
                ROUTER.name,
                ROUTING_EXPRESSION,
                message.headers.id,
                EXPRESSION_HEADER_ENABLED,
                self.input,
            )
        return self._expression

    def _compose(self, name: str) -> Stage:
        """Return the stage of a function, or of several composed functions.

        Raises:
            ConfigurationError: There is no such function, or messages cannot be routed to it.
        """
        definition = self._parsed(name)
        planned = self._catalog.plan(definition)
        if not all(one.signature.takes_messages and not one.signature.streams for one in planned.functions):
            raise ConfigurationError(
                f"{str(definition)!r} is bound to streams, so it cannot be called for single messages"
            )
        bound = BoundFunction(definition, planned.functions, (self.input,), ())
        (stage,) = self._wiring.compose(bound, self._exit)
        return stage

    def _parsed(self, name: str) -> Definition:
        # The limits are for names out of messages. The definition in the settings comes from the application.
        is_own = name == self._default
        if len(name) > _MAX_DEFINITION and not is_own:
            raise ConfigurationError(f"its definition has {len(name):,} characters, more than {_MAX_DEFINITION:,}")
        try:
            found: Sequence[Definition] = parse_definitions(name)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
        if len(found) != 1:
            raise ConfigurationError(f"{name!r} is not the name of one function")
        if len(found[0].parts) > MAX_COMPOSED and not is_own:
            raise ConfigurationError(f"it composes {len(found[0].parts)} functions, more than {MAX_COMPOSED}")
        return found[0]

    def __repr__(self) -> str:
        return f"<FunctionRouter of {self._catalog!r}>"


def _only_one(definition: str | None) -> str | None:
    """Return the function of a definition that names exactly one function besides the router, else None."""
    try:
        found = [each for each in parse_definitions(definition or "") if each != ROUTER]
    except ValueError:
        return None  # reported where definitions are bound
    return str(found[0]) if len(found) == 1 else None
