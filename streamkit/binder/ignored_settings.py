"""The settings that a binding ignores although its model has them: other settings of the binding exclude them.

A binder adds the settings that its messaging system has no use for (:meth:`Binder.ignored_by_consumer`,
:meth:`Binder.ignored_by_producer`).
"""

from collections.abc import Mapping

from streamkit.binder.binding import Binding, InputBinding, OutputBinding
from streamkit.binder.binding_settings import topics_of
from streamkit.binder.polled import PolledReceiver
from streamkit.config.judgement import JudgedBinding
from streamkit.config.settings import BindingProperties, ConsumerProperties, HeaderMode, ProducerProperties
from streamkit.errors import BinderError

__all__ = ["judged"]

_BACK_OFF = ("back-off-initial-interval", "back-off-max-interval", "back-off-multiplier")
_RETRYABLE = ("default-retryable", "retryable-exceptions")
_SELECTORS = ("partition-selector-expression", "partition-selector-name")
_KEYS = ("partition-key-expression", "partition-key-extractor-name")


def judged(
    binding: Binding, properties: BindingProperties, *, has_policy: bool, is_polled_supplier: bool
) -> JudgedBinding:
    """Return a binding with its direction, its binder's type and the settings that it ignores.

    Args:
        binding: The binding.
        properties: Its settings.
        has_policy: Whether the application's code gives a retry policy for all bindings.
        is_polled_supplier: Whether the binding is the output of a function that is polled.
    """
    binder = binding.binder.binder
    ignored: dict[str, str] = {}
    if isinstance(binding, InputBinding):
        polled = any(isinstance(receiver, PolledReceiver) for receiver in binding.receivers)
        ignored |= _by_consumer(properties, has_policy=has_policy)
        ignored |= binder.ignored_by_consumer(binding.consumer_destinations[0], polled=polled)
    elif isinstance(binding, OutputBinding):
        extended = binding.destination.extended
        ignored |= _by_producer(properties, extended.message_selector)
        if not is_polled_supplier:
            ignored["producer.poller"] = "no function is polled for this output"
        ignored |= binder.ignored_by_producer(binding.destination)
    else:
        raise BinderError(f"{binding!r} is neither an input nor an output", binding=binding.name)
    is_input = isinstance(binding, InputBinding)
    return JudgedBinding(
        binding.name,
        is_input=is_input,
        is_output=not is_input,
        type=binder.extended_type,
        binder_type=binder.type,
        ignored=ignored,
    )


def _by_consumer(binding: BindingProperties, *, has_policy: bool) -> Mapping[str, str]:
    properties = binding.consumer
    ignored = _by_retries(properties, has_policy=has_policy)
    if properties.header_mode is HeaderMode.NONE:
        ignored["header-mode"] = "the headers of the messaging system are always read"
    if len(topics_of(binding.destination or "")) < 2:
        ignored["multiplex"] = "the binding has one destination"
    if binding.consumer.use_native_decoding:
        return {**_on("consumer", ignored), "content-type": "with use-native-decoding nothing is converted"}
    return _on("consumer", ignored)


def _by_retries(properties: ConsumerProperties, *, has_policy: bool) -> dict[str, str]:
    if properties.max_attempts == 1:
        return dict.fromkeys(
            (*_BACK_OFF, *_RETRYABLE, "retry-template-name"), "max-attempts=1: there is no second attempt"
        )
    template = properties.retry_template_name
    if template is not None:
        return dict.fromkeys(("max-attempts", *_BACK_OFF, *_RETRYABLE), f"retry-template-name={template} decides")
    if has_policy:
        return dict.fromkeys(("max-attempts", *_BACK_OFF, *_RETRYABLE), "app.use_retry_policy(...) decides")
    return {}


def _by_producer(binding: BindingProperties, message_selector: str | None) -> Mapping[str, str]:
    properties = binding.producer
    ignored = _by_partitioning(properties, message_selector)
    if properties.use_native_encoding:
        ignored["header-mode"] = "with use-native-encoding messages are sent as they are"
        return {**_on("producer", ignored), "content-type": "with use-native-encoding nothing is converted"}
    return _on("producer", ignored)


def _by_partitioning(properties: ProducerProperties, message_selector: str | None) -> dict[str, str]:
    if message_selector is not None:
        return dict.fromkeys((*_KEYS, *_SELECTORS), f"message-queue-selector={message_selector} chooses the queue")
    if properties.partition_key_expression is None and properties.partition_key_extractor_name is None:
        return dict.fromkeys(_SELECTORS, f"there is no partition key: set {' or '.join(_KEYS)}")
    if properties.partition_selector_expression is not None:
        return {"partition-selector-name": "partition-selector-expression wins"}
    return {}


def _on(side: str, ignored: Mapping[str, str]) -> dict[str, str]:
    return {f"{side}.{key}": reason for key, reason in ignored.items()}
