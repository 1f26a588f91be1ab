"""Both transports, for tests that must pass on either."""

import pytest

from rocket_remoting.transports.memory import MemoryTransport
from rocket_remoting.transports.tcp import TcpTransport
from rocket_remoting.transports.transport import Transport


@pytest.fixture(params=[TcpTransport, MemoryTransport], ids=["tcp", "memory"])
def transport(request: pytest.FixtureRequest) -> Transport:
    """A transport of each kind."""
    made: Transport = request.param()
    return made
