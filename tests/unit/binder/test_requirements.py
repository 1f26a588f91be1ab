"""What the settings of a binding ask of its binder."""

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
def test_a_consumer_asks_for_what_it_sets_and_nothing_else(settings: dict[str, object], asked: set[Capability]) -> None:
    """All messages are no selection by tags, so a binder that has no tags will do."""
    requirements = InMemoryConsumerProperties.model_validate(settings).requirements()
    assert {requirement.capability for requirement in requirements} == asked


@pytest.mark.parametrize("transactional", [True, False])
def test_a_producer_asks_for_transactions_where_it_is_transactional(transactional: bool) -> None:
    """And names the setting that says so."""
    requirements = list(InMemoryProducerProperties(transactional=transactional).requirements())
    asked = [(requirement.capability, requirement.properties) for requirement in requirements]
    assert asked == [(Capability.TRANSACTION, ("transactional",))] * transactional
