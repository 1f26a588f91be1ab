"""The RocketMQ binder fulfils the contract on Apache's brokers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streamkit.binder.capabilities import Capability
from streamkit.testing.contract import BinderContract
from tests.contract.rocket_environment import RocketEnvironment, checks_of
from tests.peer.apache import ApacheBroker
from tests.peer.stage import DELAY_LEVELS


@pytest.mark.slow
class TestApacheBroker(BinderContract):
    """Every case that does not take hours, with short delay levels."""

    @pytest.fixture
    def environment(
        self, request: pytest.FixtureRequest, apache_broker: ApacheBroker, tmp_path: Path
    ) -> Iterator[RocketEnvironment]:
        name = f"Apache {apache_broker.version}"
        environment = RocketEnvironment(apache_broker.name_server, tmp_path / "offsets", DELAY_LEVELS, name)
        if apache_broker.version.startswith("4."):
            environment.capabilities -= {Capability.DELAY_ANY}
        with checks_of(request, apache_broker.address):
            yield environment
