"""What `streamkit doctor` says of topics and groups of Kafka, as the brokers describe them."""

import pytest

from binders.kafka.diagnosis import (
    Bound,
    BoundConsumer,
    BoundProducer,
    GroupView,
    SeenTopics,
    Terms,
    judge_groups,
    judge_topics,
)
from binders.kafka.properties import TopicProperties
from binders.kafka.topics import TopicView
from streamkit.findings import Finding, Severity

BROKERS = "kafka:9092"
INPUT = BoundConsumer(binding="in", topic="orders", group="kitchen", letters="error.orders.kitchen")
OUTPUT = BoundProducer(binding="out", topic="orders")
FITS = "ok: the Kafka topics of all bindings fit them: orders"
LETTERS = TopicView("error.orders.kitchen", 1, 1)


def told(findings: list[Finding]) -> list[str]:
    """Return the severities and texts."""
    return [f"{each.severity}: {each.found}" for each in findings]


@pytest.mark.parametrize(
    ("terms", "binding", "topic", "says"),
    [
        pytest.param({}, INPUT, TopicView("orders", 1, 1), FITS, id="fits"),
        pytest.param(
            {},
            INPUT,
            None,
            f"{FITS}; the application creates orders",
            id="created",
        ),
        pytest.param(
            {"creates": False},
            OUTPUT,
            None,
            "error: topic orders of binding out does not exist, and auto-create-topics=false: the application does "
            "not start",
            id="missing",
        ),
        pytest.param(
            {},
            OUTPUT,
            TopicView("orders", error="TopicAuthorizationFailedError"),
            "unknown: topic orders of binding out could not be described: TopicAuthorizationFailedError",
            id="refused",
        ),
        pytest.param(
            {},
            OUTPUT,
            TopicView("orders", 4, 1, (1, 3)),
            "error: topic orders has partitions without a leader, which nobody can use: 1, 3",
            id="without leader",
        ),
        pytest.param(
            {},
            BoundProducer(binding="out", topic="orders", partition_count=4),
            TopicView("orders", 2, 1),
            "error: binding out asks for 4 partitions, and topic orders has 2: the application does not start",
            id="too few for an output",
        ),
        pytest.param(
            {},
            BoundConsumer(binding="in", topic="orders", group="kitchen", instances=2, concurrency=3),
            TopicView("orders", 4, 1),
            "warning: binding in has 2 instance(s) with concurrency 3 for topic orders with 4 partition(s): 2 of 6 "
            "stay idle",
            id="too few for ordered calls",
        ),
        pytest.param(
            {},
            BoundConsumer(binding="in", topic="orders", group="kitchen", instances=2, concurrency=3, ordered=False),
            TopicView("orders", 2, 1),
            FITS,
            id="not ordered",
        ),
        pytest.param(
            {"enlarges": True, "min_partitions": 8},
            BoundProducer(binding="out", topic="orders", partition_count=4),
            TopicView("orders", 2, 1),
            FITS,
            id="enlarged at the start",
        ),
        pytest.param(
            {"min_partitions": 8},
            OUTPUT,
            TopicView("orders", 2, 1),
            "warning: topic orders has 2 partition(s), and min-partition-count=8 does not change that: it is for "
            "new topics",
            id="fewer than the least",
        ),
        pytest.param(
            {"replicas": 3},
            OUTPUT,
            TopicView("orders", 2, 1),
            "warning: topic orders has partitions with 1 replica(s), and replication-factor=3 of binding out does "
            "not change that: it is for new topics",
            id="fewer replicas",
        ),
        pytest.param(
            {},
            BoundConsumer(binding="in", topic="orders.*", is_pattern=True),
            TopicView("orders", 2, 1),
            "warning: no topic matches orders.*, the pattern of binding in",
            id="pattern",
        ),
    ],
)
def test_topics_are_compared_with_bindings(
    terms: dict[str, int], binding: Bound, topic: TopicView | None, says: str
) -> None:
    """Each difference is told once, with the names."""
    views = {LETTERS.name: LETTERS} | ({topic.name: topic} if topic is not None else {})
    seen = SeenTopics(views=views, matched={"orders.*": []})
    assert told(judge_topics(Terms(brokers=BROKERS, **terms), [binding], seen)) == [says]


@pytest.mark.parametrize(("needed", "severity"), [(True, Severity.ERROR), (False, Severity.WARNING)])
def test_missing_topic_of_dead_letters_is_told_if_it_is_not_created(needed: bool, severity: Severity) -> None:
    """It is an error if the application does not start without it."""
    binding = BoundConsumer(binding="in", topic="orders", group="g", letters="error.orders.g", needs_letters=needed)
    seen = SeenTopics(views={"orders": TopicView("orders", 1, 1)})
    (found,) = judge_topics(Terms(brokers=BROKERS, creates=False), [binding], seen)
    assert (found.severity, found.about) == (severity, ("in", "error.orders.g"))
    assert found.mend == f"kafka-topics.sh --bootstrap-server {BROKERS} --create --topic error.orders.g"
    assert judge_topics(Terms(brokers=BROKERS), [binding], seen)[0].severity is Severity.OK


def test_configuration_of_a_topic_that_its_settings_contradict_is_told() -> None:
    """With the command that sets it; the same difference of a topic itself is told once for all its bindings."""
    properties = TopicProperties(properties={"retention.ms": "5", "cleanup.policy": "delete"})
    bindings = [BoundProducer(binding=name, topic="orders", topic_properties=properties) for name in ("a", "b")]
    configs = {"orders": {"retention.ms": "7", "cleanup.policy": "delete"}}
    seen = SeenTopics(views={"orders": TopicView("orders", 1, 1)}, configs=configs)
    least, first, second = judge_topics(Terms(brokers=BROKERS, min_partitions=2), bindings, seen)
    assert [each.about for each in (least, first, second)] == [("orders",), ("a", "orders"), ("b", "orders")]
    assert first.found.startswith("topic orders has retention.ms=7, and topic.properties.retention.ms=5 of binding a")
    assert str(first.mend).endswith("--entity-name orders --add-config retention.ms=5")


@pytest.mark.parametrize(
    ("members", "lags", "joins", "says"),
    [
        (1, (0, 0), True, "ok: no group on Kafka falls behind, or has lag and no members (1 group(s))"),
        (0, (4, 4), True, "warning: group kitchen has no members, and 4 message(s) to consume"),
        (0, (4, 4), False, "ok: no group on Kafka falls behind, or has lag and no members (1 group(s))"),
        (None, (4, 4), True, "unknown: the members of group kitchen are not known, and it has 4 message(s) to consume"),
        (0, (None, None), True, "unknown: the lag of group kitchen is not known: it has committed no offset"),
        (1, (4, 9), True, "warning: the lag of group kitchen grew from 4 to 9 in 3 s"),
        (0, (4, 9), False, "warning: the lag of group kitchen grew from 4 to 9 in 3 s"),
        (1, (9, 4), True, "ok: no group on Kafka falls behind, or has lag and no members (1 group(s))"),
    ],
)
def test_groups_are_judged_by_their_members_and_two_looks_at_their_lag(
    members: int | None, lags: tuple[int | None, int | None], joins: bool, says: str
) -> None:
    """Instances with fixed partitions are never members."""
    consumer = BoundConsumer(binding="in", topic="orders", group="kitchen", joins=joins)
    first, second = (
        {"kitchen": GroupView(group="kitchen", members=members, lag=lag, stored=100 + (lag or 0))} for lag in lags
    )
    assert told(judge_groups(Terms(brokers=BROKERS), [consumer], first, second, 3.0)) == [says]
