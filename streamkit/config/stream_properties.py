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
    """Whether the binding starts with the application. If not, it stays stopped until it is started."""
    concurrency: int = setting(default=1, ge=1)
    """The number of messages that are handled at the same time."""
    partitioned: Annotated[
        bool, Accepted("the messaging system shares the partitions among the members of a group by itself")
    ] = False
    """Whether the input is partitioned, for systems that do not assign partitions themselves."""
    instance_count: int = setting(default=-1, ge=-1)
    """Overrides `spring.cloud.stream.instance-count` for this binding. -1: no override."""
    instance_index: int = setting(default=-1, ge=-1)
    """Overrides `spring.cloud.stream.instance-index` for this binding. -1: no override."""
    instance_index_list: Annotated[
        list[int], Rejected("a process has one index here; start a process for each index")
    ] = setting(default_factory=list)
    """The indexes of this instance, which has a consumer for each index."""
    max_attempts: int = setting(default=3, ge=1)
    """The number of attempts in this process, including the first. 1: no retries."""
    back_off_initial_interval: Milliseconds = timedelta(seconds=1)
    """The pause before the second attempt."""
    back_off_max_interval: Milliseconds = timedelta(seconds=10)
    """The longest pause between two attempts."""
    back_off_multiplier: float = setting(default=2.0, ge=1)
    """The factor by which each pause is longer than the one before."""
    default_retryable: bool = True
    """Whether exceptions that `retryable-exceptions` does not list are retried."""
    retryable_exceptions: dict[str, bool] = setting(default_factory=dict)
    """Whether exceptions are retried, by the dotted name of their class. A class also stands for its subclasses, for
    exceptions that it caused, and for exception groups of it."""
    retry_template_name: str | None = None
    """The name of a registered retry policy. It replaces `max-attempts`, `back-off-*`, `retryable-exceptions` and
    `default-retryable`; `max-attempts=1` turns it off too."""
    header_mode: HeaderMode | None = None
    """Where headers are read. Always: the messaging system's own headers. `embeddedHeaders`: also the front of the
    payload, where Spring embeds them."""
    use_native_decoding: bool = False
    """Whether the listener gets the payload as the binder received it, without conversion by content type."""
    multiplex: bool = False
    """Whether the destinations of a list share one consumer and its concurrency. If not, each destination has its own
    consumer with that concurrency."""
    batch_mode: bool = False
    """Whether the listener receives several messages at once, as a list."""


class ProducerProperties(SettingsModel):
    """How an output binding produces: `spring.cloud.stream.bindings.<name>.producer.*`."""

    auto_startup: bool = True
    """Whether the binding starts with the application. If not, it stays stopped until it is started."""
    partition_key_expression: str | None = None
    """An expression that returns the partition key of a message. Setting it makes the binding partitioned."""
    partition_key_extractor_name: str | None = None
    """The name of a registered function that returns the partition key of a message. If it returns None, the expression
    is used."""
    partition_selector_name: str | None = None
    """The name of a registered function that chooses the partition from the key and the number of partitions."""
    partition_selector_expression: str | None = None
    """An expression that chooses the partition from the key. Unset: Java's hash of the key."""
    partition_key_extractor_class: Annotated[str | None, _NO_CLASSES] = None
    """A class that returns the partition key of a message."""
    partition_selector_class: Annotated[str | None, _NO_CLASSES] = None
    """A class that chooses the partition from the key."""
    partition_count: int = setting(default=1, ge=1)
    """The number of partitions, if the messaging system does not know it."""
    required_groups: list[str] = setting(default_factory=list)
    """Groups that receive all messages sent from now on, even if they have had no members yet."""
    header_mode: HeaderMode | None = None
    """How headers are sent. Unset or `headers`: as the messaging system's own headers. `embeddedHeaders`: also in front
    of the payload, as Spring embeds them. `none`: not at all."""
    use_native_encoding: bool = False
    """Whether payloads are sent without conversion by content type. They must be bytes then."""
    error_channel_enabled: bool = False
    """Whether a failed send goes to the channel `<destination>.errors` instead of raising an exception at the
    sender."""
    poller: PollerProperties = setting(default_factory=PollerProperties)
    """How this binding's supplier is polled."""
    dynamic_partition_updates_enabled: Annotated[
        bool, Accepted("the number of partitions always follows the messaging system's")
    ] = False
    """Whether the number of partitions may change while the application runs."""


def _checked_media_type(text: str) -> str:
    MimeType.parse(text)
    return text


class BindingProperties(SettingsModel):
    """One binding: `spring.cloud.stream.bindings.<name>.*`."""

    destination: str | None = None
    """The topic. An input may have several topics, separated by commas. Unset: the binding's name."""
    group: str | None = None
    """The consumer group. Unset: an anonymous group, which is not durable and receives only new messages."""
    content_type: Annotated[str, After(_checked_media_type)] | None = None
    """The content type of payloads whose message has no header `contentType`. Unset: `application/json`."""
    binder: str | None = None
    """The name of the binder, one of `binders`. Unset: `default-binder`."""
    error_handler_definition: str | None = None
    """The name of a registered function that handles the binding's errors. If it returns, the message counts as
    consumed."""
    consumer: ConsumerProperties = setting(default_factory=ConsumerProperties)
    """How it consumes, when it is an input."""
    producer: ProducerProperties = setting(default_factory=ProducerProperties)
    """How it produces, when it is an output."""


class BinderConfiguration(SettingsModel):
    """One messaging system: `spring.cloud.stream.binders.<name>.*`."""

    type: str | None = None
    """The binder's type, such as `rocketmq`. Unset: the name of this entry."""
    environment: dict[str, Any] = setting(default_factory=dict)
    """Settings that only this binder sees."""
    inherit_environment: bool = True
    """Whether the binder sees the application's settings too."""
    default_candidate: bool = True
    """Whether the binder may become the default binder. If not, only bindings that name it use it."""
