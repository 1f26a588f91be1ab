"""The counters of a blocking client, which several threads may use."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from rocket_client.blocking.pulls import PullResult
from rocket_client.connection.identity import client_id, new_instance_name
from rocket_client.core.pull_answer import PullStatus
from rocket_client.metrics import ClientMetrics, ConsumerMeter
from rocket_client.settings import ProducerSettings
from rocket_remoting.wire.record import read_size_and_magic

__all__ = ["BlockingMeters", "Meters"]


class Meters:
    """Counters that count nothing, for clients without `metrics` in their settings."""

    def __repr__(self) -> str:
        return "<Meters that count nothing>"

    def writes(self, topic: str) -> None:
        """Show the counters of sends to a topic, which begin with 0."""

    def reads(self, topic: str) -> None:
        """Show the counters of pulls of a topic, which begin with 0."""

    def send(self, topic: str) -> AbstractContextManager[None]:
        """Count the send that the ``with`` block makes."""
        return nullcontext()

    def sent(self, topic: str, seconds: float, *, succeeded: bool) -> None:
        """Count a send that has ended; the arguments are those of `ProducerMeter.sent`."""

    def attempt_failed(self, topic: str) -> None:
        """Count an attempt of a send that has failed."""

    def pulled(self, result: PullResult) -> None:
        """Count the messages of a pull, and note how many messages of the queue are still to be pulled."""

    def forget(self) -> None:
        """Remove the lags, because the client is closed; the counters stay."""


class BlockingMeters(Meters):
    """Counts sends and pulls of one client.

    Args:
        metrics: The counters of the process.
        group: The group of the client.
        settings: The settings of the client, from which the label `client_id` is made.
    """

    def __init__(self, metrics: ClientMetrics, group: str, settings: ProducerSettings) -> None:
        self._metrics = metrics
        self._group = group
        self._client_id = client_id(settings, new_instance_name())
        self._sends = metrics.producer(self._client_id)
        self._reads: ConsumerMeter | None = None
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"<BlockingMeters of {self._client_id}>"

    def writes(self, topic: str) -> None:
        """Show the counters of sends to a topic, which begin with 0."""
        with self._locked():
            self._sends.know(topic)

    def reads(self, topic: str) -> None:
        """Show the counters of pulls of a topic, which begin with 0."""
        with self._locked():
            self._of_reads().know(topic)

    @contextmanager
    def send(self, topic: str) -> Iterator[None]:
        """Count the send that the ``with`` block makes."""
        begun = time.monotonic()
        try:
            yield
        except Exception:
            self.sent(topic, time.monotonic() - begun, succeeded=False)
            raise
        self.sent(topic, time.monotonic() - begun, succeeded=True)

    def sent(self, topic: str, seconds: float, *, succeeded: bool) -> None:
        """Count a send that has ended; the arguments are those of `ProducerMeter.sent`."""
        with self._locked():
            self._sends.sent(topic, seconds, succeeded=succeeded)

    def attempt_failed(self, topic: str) -> None:
        """Count an attempt of a send that has failed."""
        with self._locked():
            self._sends.attempt_failed(topic)

    def pulled(self, result: PullResult) -> None:
        """Count the messages of a pull, and note how many messages of the queue are still to be pulled."""
        queue = result.request.queue
        count = _count(result.records) if result.status is PullStatus.FOUND else 0
        with self._locked():
            self._of_reads().pulled(queue, count, max(0, result.max_offset - result.next_offset))

    def forget(self) -> None:
        """Remove the lags, because the client is closed; the counters stay."""
        with self._locked():
            if self._reads is not None:
                self._metrics.forget(self._reads)
            self._reads = None

    def _of_reads(self) -> ConsumerMeter:
        if self._reads is None:
            self._reads = self._metrics.consumer(self._client_id, self._group, ())
        return self._reads

    def _locked(self) -> threading.Lock:
        """Return the lock of the counters; a new one in a forked child, since a thread of the parent may hold it."""
        if self._pid != os.getpid():
            self._lock = threading.Lock()
            self._pid = os.getpid()
        return self._lock


def _count(records: bytes | memoryview) -> int:
    """Return how many records there are, one after the other."""
    count = position = 0
    while position < len(records):
        position += max(1, read_size_and_magic(records, position)[0])
        count += 1
    return count
