"""The rates of topics are what brokers counted; what they have not counted for long enough is absent, and never 0."""

import asyncio

import pytest

from rocket_admin.commands.topic import topic
from rocket_admin.topic_rates import TopicRate, rate_of
from rocket_remoting.wire.bodies import BrokerStatsData, BrokerStatsItem, decode_body
from tests.unit.rocket_admin.cluster import send
from tests.unit.rocket_admin.terminal import Terminal


def counter(*sums: int) -> BrokerStatsData:
    """Return a counter with these sums of a minute, an hour and a day."""
    minute, hour, day = (BrokerStatsItem(sum=each, tps=each / 60) for each in sums)
    return BrokerStatsData(stats_minute=minute, stats_hour=hour, stats_day=day)


@pytest.mark.parametrize(
    ("sums", "messages"),
    [
        ((6, 60, 600), (6, 60, 600)),
        ((6, 60, 0), (6, 60, None)),
        ((0, 60, 0), (0, 60, None)),
        ((0, 0, 600), (0, 0, 600)),
        ((0, 0, 0), (None, None, None)),
    ],
)
def test_zero_of_a_long_span_is_not_known_yet(sums: tuple[int, ...], messages: tuple[int | None, ...]) -> None:
    """Brokers sample an hour every ten minutes, and a day every hour."""
    rate = rate_of("orders", None, [counter(*sums)])
    assert (rate.messages_minute, rate.messages_hour, rate.messages_day) == messages
    assert (rate.per_second_minute, rate.per_second_hour, rate.per_second_day) == tuple(
        None if each is None else round(each / 60, 6) for each in messages
    )


def test_counters_of_brokers_are_added() -> None:
    """A span is known if each broker that has a counter knows it; without any counter, nothing is."""
    both = rate_of("orders", "kitchen", [counter(6, 60, 600), counter(6, 0, 0)])
    assert (both.messages_minute, both.messages_hour, both.messages_day) == (12, None, None)
    assert rate_of("orders", "kitchen", []) == TopicRate(topic="orders", group="kitchen")


def test_single_sample_of_apaches_broker_is_not_a_rate() -> None:
    """Java divides by a time of 0, and fastjson writes null for that."""
    text = b'{"statsDay":{"avgpt":0.0,"sum":0,"tps":null},"statsHour":{"avgpt":0.0,"sum":0,"tps":null},'
    minute = b'"statsMinute":{"avgpt":1.0,"sum":6,"tps":0.6}}'
    rate = rate_of("orders", None, [decode_body(text + minute, BrokerStatsData)])
    assert (rate.per_second_minute, rate.per_second_hour, rate.per_second_day) == (0.6, None, None)


def test_command_shows_rates_below_the_queues(terminal: Terminal) -> None:
    """A topic without messages has none."""
    for name in ("teas", "cakes"):
        assert terminal.run(topic, "create", name, "--queues", "1").exit_code == 0
    asyncio.run(send(terminal.name_server, "teas", 3))
    (stored,) = terminal.json(topic, "stats", "teas", "--rates")
    assert (stored["topic"], stored["messages_minute"], stored["messages_day"]) == ("teas", 3, 3)
    assert stored["per_second_minute"] > 0
    assert terminal.json(topic, "stats", "cakes", "--rates") == [{"topic": "cakes"}]
    lines = terminal.lines(topic, "stats", "cakes")
    assert lines[0].startswith("BROKER")
    assert lines[-1].split() == ["stored", *"----"]
