"""Counters of the messages and pulls of a broker since its start, and their recent rates."""

from collections import deque
from collections.abc import Callable

from rocket_broker.loop.loop_time import loop_time

__all__ = ["BrokerStatistics"]

_WINDOWS = (10.0, 60.0, 600.0)
_SAMPLES = 61  # a sample every ten seconds covers ten minutes


class BrokerStatistics:
    """Counters that the processors raise, sampled every ten seconds for the rates that tools show.

    Attributes:
        put_messages: Messages stored for producers.
        put_bytes: Bytes of the records of these messages.
        got_messages: Messages sent to consumers.
        pulls_found: Pulls that were answered with messages.
        pulls_missed: Pulls that were held or answered without messages.
        transactions_put_aside: Half messages moved to TRANS_CHECK_MAX_TIME_TOPIC.
    """

    def __init__(self, *, time: Callable[[], float] = loop_time) -> None:
        self._time = time
        self.put_messages = 0
        self.put_bytes = 0
        self.got_messages = 0
        self.pulls_found = 0
        self.pulls_missed = 0
        self.transactions_put_aside = 0
        self._samples: deque[tuple[float, dict[str, int]]] = deque(maxlen=_SAMPLES)

    def sample(self) -> None:
        """Keep the present values of the counters. To be called every ten seconds."""
        self._samples.append((self._time(), self._counters()))

    def rates(self, *counters: str) -> str:
        """Return the counters' sum per second over the last 10 s, 1 min and 10 min, in the format of Apache's tools."""
        now, current = self._time(), self._counters()
        rates = []
        for window in _WINDOWS:
            at, then = self._sample_before(now - window)
            seconds = now - at
            grown = sum(current[name] - then[name] for name in counters)
            rates.append(grown / seconds if seconds > 0 else 0.0)
        return " ".join(map(str, rates))

    def _sample_before(self, moment: float) -> tuple[float, dict[str, int]]:
        """Return the newest sample that is not after the moment, or else the oldest sample."""
        best = None
        for sample in self._samples:
            if best is not None and sample[0] > moment:
                break
            best = sample
        return best if best is not None else (self._time(), self._counters())

    def _counters(self) -> dict[str, int]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __repr__(self) -> str:
        return f"BrokerStatistics(put_messages={self.put_messages}, got_messages={self.got_messages})"
