"""The capabilities that a binding's settings require of its binder."""

import pytest

from binders.inmemory.properties import InMemoryConsumerProperties, InMemoryProducerProperties
from streamkit.binder.capabilities import Capability


@pytest.mark.parametrize(
    ("settings", "asked"),
    [
        ({}, set()),
        ({"tags": "*"}, set()),
        ({"tags": "a||b"}, {Capability.TAG}),
        ({"sql": "size > 1"}, {Capability.SQL}),
        ({"sql": "size > 1", "tags": "a"}, {Capability.SQL}),
        ({"ordered": True, "broadcast": True}, {Capability.ORDER, Capability.BROADCAST}),
    ],
)
def test_consumer_requires_only_what_it_sets(settings: dict[str, object], asked: set[Capability]) -> None:
    """A subscription to all tags needs no tag support."""
    requirements = InMemoryConsumerProperties.model_validate(settings).requirements()
    assert {requirement.capability for requirement in requirements} == asked


@pytest.mark.parametrize("transactional", [True, False])
def test_transactional_producer_requires_transactions(transactional: bool) -> None:
    """And names the setting."""
    requirements = list(InMemoryProducerProperties(transactional=transactional).requirements())
    asked = [(requirement.capability, requirement.properties) for requirement in requirements]
    assert asked == [(Capability.TRANSACTION, ("transactional",))] * transactional
