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

    def notes(self, *more: str) -> list[str]:
        """Return the paragraph that says how and with which versions the figures were measured."""
        versions = [f"Python {platform.python_version()} on {platform.system()} {platform.machine()}", *more]
        versions += [f"Kafka {KAFKA_VERSION}"] if "Kafka" in self.servers else []
        versions += [version_of("nats-server").replace(":", "")] if "NATS" in self.servers else []
        versions += [version_of("redis-server").partition(" sha")[0]] if "Redis" in self.servers else []
        return [f"Medians of {self.rounds} rounds, in turns. {', '.join(versions)}."]
