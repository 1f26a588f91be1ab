"""All settings under `spring.cloud.stream`.

A binding's settings come, the weakest first, from the defaults written in the models,
`spring.cloud.stream.default.*`, and `spring.cloud.stream.bindings.<name>.*`.
"""

from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from datetime import timedelta
from typing import Annotated, Any, Self

from pydantic import Field
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from streamkit.config.durations import Seconds
from streamkit.config.environment import Environment
from streamkit.config.extended import ExtendedModels, extended_problems
from streamkit.config.function_properties import PollerProperties, StreamFunctionProperties
from streamkit.config.relaxed import uniform, uniform_key
from streamkit.config.settings_model import SettingsModel, ShownWithoutSecrets
from streamkit.config.shape import Separator
from streamkit.config.stream_properties import (
    BinderConfiguration,
    BindingProperties,
    ConsumerProperties,
    HeaderMode,
    ProducerProperties,
)
from streamkit.config.support import Accepted, Rejected
from streamkit.config.tree import RawTree, merged
from streamkit.config.validation import Bound, SettingWarning, in_order
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

_ONE_INDEX = Rejected("a process has one index here; start one for each")
_NO_METERS = Rejected("meters are not published to a binding")
_NO_REGISTRY = Rejected("there is no schema registry client; add a message converter of your own")

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
"""Types of binders that Spring knows, whether they are installed here or not."""

_reading: ContextVar[RawTree] = ContextVar("streamkit_settings_being_read")


class IntegrationProperties(SettingsModel):
    """`spring.cloud.stream.integration.*`."""

    message_handler_not_propagated_headers: list[str] = Field(default=["contentType"])
    """Headers not copied from a listener's input to its output."""


class MetricsProperties(SettingsModel):
    """`spring.cloud.stream.metrics.*`."""

    key: Annotated[str | None, _NO_METERS] = None
    """The application's name in published meters."""
    meter_filter: Annotated[str | None, _NO_METERS] = None
    """Which meters are published."""
    properties: Annotated[list[str], _NO_METERS] = Field(default_factory=list)
    """Settings published with them."""
    schedule_interval: Annotated[Seconds, _NO_METERS] = timedelta(seconds=60)
    """How often they are published."""


class StreamSettings(ShownWithoutSecrets, BaseSettings):
    """An application's settings: `spring.cloud.stream.*`."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    instance_count: int = Field(default=1, ge=1)
    """How many instances of the application run; for partitioned consumers."""
    instance_index: int = Field(default=0, ge=0)
    """This instance's number, from 0; unset: `${INSTANCE_INDEX:${CF_INSTANCE_INDEX:0}}`."""
    instance_index_list: Annotated[list[int], _ONE_INDEX] = Field(default_factory=list)
    """Several indexes for one instance."""
    bindings: dict[str, BindingProperties] = Field(default_factory=dict)
    """The bindings by name."""
    default: BindingProperties = BindingProperties()
    """The same settings for every binding that does not set them, but for `destination`."""
    binders: dict[str, BinderConfiguration] = Field(default_factory=dict)
    """The messaging systems by name; any entry turns off those that would be found by themselves."""
    default_binder: str | None = None
    """Which of them serves bindings that name none; needed when there are several."""
    dynamic_destinations: list[str] = Field(default_factory=list)
    """Which destinations may be bound while the application runs; empty: any."""
    dynamic_destination_cache_size: int = Field(default=10, ge=1)
    """How many bindings made while it runs are kept; the one used longest ago is unbound."""
    binding_retry_interval: Seconds = timedelta(seconds=30)
    """Pause between attempts to bind when the messaging system is away; 0 or less: fail at start."""
    source: Annotated[list[str], Separator(";")] = Field(default_factory=list)
    """Output bindings to make without a listener that sends to them; the older name of `output-bindings`."""
    output_bindings: Annotated[list[str], Separator(";")] = Field(default_factory=list)
    """Output bindings to make without a listener that sends to them."""
    input_bindings: Annotated[list[str], Separator(";")] = Field(default_factory=list)
    """Input bindings to make without a listener."""
    pollable_source: Annotated[list[str], Separator(";")] = Field(default_factory=list)
    """Names of polled consumers: `orders` is binding `orders-in-0`, which `app.pollable_source("orders")` polls."""
    override_cloud_connectors: Annotated[bool, Accepted("Cloud Foundry has no part here")] = False
    """Ignore Cloud Foundry's connectors."""
    function: StreamFunctionProperties = StreamFunctionProperties()
    """Functions bound by name."""
    integration: IntegrationProperties = IntegrationProperties()
    """How listeners' outputs are made."""
    poller: PollerProperties = PollerProperties()
    """The older name of `spring.integration.poller.*`: how suppliers are polled."""
    metrics: MetricsProperties = MetricsProperties()
    """Meters published to a binding."""
    schema_registry_client: Annotated[dict[str, str], _NO_REGISTRY] = Field(default_factory=dict)
    """The Avro schema registry."""

    @classmethod
    def load(
        cls,
        environment: Environment,
        binder_types: Iterable[str] = (),
        extended_models: ExtendedModels | None = None,
    ) -> Self:
        """The settings of `environment`.

        Args:
            environment: All settings.
            binder_types: The types of the binders there are: keys below those names are theirs.
            extended_models: What their own settings of consumers and producers are; given, they are
                checked too, also those of bindings that are not made.

        Raises:
            ConfigurationErrors: Everything that is wrong with the settings.
        """
        return cls.explain(environment, binder_types, extended_models).value

    @classmethod
    def explain(
        cls,
        environment: Environment,
        binder_types: Iterable[str] = (),
        extended_models: ExtendedModels | None = None,
    ) -> Bound[Self]:
        """As `load`, with the origin of every value."""
        types = list(binder_types)
        problems: list[ConfigurationError] = []
        if extended_models is not None:
            for type_ in types:
                problems.extend(extended_problems(environment, type_, extended_models))
        try:
            bound = cls._explain(environment, types)
        except ConfigurationErrors as found:
            raise ConfigurationErrors(in_order([*found.errors, *problems])) from None
        if problems:
            raise ConfigurationErrors(in_order(problems))
        return bound

    @classmethod
    def _explain(cls, environment: Environment, binder_types: Iterable[str]) -> Bound[Self]:
        types = list(binder_types)
        others = [type_ for type_ in _OTHER_BINDERS if type_ not in types]
        tree = environment.tree(PREFIX, cls, [*types, *others])
        environment.note(_settings_of_others(environment, others))
        _default_instance_index(tree, environment)
        environment.note(_inherit_defaults(tree))
        token = _reading.set(tree)
        try:
            return environment.bound(tree, cls)
        finally:
            _reading.reset(token)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Values given in code, then those of the environment being read."""
        tree = _reading.get(None)
        return (init_settings,) if tree is None else (init_settings, EnvironmentSource(settings_cls, tree))

    def binding(self, name: str) -> BindingProperties:
        """The settings of the binding of that name, in any case; a destination it lacks is its name."""
        known = self.configured_name(name)
        if known is None:
            return self.default.model_copy(update={"destination": name})
        found = self.bindings[known]
        return found if found.destination else found.model_copy(update={"destination": name})

    def configured_name(self, name: str) -> str | None:
        """How settings spell the binding of that name, or None when they do not mention it."""
        return next((known for known in self.bindings if uniform(known) == uniform(name)), None)


class EnvironmentSource(PydanticBaseSettingsSource):
    """What an `Environment` says, as pydantic-settings asks for it."""

    def __init__(self, settings_cls: type[BaseSettings], tree: RawTree) -> None:
        super().__init__(settings_cls)
        self._tree = tree

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """The raw value of one field; nested ones are nested dictionaries."""
        return self._tree.values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        """The raw values of all fields that are set."""
        return self._tree.values


def _default_instance_index(tree: RawTree, environment: Environment) -> None:
    found = environment.get("INSTANCE_INDEX") or environment.get("CF_INSTANCE_INDEX")
    if found is not None and "instance_index" not in tree.values:
        tree.put(("instance_index",), found)


def _settings_of_others(environment: Environment, types: Iterable[str]) -> Iterator[SettingWarning]:
    """The settings of binders that are not installed: a service may have several, and use one here."""
    for type_ in types:
        for source in environment.sources:
            for entry in source.entries(uniform_key(f"{PREFIX}.{type_}")):
                yield SettingWarning(entry.value, f"no binder of type {type_} is installed")


def _inherit_defaults(tree: RawTree) -> Iterator[SettingWarning]:
    """Puts `default.*` below what every binding sets itself."""
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
