"""Makes the partitioner of a producer binding from its settings.

::

    key        1. partition-key-extractor-name     a registered function of the message, or an object with extract_key
               2. partition-key-expression         of the message; if there is no extractor, or it returns None
    partition  1. partition-selector-expression    of the key
               2. partition-selector-name          a registered function of key and count, or an object with
                                                   select_partition
               3. |hash(key)| mod count

A binder's own settings may name a function of the message and the count instead (RocketMQ's message-queue-selector).
"""

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, TypeVar, cast

from streamkit.binder.named_objects import NamedObjects
from streamkit.binder.partitioning import KeyExtractor, Partitioner, PartitionSelector, partition_of
from streamkit.config.settings import ProducerProperties
from streamkit.errors import ConfigurationError, ExpressionError, MessageDeliveryError
from streamkit.messaging.message import Message

if TYPE_CHECKING:  # few bindings are partitioned by an expression
    from streamkit.expression import Expression

__all__ = ["ASKED_BY", "partitioner_of"]

ASKED_BY = ("producer.partition-key-expression", "producer.partition-key-extractor-name")
"""The settings that make a binding partitioned."""

T = TypeVar("T")


def partitioner_of(
    properties: ProducerProperties, named: NamedObjects, message_selector: str | None = None
) -> Partitioner | None:
    """Return the partitioner of a producer binding, or None if the binding is not partitioned.

    Args:
        properties: The settings.
        named: The registered objects, which settings name.
        message_selector: The name in the binder's own settings of a function of message and count, which overrides the
            other settings.

    Raises:
        ConfigurationError: A setting is wrong; ``key`` is the setting below the binding.
    """
    if message_selector is not None:
        return Partitioner(_itself, _of_messages(message_selector, named))
    extract = _named(
        "partition_key_extractor_name",
        properties.partition_key_extractor_name,
        "a function of the message, or an object with extract_key",
        lambda name, kind: named.find(name, kind, _extractor),
    )
    expression = _expression("partition_key_expression", properties.partition_key_expression)
    chosen = _expression("partition_selector_expression", properties.partition_selector_expression)
    selector = _named(
        "partition_selector_name",
        properties.partition_selector_name,
        "a function of key and count, or an object with select_partition",
        lambda name, kind: named.find(name, kind, _selector),
    )
    if extract is None and expression is None:
        return None
    if chosen is not None:
        selector = _by_expression(chosen)
    return Partitioner(_first(extract, expression), selector or partition_of)


def _itself(message: Message[object]) -> object:
    """Return the message itself as the key, for selectors of the whole message."""
    return message


def _of_messages(name: str, named: NamedObjects) -> PartitionSelector:
    try:
        return named.find(name, "a function of the message and the number of queues", _selector)
    except LookupError as error:
        raise ConfigurationError(f"message-queue-selector={name}: {error}") from error


def _named(
    setting: str, name: str | None, kind: str, find: Callable[[str, str], Callable[..., T]]
) -> Callable[..., T] | None:
    if name is None:
        return None
    try:
        return find(name, kind)
    except LookupError as error:
        raise ConfigurationError(str(error), key=f"producer.{setting}") from error


def _expression(setting: str, source: str | None) -> "Expression | None":
    if source is None:
        return None
    from streamkit.expression import compile_expression

    try:
        return compile_expression(source)
    except ExpressionError as error:
        raise ConfigurationError(str(error), key=f"producer.{setting}") from error


def _extractor(found: object) -> KeyExtractor | None:
    return _plain_function(getattr(found, "extract_key", found))


def _selector(found: object) -> PartitionSelector | None:
    return cast("PartitionSelector | None", _plain_function(getattr(found, "select_partition", found)))


def _plain_function(found: object) -> Callable[..., object] | None:
    """Return ``found`` if it is a function that is not a coroutine function, which a send could not await here."""
    return found if callable(found) and not iscoroutinefunction(found) else None


def _first(extract: KeyExtractor | None, expression: "Expression | None") -> KeyExtractor:
    if extract is None or expression is None:
        return extract or _required(expression)

    def first(message: Message[object]) -> object:
        key = extract(message)
        return expression(message) if key is None else key

    return first


def _required(expression: "Expression | None") -> KeyExtractor:
    assert expression is not None
    return expression


def _by_expression(expression: "Expression") -> PartitionSelector:
    def select(key: object, count: int) -> int:
        chosen = expression(key)
        if isinstance(chosen, int):
            return chosen
        raise MessageDeliveryError(f"partition-selector-expression gives {chosen!r}: expected a whole number")

    return select
