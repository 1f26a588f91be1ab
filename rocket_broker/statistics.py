"""Counters of the messages and pulls of a broker since its start, their recent rates, and the traffic of topics."""

import time as wall_time
from collections import deque
from collections.abc import Callable, Generator

from rocket_broker.loop.loop_time import loop_time
from rocket_broker.put_times import PutTimes
from rocket_broker.traffic import WINDOWS, Traffic, TrafficTable

__all__ = ["BrokerStatistics"]

_WINDOWS = (10.0, 60.0, 600.0)
_SAMPLES = 61  # a sample every ten seconds covers ten minutes


class BrokerStatistics:
    """Counters that the processors raise, sampled every ten seconds for the rates that tools show.

    Args:
        time: Returns seconds, for durations.
        now_ms: Returns the time of day in milliseconds since 1970; without it days are not counted.

    Attributes:
        puts: Messages stored, by topic. A message that waits is counted in the topic that it waits in, and once more in
            its own when it is delivered.
        gets: Messages sent to consumers, by topic and group.
        send_backs: Messages sent back, by topic and group.
        put_times: How long storing took.
        put_failures: Messages that the store refused.
        pulls_missed: Pulls that were held or answered without messages.
        transactions_put_aside: Half messages moved to TRANS_CHECK_MAX_TIME_TOPIC.
        mornings: Messages stored and sent until the beginning of this day, and of yesterday.
    """

    def __init__(self, *, time: Callable[[], float] = loop_time, now_ms: Callable[[], int] | None = None) -> None:
        self._time = time
        self._now_ms = now_ms
        self.puts: TrafficTable[str] = TrafficTable(time)
        self.gets: TrafficTable[tuple[str, str]] = TrafficTable(time)
        self.send_backs: TrafficTable[tuple[str, str]] = TrafficTable(time)
        self.put_times = PutTimes(lambda: self.put_messages)
        self.put_failures = 0
        self.pulls_missed = 0
        self.transactions_put_aside = 0
        self.mornings = [(0, 0), (0, 0)]
        self._day: int | None = None
        self._all_puts, self._all_gets = Traffic(), Traffic()
        self._samples: deque[tuple[float, dict[str, int]]] = deque(maxlen=_SAMPLES)
        self._sampled_at = [float("-inf")] * len(WINDOWS)
        self._minute_began = float("-inf")

    @property
    def put_messages(self) -> int:
        """Messages stored."""
        return self.puts.total("messages")

    @property
    def put_bytes(self) -> int:
        """Bytes of the records of these messages."""
        return self.puts.total("size")

    @property
    def got_messages(self) -> int:
        """Messages sent to consumers."""
        return self.gets.total("messages")

    @property
    def pulls_found(self) -> int:
        """Pulls that were answered with messages."""
        return self.gets.total("calls")

    @property
    def all_puts(self) -> Traffic:
        """The messages stored in all topics. As on Apache's brokers no requests are counted."""
        self._all_puts.messages = self.put_messages
        return self._all_puts

    @property
    def all_gets(self) -> Traffic:
        """The messages sent to all groups. As on Apache's brokers no requests are counted."""
        self._all_gets.messages = self.got_messages
        return self._all_gets

    def forget_topic(self, topic: str) -> None:
        """Drop what was counted for a topic that is deleted."""
        self.puts.remove(topic)
        for table in (self.gets, self.send_backs):
            for key in [key for key in table if key[0] == topic]:
                table.remove(key)

    def forget_group(self, group: str) -> None:
        """Drop what was counted for a group that is deleted."""
        for table in (self.gets, self.send_backs):
            for key in [key for key in table if key[1] == group]:
                table.remove(key)

    def sample(self) -> Generator[None, None, None]:
        """Keep the present values of the counters, in steps. To be called every ten seconds."""
        now = self._time()
        self._samples.append((now, self._counters()))
        self._begin_day()
        if now - self._minute_began >= WINDOWS[0].span:
            self._minute_began = now
            self.put_times.begin_minute()
        due = [number for number, window in enumerate(WINDOWS) if now - self._sampled_at[number] >= window.step]
        for number in due:
            self._sampled_at[number] = now
            self.all_puts.sample(number, now)
            self.all_gets.sample(number, now)
        for table in (self.puts, self.gets, self.send_backs):
            yield from table.sample(due, now)

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

    def _begin_day(self) -> None:
        """Note the totals at the first sample of a day."""
        if self._now_ms is None:
            return
        day = wall_time.localtime(self._now_ms() / 1000).tm_yday
        if self._day is not None and day != self._day:
            self.mornings = [(self.put_messages, self.got_messages), self.mornings[0]]
        self._day = day

    def _sample_before(self, moment: float) -> tuple[float, dict[str, int]]:
        """Return the newest sample that is not after the moment, or else the oldest sample."""
        best = None
        for sample in self._samples:
            if best is not None and sample[0] > moment:
                break
            best = sample
        return best if best is not None else (self._time(), self._counters())

    def _counters(self) -> dict[str, int]:
        names = ("put_messages", "got_messages", "pulls_found", "pulls_missed")
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        return f"BrokerStatistics(put_messages={self.put_messages}, got_messages={self.got_messages})"
