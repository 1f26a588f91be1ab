"""The RocketMQ binder fulfils the contract on the bundled broker: in virtual time, and over TCP in real time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocket_broker.pytest_plugin import RocketBrokerFactory
from streamkit.testing.contract import BinderContract
from streamkit.testing.virtual_time import VirtualTime
from tests.contract.rocket_environment import (
    CHECKS,
    EncryptedRocketEnvironment,
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


class TestBundledBrokerOverTls:
    """Cases of each kind of request: what is encrypted below the binder changes nothing above it."""

    test_group = BinderContract.test_the_members_of_a_group_share_its_messages
    test_redelivery = BinderContract.test_each_redelivery_makes_one_call_and_the_last_is_followed_by_a_dead_letter
    test_transaction = BinderContract.test_an_unknown_transaction_is_checked_until_it_is_decided

    @pytest.fixture
    def environment(self, tmp_path: Path) -> Iterator[EncryptedRocketEnvironment]:
        with VirtualTime() as time:
            yield EncryptedRocketEnvironment(time, tmp_path)


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
