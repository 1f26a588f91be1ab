"""What all measurements of a run share: how often and how long, and which servers there are."""

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.peers.servers import version_of
from tests.peer.artifacts import KAFKA_VERSION

__all__ = ["Run"]


@dataclass(frozen=True, slots=True)
class Run:
    """One run.

    Attributes:
        rounds: How often each figure is measured; medians count.
        seconds: How long each measurement takes; backlogs are as large as this.
        backlog: Messages of the large backlog.
        servers: The servers that can be started here.
        say: Shows what goes on.
    """

    rounds: int
    seconds: float
    backlog: int
    servers: Sequence[str]
    say: Callable[[str], None]

    def notes(self, *versions: str, servers: Sequence[str] = ()) -> list[str]:
        """Return the paragraph that says how often the figures were measured, and with which versions.

        Args:
            versions: Packages with their versions.
            servers: Which of `servers` took part.
        """
        of_server = {
            "Kafka": lambda: f"Kafka {KAFKA_VERSION}",
            "NATS": lambda: version_of("nats-server").replace(":", ""),
            "Redis": lambda: version_of("redis-server").partition(" sha")[0],
        }
        named = [f"Python {platform.python_version()} on {platform.system()} {platform.machine()}", *versions]
        named += [of_server[name]() for name in servers if name in of_server]
        return [f"Medians; rounds: {self.rounds}, the systems in turns. {', '.join(named)}."]
