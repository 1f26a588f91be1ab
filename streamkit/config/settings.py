"""All settings below `spring.cloud.stream`.

The settings of a binding come from three places, the weakest first: the defaults of the models,
`spring.cloud.stream.default.*` and `spring.cloud.stream.bindings.<name>.*`.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Annotated, Self

from streamkit.config.application_properties import NO_REGISTRY
from streamkit.config.durations import Seconds
from streamkit.config.environment import Environment
from streamkit.config.extended import OTHER_PARTS, ExtendedModels, extended_problems
from streamkit.config.function_properties import PollerProperties, StreamFunctionProperties
from streamkit.config.relaxed import uniform, uniform_key
from streamkit.config.setting_limits import Accepted, Rejected
from streamkit.config.settings_model import SettingsModel, setting
from streamkit.config.shape import Separator
from streamkit.config.stream_properties import (
    BinderConfiguration,
    BindingProperties,
    ConsumerProperties,
    HeaderMode,
    ProducerProperties,
)
from streamkit.config.tree import RawTree, merged
from streamkit.config.validation import Bound, in_order
from streamkit.config.verdict import SettingWarning, Verdict
from streamkit.errors import ConfigurationError, ConfigurationErrors

__all__ = [
    "PREFIX",
    "BinderConfiguration",
    "BindingProperties",
    "ConsumerProperties",
    "HeaderMode",
    "PollerProperties",
    "ProducerProperties",
    "SettingsModel",
    "StreamSettings",
]

PREFIX = "spring.cloud.stream"

_ONE_INDEX = Rejected("a process has one index here; start a process for each index")
_NO_METERS = Rejected("meters are not published to a binding")

_OTHER_BINDERS = (
    "rocketmq",
    "kafka",
    "rabbit",
    "kinesis",
    "pulsar",
    "pubsub",
    "solace",
    "eventhubs",
    "servicebus",
)
"""The types of Spring's binders. Settings of types that are not installed cause a warning, not an error."""


class IntegrationProperties(SettingsModel):
    """`spring.cloud.stream.integration.*`."""

    message_handler_not_propagated_headers: list[str] = setting(default=["contentType"])
    """The headers that are not copied from a listener's input to its output."""


class MetricsProperties(SettingsModel):
    """`spring.cloud.stream.metrics.*`."""

    key: Annotated[str | None, _NO_METERS] = None
    """The application's name in published meters."""
    meter_filter: Annotated[str | None, _NO_METERS] = None
    """Which meters are published."""
    properties: Annotated[list[str], _NO_METERS] = setting(default_factory=list)
    """The settings that are published with the meters."""
    schedule_interval: Annotated[Seconds, _NO_METERS] = timedelta(seconds=60)
    """How often the meters are published."""


class StreamSettings(SettingsModel):
    """An application's settings: `spring.cloud.stream.*`."""

    instance_count: int = setting(default=1, ge=1)
    """The number of instances of the application, for partitioned consumers."""
    instance_index: int = setting(default=0, ge=0)
    """The number of this instance, from 0. Unset: `${INSTANCE_INDEX:${CF_INSTANCE_INDEX:0}}`."""
    instance_index_list: Annotated[list[int], _ONE_INDEX] = setting(default_factory=list)
    """The indexes of this instance, if it has several."""
    bindings: dict[str, BindingProperties] = setting(default_factory=dict)
    """The bindings by name."""
    default: BindingProperties = setting(default_factory=BindingProperties)
    """The same settings, except `destination`, for every binding that does not set them."""
    binders: dict[str, BinderConfiguration] = setting(default_factory=dict)
    """The binders by name. They replace the binders that are made for the installed types."""
    default_binder: str | None = None
    """The binder of bindings that name none. It is required if there are several binders."""
    dynamic_destinations: list[str] = setting(default_factory=list)
    """The destinations that may be bound while the application runs. Empty: all."""
    dynamic_destination_cache_size: int = setting(default=10, ge=1)
    """The most bindings, of those made while the application runs, that are kept. Beyond it, the least recently used is
    unbound."""
    binding_retry_interval: Seconds = timedelta(seconds=30)
    """The pause between attempts to bind while the messaging system is unavailable. 0 or less: the start fails at
    once."""
    source: Annotated[list[str], Separator(";")] = setting(default_factory=list)
    """The older form of `output-bindings`: names without their ending, so `orders` makes the binding `orders-out-0`."""
    output_bindings: Annotated[list[str], Separator(";")] = setting(default_factory=list)
    """Output bindings that are made although no listener sends to them."""
    input_bindings: Annotated[list[str], Separator(";")] = setting(default_factory=list)
    """Input bindings that are made although they have no listener."""
    pollable_source: Annotated[list[str], Separator(";")] = setting(default_factory=list)
    """The names of polled consumers: `orders` makes the binding `orders-in-0`, which `app.pollable_source("orders")`
    polls."""
    override_cloud_connectors: Annotated[bool, Accepted("Cloud Foundry is not supported")] = False
    """Whether Cloud Foundry's connectors are ignored."""
    function: StreamFunctionProperties = setting(default_factory=StreamFunctionProperties)
    """Functions bound by name."""
    integration: IntegrationProperties = setting(default_factory=IntegrationProperties)
    """How listeners' outputs are made."""
    poller: PollerProperties = setting(default_factory=PollerProperties)
    """The older name of `spring.integration.poller.*`: how suppliers are polled."""
    metrics: MetricsProperties = setting(default_factory=MetricsProperties)
    """Meters published to a binding."""
    schema_registry_client: Annotated[dict[str, str], NO_REGISTRY] = setting(default_factory=dict)
    """The client of the Avro schema registry; also as `spring.cloud.schema-registry-client.*`."""
    schema_: Annotated[dict[str, str], NO_REGISTRY] = setting(default_factory=dict)
    """The schemas of the registry's Avro converter; also as `spring.cloud.schema.*`."""

    @classmethod
    def load(
        cls,
        environment: Environment,
        binder_types: Iterable[str] = (),
        extended_models: ExtendedModels | None = None,
    ) -> Self:
        """Return the settings of an environment.

        Args:
            environment: All settings.
            binder_types: The installed binder types; keys below `spring.cloud.stream.<type>` belong to the binder.
            extended_models: Returns the models of a type's own consumer and producer settings. If given, these settings
                are checked too, also those of bindings that are not made.

        Raises:
            ConfigurationErrors: All problems of the settings.
        """
        return cls.explain(environment, binder_types, extended_models).value

    @classmethod
    def explain(
        cls,
        environment: Environment,
        binder_types: Iterable[str] = (),
        extended_models: ExtendedModels | None = None,
    ) -> Bound[Self]:
        """Do the same as `load`, and return the origin of every value too."""
        types = list(binder_types)
        problems: list[ConfigurationError] = []
        if extended_models is not None:
            for type_ in types:
                problems.extend(extended_problems(environment, type_, extended_models))
        try:
            bound = environment.bound(_tree(environment, types), cls)
        except ConfigurationErrors as found:
            raise ConfigurationErrors(in_order([*found.errors, *problems])) from None
        if problems:
            raise ConfigurationErrors(in_order(problems))
        return bound

    @property
    def source_bindings(self) -> list[str]:
        """The names of the bindings that `source` makes."""
        return [f"{name}-out-0" for name in self.source]

    def binding(self, name: str) -> BindingProperties:
        """Return the settings of a binding; without a destination, the binding's name is the destination.

        Args:
            name: The binding's name, in any relaxed spelling.
        """
        known = self.configured_name(name)
        if known is None:
            return self.default.model_copy(update={"destination": name})
        found = self.bindings[known]
        return found if found.destination else found.model_copy(update={"destination": name})

    def configured_name(self, name: str) -> str | None:
        """Return the name of a binding as the settings spell it; None if the settings do not have the binding."""
        return next((known for known in self.bindings if uniform(known) == uniform(name)), None)


def _tree(environment: Environment, binder_types: Sequence[str]) -> RawTree:
    others = [type_ for type_ in _OTHER_BINDERS if type_ not in binder_types]
    tree = environment.tree(PREFIX, StreamSettings, [*binder_types, *others])
    environment.note(_settings_of_others(environment, others))
    _default_instance_index(tree, environment)
    environment.note(_inherit_defaults(tree))
    return tree


def _default_instance_index(tree: RawTree, environment: Environment) -> None:
    found = environment.get("INSTANCE_INDEX") or environment.get("CF_INSTANCE_INDEX")
    if found is not None and "instance_index" not in tree.values:
        tree.put(("instance_index",), found)


def _settings_of_others(environment: Environment, types: Iterable[str]) -> Iterator[SettingWarning]:
    """Yield a warning for each setting of a binder type that is not installed or does not exist here.

    The files of a service may have settings of several binders, of which this application uses one.
    """
    reasons = {type_: f"no binder of type {type_} is installed" for type_ in types}
    for type_, parts in OTHER_PARTS.items():
        reasons |= {f"{type_}.{part}": reason for part, reason in parts.items() if type_ not in reasons}
    for place, reason in reasons.items():
        for source in environment.sources:
            for entry in source.entries(uniform_key(f"{PREFIX}.{place}")):
                yield SettingWarning(entry.value, reason, Verdict.ANOTHER_BINDER)


def _inherit_defaults(tree: RawTree) -> Iterator[SettingWarning]:
    """Copy `default.*` to each binding, weaker than the binding's own settings; yield warnings."""
    default, bindings = tree.values.get("default"), tree.values.get("bindings")
    if ("default", "destination") in tree.origins:
        yield SettingWarning(
            tree.origins["default", "destination"],
            "a destination is never inherited: every binding has its own",
        )
    if not isinstance(default, dict) or not isinstance(bindings, dict):
        return
    inherited = {key: value for key, value in default.items() if key != "destination"}
    origins = {at[1:]: value for at, value in tree.origins.items() if at[0] == "default"}
    for name, own in bindings.items():
        bindings[name] = merged(inherited, own)
        for at, value in origins.items():
            tree.origins.setdefault(("bindings", name, *at), value)
