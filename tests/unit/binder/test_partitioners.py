"""Partition keys and partitions by objects named in settings."""

from collections.abc import Callable

import pytest

from streamkit.binder.named_objects import NamedObjects
from streamkit.binder.partitioners import partitioner_of
from streamkit.config.settings import ProducerProperties
from streamkit.errors import ConfigurationError
from streamkit.messaging.message import Message


class Strategy:
    """An object with both of Spring's strategies."""

    def extract_key(self, message: Message[object]) -> object:
        """Return the customer."""
        return message.headers.get("customer")

    def select_partition(self, key: object, count: int) -> int:
        """Select by the length of the name."""
        return len(str(key)) + count


async def too_late(message: Message[object]) -> str:
    """Be async, although nothing would await it."""
    return ""


NAMED = NamedObjects()
NAMED.add("strategy", Strategy())
NAMED.add("customer", lambda message: message.headers.get("customer"))
NAMED.add("constant", lambda key, count: -7)
NAMED.add("async", too_late)

EXTRACTOR = "partition_key_extractor_name"
EXPRESSION = "partition_key_expression"
SELECTOR = "partition_selector_name"


def partition(headers: dict[str, object], **settings: str) -> int:
    """Return the partition of a message among 5."""
    partitioner = partitioner_of(ProducerProperties.model_validate(settings), NAMED)
    assert partitioner is not None
    return partitioner.partition(Message("x", headers), 5)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({EXTRACTOR: "strategy", SELECTOR: "strategy"}, 3),
        ({EXTRACTOR: "customer", SELECTOR: "strategy"}, 3),
        ({EXPRESSION: "headers['customer']", SELECTOR: "strategy"}, 3),
        ({EXTRACTOR: "customer", SELECTOR: "constant"}, 2),
        ({EXTRACTOR: "customer", SELECTOR: "constant", "partition_selector_expression": "4"}, 4),
    ],
)
def test_functions_and_objects_select_partitions(settings: dict[str, str], expected: int) -> None:
    """An expression precedes a function; negative results are mapped as by Java's remainder."""
    assert partition({"customer": "Ann"}, **settings) == expected


def test_expression_is_used_if_the_extractor_returns_no_key() -> None:
    """As in Spring's handler."""
    settings = {EXTRACTOR: "customer", EXPRESSION: "headers['region']", SELECTOR: "strategy"}
    assert partition({"region": "EU"}, **settings) == 2


def test_selector_without_a_key_makes_no_partitioner() -> None:
    """A binding is partitioned by its key."""
    assert partitioner_of(ProducerProperties(partition_selector_name="strategy"), NAMED) is None


@pytest.mark.parametrize(
    ("settings", "key", "reason"),
    [
        ({EXTRACTOR: "custommer"}, EXTRACTOR, "did you mean 'customer'?"),
        ({EXTRACTOR: "async"}, EXTRACTOR, "not a function of the message"),
        ({EXPRESSION: "payload", SELECTOR: "nobody"}, SELECTOR, "nothing is registered as 'nobody'"),
        ({EXPRESSION: "payload +"}, EXPRESSION, "payload"),
    ],
)
def test_unusable_strategy_is_reported_with_its_setting(settings: dict[str, str], key: str, reason: str) -> None:
    """When the binding is created."""
    make: Callable[..., object] = partitioner_of
    with pytest.raises(ConfigurationError, match=reason) as caught:
        make(ProducerProperties.model_validate(settings), NAMED)
    assert caught.value.key == f"producer.{key}"
