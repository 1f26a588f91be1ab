"""What settings say about functions, gathered from the names they have had in Spring."""

from collections.abc import Mapping
from dataclasses import dataclass

from streamkit.config.application_properties import FUNCTION, POLLER
from streamkit.config.environment import Environment
from streamkit.config.function_properties import CloudFunctionProperties, PollerProperties
from streamkit.config.origin import Value
from streamkit.config.places import located
from streamkit.config.relaxed import uniform
from streamkit.config.settings import StreamSettings
from streamkit.config.validation import Bound
from streamkit.errors import ConfigurationError

__all__ = ["FunctionSettings"]


@dataclass(frozen=True, slots=True)
class FunctionSettings:
    """The settings of functions.

    Attributes:
        definition: Which functions are bound; None: the only one.
        definition_value: Where that was set.
        bindings: Other names of functions' bindings.
        autodetect: Whether a single function is bound without a definition.
        ineligible: Functions that never are.
        routing: Whether the routing function is bound.
        routing_expression_header: Whether it evaluates the expressions that messages bring in a header.
        routing_expression: What it routes by.
        routing_value: Where that was set.
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
        """Read them.

        Raises:
            ConfigurationErrors: Some are wrong.
        """
        cloud = environment.bound(
            environment.tree(FUNCTION, CloudFunctionProperties), CloudFunctionProperties
        )
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
        """Return what a function's binding is called: its name, or the one it was given."""
        return self.bindings.get(uniform(name), name)

    def wrong(self, at: Value | None, reason: str, suggestion: str | None = None) -> ConfigurationError:
        """Return the error for a setting read from ``at``."""
        return located(at, reason, suggestion=suggestion)
