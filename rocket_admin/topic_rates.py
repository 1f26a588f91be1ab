"""How many messages a topic gets and gives in a minute, an hour and a day, by the brokers' own counters.

Brokers count from their start, and take samples: every ten seconds for the minute, every ten minutes for the hour,
every hour for the day. So a span can be known while a longer one is not yet, and Apache's brokers say 0 for that. What
cannot be told from that is absent here.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from rocket_admin.broker_answers import BrokerFailure, ask_masters
from rocket_admin.subscribers import groups_of_topic
from rocket_client import Admin
from rocket_remoting.wire.bodies import BrokerStatsData

__all__ = ["TopicRate", "TopicRates", "rate_of", "topic_rates"]


class TopicRate(msgspec.Struct, frozen=True, kw_only=True):
    """The messages that a topic got, or gave to one group, on all brokers.

    Attributes:
        topic: The topic.
        group: The group that got the messages; absent for those that were stored.
        per_second_minute: Messages per second in the last minute; absent if that is not known.
        per_second_hour: The same of the last hour.
        per_second_day: The same of the last day.
        messages_minute: Messages in the last minute; absent if that is not known.
        messages_hour: The same of the last hour.
        messages_day: The same of the last day.
    """

    topic: str
    group: str | None = None
    per_second_minute: float | None = None
    per_second_hour: float | None = None
    per_second_day: float | None = None
    messages_minute: int | None = None
    messages_hour: int | None = None
    messages_day: int | None = None


class TopicRates(msgspec.Struct, frozen=True, kw_only=True):
    """The rates of a topic.

    Attributes:
        rates: Of the messages that were stored first, then of each group, sorted by name.
        failures: The brokers that did not answer; all rates are absent then.
    """

    rates: tuple[TopicRate, ...]
    failures: tuple[BrokerFailure, ...]


async def topic_rates(admin: Admin, topic: str) -> TopicRates:
    """Return how many messages a topic gets, and gives to each of its groups.

    Raises:
        TopicNotFoundError: The topic does not exist.
    """
    route = await admin.topic_route(topic)
    brokers = {broker.broker_name for broker in route.data.broker_datas if 0 in broker.broker_addrs}
    masters = await admin.masters(brokers)
    found = await ask_masters(admin, lambda address: groups_of_topic(admin, address, topic), masters=masters)
    groups = sorted(set[str]().union(*found.answers.values()))

    async def rate(group: str | None) -> tuple[TopicRate, tuple[BrokerFailure, ...]]:
        name, key = ("TOPIC_PUT_NUMS", topic) if group is None else ("GROUP_GET_NUMS", f"{topic}@{group}")
        counted = await ask_masters(admin, lambda address: admin.broker_stats(address, name, key), masters=masters)
        known = [] if counted.failures else [data for data in counted.answers.values() if data is not None]
        return rate_of(topic, group, known), counted.failures

    answers = await asyncio.gather(*map(rate, (None, *groups)))
    failures = (*found.failures, *(failure for _, failures in answers for failure in failures))
    return TopicRates(rates=tuple(rate for rate, _ in answers), failures=tuple(dict.fromkeys(failures)))


def rate_of(topic: str, group: str | None, counters: Sequence[BrokerStatsData]) -> TopicRate:
    """Return the rate of a topic from the counters of brokers.

    Args:
        topic: The topic.
        group: The group that got the messages; None for those that were stored.
        counters: A counter of each broker that has one: those have none that have counted nothing since their start.
    """
    spans = [_known(counter) for counter in counters]
    sums: list[tuple[float, int] | None] = []
    for number in range(3):
        of_span = [known[number] for known in spans]
        told = [each for each in of_span if each is not None]
        is_known = told and len(told) == len(of_span)
        sums.append((round(sum(tps for tps, _ in told), 6), sum(count for _, count in told)) if is_known else None)
    minute, hour, day = sums
    return TopicRate(
        topic=topic,
        group=group,
        per_second_minute=minute and minute[0],
        per_second_hour=hour and hour[0],
        per_second_day=day and day[0],
        messages_minute=minute and minute[1],
        messages_hour=hour and hour[1],
        messages_day=day and day[1],
    )


def _known(counter: BrokerStatsData) -> list[tuple[float, int] | None]:
    """Return rate and number for minute, hour and day; None where a 0 only says that samples are missing yet."""
    items = (counter.stats_minute, counter.stats_hour, counter.stats_day)
    known: list[tuple[float, int] | None] = []
    most = 0
    for item in items:
        is_sampled = item.tps is not None and (item.sum > 0 or not most)
        known.append((item.tps or 0.0, item.sum) if is_sampled else None)
        most = max(most, item.sum)
    # The counter exists, so there were messages. All 0 means that it is new, or has been idle for more than a day.
    return known if most else [None, None, None]
