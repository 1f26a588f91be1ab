"""Totals of topics and groups, and what they grew by in a minute, an hour and a day."""

from rocket_broker import traffic
from rocket_broker.put_times import PutTimes
from rocket_broker.statistics import BrokerStatistics
from rocket_broker.traffic import WINDOWS, Growth, TrafficTable

MINUTE, HOUR, DAY = range(3)
ALL = [MINUTE, HOUR, DAY]


class Time:
    """Seconds that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def run(table: TrafficTable[str], time: Time, seconds: int) -> None:
    """Sample a table for some seconds, as a broker does."""
    for _ in range(seconds // 10):
        time.now += 10
        due = [number for number in ALL if not time.now % WINDOWS[number].step]
        list(table.sample(due, time.now))


def test_growth_is_that_of_each_window() -> None:
    """One message a second for two days: sixty in a minute, as on Apache's brokers."""
    time = Time()
    table: TrafficTable[str] = TrafficTable(time)
    for _ in range(2 * 24 * 6):
        table["orders"].count(600, 6000, calls=300)
        run(table, time, 600)
    orders = table["orders"]
    assert orders.growth(HOUR, time.now) == Growth(3600, 1800, 3600, 36_000)
    assert orders.growth(DAY, time.now) == Growth(86_400, 43_200, 86_400, 864_000)
    assert orders.growth(MINUTE, time.now) == Growth(60, 0, 0, 0)
    orders.count(7, 70)
    assert orders.growth(MINUTE, time.now) == Growth(60, 1, 7, 70)


def test_first_window_of_a_young_topic_is_short() -> None:
    """It begins one step before the topic, so that its rates are neither infinite nor those of a whole day."""
    time = Time()
    time.now = 1000
    table: TrafficTable[str] = TrafficTable(time)
    table["orders"].count(5, 50)
    seconds = [table["orders"].growth(number, 1000).seconds for number in ALL]
    assert seconds == [window.step for window in WINDOWS]


def test_topic_that_is_idle_for_a_day_is_removed() -> None:
    """Its messages stay in the totals."""
    time = Time()
    table: TrafficTable[str] = TrafficTable(time)
    table["orders"].count(5, 50)
    run(table, time, 24 * 3600)
    assert "orders" in table
    run(table, time, 3600)
    assert "orders" not in table
    assert table.total("messages") == 5


def test_table_has_a_limit() -> None:
    """Topics beyond it are counted in the totals only."""
    time = Time()
    table: TrafficTable[int] = TrafficTable(time)
    for number in range(traffic.MOST_TRAFFIC + 3):
        table[number].count(1, 10)
    assert len(table) == traffic.MOST_TRAFFIC
    assert (table.total("messages"), table.total("size")) == (traffic.MOST_TRAFFIC + 3, 10 * (traffic.MOST_TRAFFIC + 3))


def test_deleted_topics_and_groups_are_forgotten() -> None:
    """Whatever was counted under their names."""
    statistics = BrokerStatistics(time=Time())
    for topic, group in (("a", "x"), ("a", "y"), ("b", "x")):
        statistics.puts[topic].count(1, 10)
        statistics.gets[topic, group].count(1, 10)
    statistics.forget_topic("a")
    assert (list(statistics.puts), list(statistics.gets)) == (["b"], [("b", "x")])
    statistics.forget_group("x")
    assert not statistics.gets
    assert (statistics.put_messages, statistics.got_messages) == (3, 3)


def test_day_begins_with_its_first_sample() -> None:
    """The totals at this morning and at yesterday's."""
    time, days = Time(), [0]
    statistics = BrokerStatistics(time=time, now_ms=lambda: 1_700_000_000_000 + days[0] * 86_400_000)
    for messages in (5, 7):
        statistics.puts["orders"].count(messages, 10)
        list(statistics.sample())
        days[0] += 1
        list(statistics.sample())
    assert statistics.mornings == [(12, 0), (5, 0)]


def test_times_of_puts_are_those_of_the_last_full_minute() -> None:
    """All messages that were not slow are in the first range."""
    stored = [0]
    times = PutTimes(lambda: stored[0])
    stored[0] = 100
    times.note(0.0042, 2)
    times.note(0.7, 1)
    assert set(times.distribution().split()) == {f"{name}:0" for name in times.distribution().replace(":0", "").split()}
    times.begin_minute()
    assert [part for part in times.distribution().split() if not part.endswith(":0")] == [
        "[<=0ms]:97", "[0~10ms]:2", "[500ms~1s]:1",
    ]  # fmt: skip
    assert [times.quantile_ms(share) for share in (0.5, 0.99, 0.999)] == [0, 10, 1000]
    assert times.longest_ms == 700
