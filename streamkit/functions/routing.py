"""The routing function: binding `functionRouter-in-0`, whose messages each go to a function of their own.

::

    the routing callback                                     @app.message_routing_callback
    header spring.cloud.function.definition                  a name, or functions composed with |
    header spring.cloud.function.routing-expression          an expression over the message that gives a name
    setting spring.cloud.function.routing-expression         likewise, for messages that say nothing
    setting spring.cloud.function.definition                 where it names one function only

The first that says something counts. A message that nothing routes, or that is routed to what there is not, is
dropped with a warning. What the function gives goes to `functionRouter-out-0`, which is bound when there is
something to send.
"""

import logging
from collections.abc import Awaitable, Sequence
from typing import Final, cast

from streamkit.errors import ConfigurationError, ExpressionError
from streamkit.expression import Expression, compile_expression
from streamkit.functions.catalog import ROUTER, BoundFunction, FunctionCatalog
from streamkit.functions.definition import Definition, parse_definitions
from streamkit.functions.pipeline import Stage
from streamkit.functions.routing_callback import RoutingCallback
from streamkit.functions.settings import FunctionSettings
from streamkit.functions.wiring import Exit, FunctionWiring
from streamkit.messaging.message import Message
from streamkit.parts import Parts

__all__ = ["DEFINITION", "ROUTING_EXPRESSION", "FunctionRouter"]

log = logging.getLogger(__name__)

DEFINITION: Final = "spring.cloud.function.definition"
"""The header that names the function."""
ROUTING_EXPRESSION: Final = "spring.cloud.function.routing-expression"
"""The header that holds an expression for its name."""

# Messages may name whatever they like.
_KEPT: Final = 100


class _RouterOutput:
    """The output of the routing function: bound when it is first sent to."""

    def __init__(self, name: str, parts: Parts) -> None:
        self._name = name
        self._send = parts.bridge.asend

    async def asend(self, message: Message[object]) -> bool:
        """Send a result."""
        return await self._send(self._name, message)


class FunctionRouter:
    """Hands each message to the function it is meant for.

    Attributes:
        input: The name of its input binding.
    """

    def __init__(
        self,
        settings: FunctionSettings,
        catalog: FunctionCatalog,
        wiring: FunctionWiring,
        parts: Parts,
        callback: RoutingCallback | None,
    ) -> None:
        """Make a router.

        Args:
            settings: What settings say about functions.
            catalog: The functions.
            wiring: Makes handlers of them.
            parts: What those are made from.
            callback: What chooses first.

        Raises:
            ConfigurationError: The setting's expression is none.
        """
        self.input = settings.binding(ROUTER.input(0))
        self._catalog = catalog
        self._wiring = wiring
        output = _RouterOutput(settings.binding(ROUTER.output(0)), parts)
        self._exit = Exit((output,), parts.bridge.asend, (DEFINITION, ROUTING_EXPRESSION))
        self._callback = callback
        self._default = _only_one(settings.definition)
        self._expression: Expression | None = None
        if settings.routing_expression is not None:
            try:
                self._expression = compile_expression(settings.routing_expression)
            except ExpressionError as error:
                raise settings.wrong(settings.routing_value, str(error)) from error
        self._expressions: dict[str, Expression] = {}
        self._stages: dict[str, Stage] = {}

    def prepare(self) -> None:
        """Make the handler of every function that can be routed to.

        Raises:
            ConfigurationError: One asks for what a message cannot give.
        """
        for name in self._catalog.names:
            found = self._catalog.find(name)
            if found is not None and found.signature.takes_messages and not found.signature.streams:
                self._stage(name)

    @property
    def settles_by_hand(self) -> bool:
        """Whether one of the functions asks for an acknowledgment."""
        return any(stage.settles_by_hand for stage in self._stages.values())

    async def handle_message(self, message: Message[object]) -> None:
        """Have the function a message is meant for handle it."""
        try:
            name = await self._route(message)
            stage = None if name is None else self._stage(name)
        except (ConfigurationError, ExpressionError) as error:
            log.warning("Message %s is unroutable and dropped: %s", message.headers.id, error)
            return
        if stage is None:
            log.warning(
                "Message %s is unroutable and dropped: neither a callback, nor a header %s or %s, nor a setting says "
                "where it goes",
                message.headers.id,
                DEFINITION,
                ROUTING_EXPRESSION,
            )
            return
        await stage.handle_message(message)

    async def _route(self, message: Message[object]) -> str | None:
        """Return the name of a message's function, or None."""
        if self._callback is not None:
            answer = self._callback(cast("Message[bytes]", message))
            chosen = await answer if isinstance(answer, Awaitable) else answer
            if chosen:
                return chosen
        named = message.headers.get(DEFINITION)
        if isinstance(named, str) and named:
            return named
        source = message.headers.get(ROUTING_EXPRESSION)
        expression = self._compiled(source) if isinstance(source, str) and source else self._expression
        if expression is None:
            return self._default
        value = expression(message)
        return value if isinstance(value, str) else None

    def _compiled(self, source: str) -> Expression:
        found = self._expressions.get(source)
        if found is None:
            if len(self._expressions) >= _KEPT:
                self._expressions.clear()
            found = self._expressions[source] = compile_expression(source)
        return found

    def _stage(self, name: str) -> Stage:
        """Return what handles messages for a function, or for several composed.

        Raises:
            ConfigurationError: There is no such function, or messages cannot be routed to it.
        """
        found = self._stages.get(name)
        if found is None:
            if len(self._stages) >= len(self._catalog.names) + _KEPT:
                self._stages.clear()
            found = self._stages[name] = self._compose(self._parsed(name))
        return found

    def _compose(self, definition: Definition) -> Stage:
        planned = self._catalog.plan(definition)
        if not all(one.signature.takes_messages and not one.signature.streams for one in planned.functions):
            raise ConfigurationError(f"{str(definition)!r} is not called for each message")
        bound = BoundFunction(definition, planned.functions, (self.input,), ())
        (stage,) = self._wiring.compose(bound, self._exit)
        return stage

    @staticmethod
    def _parsed(name: str) -> Definition:
        try:
            found: Sequence[Definition] = parse_definitions(name)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
        if len(found) != 1:
            raise ConfigurationError(f"{name!r} is not the name of one function")
        return found[0]

    def __repr__(self) -> str:
        return f"<FunctionRouter of {self._catalog!r}>"


def _only_one(definition: str | None) -> str | None:
    """The function a definition names, unless it names several or the router itself."""
    try:
        found = [each for each in parse_definitions(definition or "") if each != ROUTER]
    except ValueError:
        return None  # told where definitions are bound
    return str(found[0]) if len(found) == 1 else None
