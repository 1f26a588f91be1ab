"""Ports for servers that must come back where they were."""

import socket
from random import SystemRandom

from rocket_broker.settings.several_brokers import PORTS_APART

_given: set[int] = set()
_random = SystemRandom()
"""Not the seeded one, whose numbers are the same in each of the processes that share the tests."""


def free_ports(brokers: int = 1) -> tuple[int, int]:
    """Return a port for a name server and one for a broker whose neighbours −2 and +1 are free too.

    With several brokers, those of `streamkit broker --processes`, the ports of the others are free too. All lie below
    the range from which the system serves outgoing connections and listeners that name no port, so that nobody takes
    them while their server is down. No port is given out twice in a process.

    Args:
        brokers: The number of brokers.
    """
    for _ in range(200):
        broker = _random.randrange(20_000, 32_000)
        name_server = _random.randrange(20_000, 32_000)
        own = [port for each in range(brokers) for port in _of_broker(broker + PORTS_APART * each)]
        ports = {name_server, *own}
        if len(ports) == len(own) + 1 and not ports & _given and all(map(_is_free, ports)):
            _given.update(ports)
            return name_server, broker
    raise OSError("no free ports for a name server and a broker")


def _of_broker(port: int) -> tuple[int, ...]:
    return port - 2, port, port + 1


def _is_free(port: int) -> bool:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
