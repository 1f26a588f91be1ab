"""The settings of bindings and of binders, with Spring's names and defaults.

The reference page of settings shows the docstring of each field.
"""

from datetime import timedelta
from enum import Enum
from typing import Annotated, Any

from streamkit.config.durations import Milliseconds
from streamkit.config.function_properties import PollerProperties
from streamkit.config.setting_limits import Accepted, Rejected
from streamkit.config.setting_values import After
from streamkit.config.settings_model import SettingsModel, setting
from streamkit.messaging.mime import MimeType

_NO_CLASSES = Rejected(
    "classes are not looked up by name: register an object with app.register(...) and name it by "
    "partition-key-extractor-name or partition-selector-name"
)


class HeaderMode(Enum):
    """How the headers of a message are sent."""

    NONE = "none"
    HEADERS = "headers"
    EMBEDDED_HEADERS = "embeddedHeaders"


class ConsumerProperties(SettingsModel):
    """How an input binding consumes: `spring.cloud.stream.bindings.<name>.consumer.*`."""

    auto_startup: bool = True
    """Start with the application; false: bound, but started by hand."""
    concurrency: int = setting(default=1, ge=1)
    """How many messages are handled at once."""
    partitioned: Annotated[
        bool, Accepted("the messaging system shares the partitions among the members of a group by itself")
    ] = False
    """The input is partitioned; for binders whose system does not assign partitions itself."""
    instance_count: int = setting(default=-1, ge=-1)
    """Overrides `spring.cloud.stream.instance-count` for this binding; -1 does not."""
    instance_index: int = setting(default=-1, ge=-1)
    """Overrides `spring.cloud.stream.instance-index` for this binding; -1 does not."""
    instance_index_list: Annotated[list[int], Rejected("a process has one index here; start one for each")] = setting(
        default_factory=list
    )
    """Several indexes, a consumer for each."""
    max_attempts: int = setting(default=3, ge=1)
    """Attempts in this process, the first included; 1 turns retrying off."""
    back_off_initial_interval: Milliseconds = timedelta(seconds=1)
    """Pause before the second attempt."""
    back_off_max_interval: Milliseconds = timedelta(seconds=10)
    """The longest pause between two attempts."""
    back_off_multiplier: float = setting(default=2.0, ge=1)
    """By how much each pause is longer than the one before."""
    default_retryable: bool = True
    """Whether exceptions that `retryable-exceptions` does not list are retried."""
    retryable_exceptions: dict[str, bool] = setting(default_factory=dict)
    """Which exceptions, by their class's dotted name, are retried; subclasses, causes and what is in a group count."""
    retry_template_name: str | None = None
    """The retry policy registered under that name, in place of `max-attempts`, `back-off-*`, `retryable-exceptions`
    and `default-retryable`; `max-attempts=1` turns it off too."""
    header_mode: HeaderMode | None = None
    """How headers travel; unset: as the messaging system's own. embeddedHeaders: also those in front of the payload
    are taken, as Spring embeds them."""
    use_native_decoding: bool = False
    """No conversion by content type: the listener gets what the binder received."""
    multiplex: bool = False
    """One consumer for a list of destinations, which share its concurrency; false: each has as much of its own."""
    batch_mode: bool = False
    """Hand over several messages at once, as a list."""


class ProducerProperties(SettingsModel):
    """How an output binding produces: `spring.cloud.stream.bindings.<name>.producer.*`."""

    auto_startup: bool = True
    """Start with the application; false: bound, but started by hand."""
    partition_key_expression: str | None = None
    """What makes the partition key out of a message; its presence makes the binding partitioned."""
    partition_key_extractor_name: str | None = None
    """The registered function that makes the partition key out of a message; where it gives None, the expression."""
    partition_selector_name: str | None = None
    """The registered function that makes the partition out of key and count."""
    partition_selector_expression: str | None = None
    """What makes the partition out of the key; unset: the key's Java hash."""
    partition_key_extractor_class: Annotated[str | None, _NO_CLASSES] = None
    """What makes the partition key, by class."""
    partition_selector_class: Annotated[str | None, _NO_CLASSES] = None
    """What makes the partition out of the key, by class."""
    partition_count: int = setting(default=1, ge=1)
    """How many partitions there are, where the messaging system does not say."""
    required_groups: list[str] = setting(default_factory=list)
    """Groups that must get what is sent from now on, although none of their members has been there yet."""
    header_mode: HeaderMode | None = None
    """How headers travel; unset: as the messaging system's own. embeddedHeaders: in front of the payload too, as Spring
    embeds them; none: not at all."""
    use_native_encoding: bool = False
    """No conversion by content type: payloads must be bytes."""
    error_channel_enabled: bool = False
    """A failed send goes to the channel `<destination>.errors` instead of an exception to the sender."""
    poller: PollerProperties = setting(default_factory=PollerProperties)
    """How this binding's supplier is polled."""
    dynamic_partition_updates_enabled: Annotated[
        bool, Accepted("the number of partitions always follows the messaging system's")
    ] = False
    """The number of partitions may change while the application runs."""


def _checked_media_type(text: str) -> str:
    MimeType.parse(text)
    return text


class BindingProperties(SettingsModel):
    """One binding: `spring.cloud.stream.bindings.<name>.*`."""

    destination: str | None = None
    """The topic, or several for an input, comma-separated; unset: the binding's name."""
    group: str | None = None
    """The consumer group; unset: an anonymous one, not durable, that gets new messages only."""
    content_type: Annotated[str, After(_checked_media_type)] | None = None
    """What the payload is converted by where the message has no `contentType`; unset: application/json."""
    binder: str | None = None
    """Which of the `binders`; unset: `default-binder`."""
    error_handler_definition: str | None = None
    """The function registered under that name handles this binding's errors: a message it returns from is done."""
    consumer: ConsumerProperties = setting(default_factory=ConsumerProperties)
    """How it consumes, when it is an input."""
    producer: ProducerProperties = setting(default_factory=ProducerProperties)
    """How it produces, when it is an output."""


class BinderConfiguration(SettingsModel):
    """One messaging system: `spring.cloud.stream.binders.<name>.*`."""

    type: str | None = None
    """The kind of binder; unset: the name of this configuration."""
    environment: dict[str, Any] = setting(default_factory=dict)
    """Settings only this binder sees."""
    inherit_environment: bool = True
    """Whether the binder sees the application's settings too."""
    default_candidate: bool = True
    """Whether it may become the default binder; false: only when a binding names it."""
