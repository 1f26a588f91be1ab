"""Customizers of RocketMQ's client: the hook before a consumer's start."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocket_client import PushConsumer
from streamkit.binder.binder import ConsumerDestination
from streamkit.testing.contract import Scenario
from streamkit.testing.contract.scenario import run_case
from streamkit.testing.virtual_time import VirtualTime
from tests.contract.rocket_environment import VirtualRocketEnvironment


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[VirtualRocketEnvironment]:
    """Return the bundled broker in virtual time."""
    with VirtualTime() as time:
        yield VirtualRocketEnvironment(time, tmp_path)


def test_consumer_can_be_customized_before_its_start(environment: VirtualRocketEnvironment) -> None:
    """As with Spring's `prepareStart`: the consumer subscribes to a second topic."""

    async def case(s: Scenario) -> None:
        first, second = await s.topic("first"), await s.topic("second")
        received = s.recorder()

        async def note(payload: str) -> None:
            received.add(payload)

        app = s.consumer(first, s.name("group"), note)

        @app.customize_consumer
        def subscribe_to_more(consumer: PushConsumer, destination: ConsumerDestination) -> None:
            assert destination.name == first
            consumer.subscribe(second, "*")

        await s.start(app)
        await s.send(second, "of the second")
        assert await received.settled(1) == ["of the second"]

    run_case(environment, case)
