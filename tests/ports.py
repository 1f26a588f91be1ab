"""Ports for servers that must come back where they were."""

import socket
from random import SystemRandom

_given: set[int] = set()
_random = SystemRandom()
"""Not the seeded one, whose numbers are the same in each of the processes that share the tests."""


def free_ports() -> tuple[int, int]:
    """Return a port for a name server and one for a broker whose neighbours −2 and +1 are free too.

    They lie below the range from which the system serves outgoing connections and listeners that name no port, so
    that nobody takes them while their server is down. No port is given out twice in a process.
    """
    for _ in range(200):
        broker = _random.randrange(20_000, 32_000)
        name_server = _random.randrange(20_000, 32_000)
        ports = {name_server, broker, broker - 2, broker + 1}
        if len(ports) == 4 and not ports & _given and all(map(_is_free, ports)):
            _given.update(ports)
            return name_server, broker
    raise OSError("no free ports for a name server and a broker")


def _is_free(port: int) -> bool:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
