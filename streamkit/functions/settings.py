"""The settings of functions, read from all the names that Spring has given them."""

from collections.abc import Mapping

import msgspec

from streamkit.config.application_properties import FUNCTION, POLLER
from streamkit.config.environment import Environment
from streamkit.config.function_properties import CloudFunctionProperties, PollerProperties
from streamkit.config.located_errors import located
from streamkit.config.origin import Value
from streamkit.config.relaxed import uniform
from streamkit.config.settings import StreamSettings
from streamkit.config.validation import Bound
from streamkit.errors import ConfigurationError

__all__ = ["FunctionSettings"]


class FunctionSettings(msgspec.Struct, frozen=True):
    """The settings of functions.

    Attributes:
        definition: The functions to bind; if None, the only function is bound.
        definition_value: The setting of `definition` with its origin, or None.
        bindings: Other names of functions' bindings, by their uniform names.
        autodetect: Whether a single function is bound without a definition.
        ineligible: Functions that are never bound without a definition.
        routing: Whether the routing function is bound.
        routing_expression_header: Whether the routing function evaluates expressions in the headers of messages.
        routing_expression: The routing function's expression, or None.
        routing_value: The setting of `routing_expression` with its origin, or None.
        poller: How suppliers are polled.
    """

    definition: str | None
    definition_value: Value | None
    bindings: Mapping[str, str]
    autodetect: bool
    ineligible: frozenset[str]
    routing: bool
    routing_expression_header: bool
    routing_expression: str | None
    routing_value: Value | None
    poller: PollerProperties

    @classmethod
    def load(cls, environment: Environment, stream: Bound[StreamSettings]) -> "FunctionSettings":
        """Read the settings.

        Raises:
            ConfigurationErrors: Settings are invalid.
        """
        cloud = environment.bound(environment.tree(FUNCTION, CloudFunctionProperties), CloudFunctionProperties)
        own = stream.value.function
        definition, at = cloud.value.definition, cloud.origins.get(("definition",))
        if not definition:
            definition, at = own.definition, stream.origins.get(("function", "definition"))
        return cls(
            definition or None,
            at,
            {uniform(name): renamed for name, renamed in own.bindings.items()},
            own.autodetect,
            frozenset(cloud.value.ineligible_definitions),
            own.routing.enabled or cloud.value.routing.enabled,
            own.routing.expression_header_enabled or cloud.value.routing.expression_header_enabled,
            cloud.value.routing_expression,
            cloud.origins.get(("routing_expression",)),
            environment.bind(POLLER, PollerProperties).over(stream.value.poller),
        )

    def binding(self, name: str) -> str:
        """Return the name of a function's binding: the configured one, or `name`."""
        return self.bindings.get(uniform(name), name)

    def wrong(self, at: Value | None, reason: str, suggestion: str | None = None) -> ConfigurationError:
        """Return the error for the setting ``at``, with its origin."""
        return located(at, reason, suggestion=suggestion)
