"""The RocketMQ binder fulfils the contract on the bundled broker: in virtual time, and over TCP in real time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocket_broker.pytest_plugin import RocketBrokerFactory
from streamkit.testing.contract import BinderContract
from streamkit.testing.virtual_time import VirtualTime
from tests.contract.rocket_environment import (
    CHECKS,
    RocketEnvironment,
    VirtualRocketEnvironment,
    checks_of,
)

DELAY_LEVELS = "1s 1s 1s 1s 1s 2s"


class TestBundledBroker(BinderContract):
    """Every case, with the documented times."""

    @pytest.fixture
    def environment(self, tmp_path: Path) -> Iterator[VirtualRocketEnvironment]:
        with VirtualTime() as time:
            yield VirtualRocketEnvironment(time, tmp_path)


@pytest.mark.slow
class TestBundledBrokerOverTcp(BinderContract):
    """Every case that does not take hours, with short delay levels."""

    @pytest.fixture
    def environment(
        self, request: pytest.FixtureRequest, rocket_broker_factory: RocketBrokerFactory, tmp_path: Path
    ) -> Iterator[RocketEnvironment]:
        broker = rocket_broker_factory(messageDelayLevel=DELAY_LEVELS, **CHECKS)
        with checks_of(request, broker.address):
            yield RocketEnvironment(broker.name_server, tmp_path / "offsets", DELAY_LEVELS)
