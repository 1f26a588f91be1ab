"""SQL filters, pulls, resets, namespaces: Apache's Java client on Apache's broker, then on ours."""

import time
from collections import Counter

import pytest

from tests.peer.java_client import JavaConsumer
from tests.peer.json_peer import PeerError
from tests.peer.stage import Stage, eventually


def texts(consumer: JavaConsumer) -> list[str]:
    """Return the bodies received so far, sorted."""
    return sorted(m.text for m in consumer.received)


CARS = {
    "a": {"price": "10", "colour": "red"},
    "b": {"price": "20", "colour": "blue", "electric": "true"},
    "c": {"price": "30", "colour": "red", "electric": "false"},
    "d": {"colour": "green's"},
}


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        ("price > 15", "bc"),
        ("price >= 29.5 AND price < 1e2", "c"),
        ("price BETWEEN 10 AND 20 AND colour = 'red'", "a"),
        ("colour IN ('blue', 'green''s')", "bd"),
        ("price IS NULL OR electric = TRUE", "bd"),
        ("NOT (colour = 'red')", "bd"),
        ("TAGS = 'car' AND electric IS NOT NULL", "bc"),
    ],
)
def test_sql_selects_the_messages(stage: Stage, expression: str, selected: str) -> None:
    """A push consumer gets matching ones, with and without a held pull."""
    topic = stage.topic(queues=1)
    producer = stage.producer()
    for body, properties in CARS.items():
        producer.send(topic, body, tags="car", properties=properties)
    consumer = stage.consumer({topic: expression}, sql=True)
    consumer.take(len(selected))

    for body, properties in CARS.items():
        producer.send(topic, body.upper(), tags="car", properties=properties)

    consumer.take(2 * len(selected))
    assert texts(consumer) == sorted(selected + selected.upper())


@pytest.mark.parametrize("expression", ["price >", "colour = red AND", "price BETWEEN 5"])
def test_invalid_sql_is_refused(stage: Stage, expression: str) -> None:
    """A consumer with an invalid expression does not start."""
    with pytest.raises(PeerError):
        stage.consumer({stage.topic(): expression}, sql=True)


def test_pull_consumer_keeps_its_own_offsets(stage: Stage) -> None:
    """Each pull names its offset and gets a status; the application commits."""
    topic = stage.topic(queues=1)
    producer = stage.producer()
    producer.send(topic, *"abcd", mode="queue", tags="t")
    eventually(lambda: producer.offsets(topic)["max"], lambda end: end == 4)

    with stage.pulling() as consumer:
        status, following, messages = consumer.pull(topic, 0, 0)
        assert (status, following, [m.text for m in messages]) == ("FOUND", 4, list("abcd"))
        status, following, messages = consumer.pull(topic, 0, 2)
        assert (status, following, [m.text for m in messages]) == ("FOUND", 4, list("cd"))
        assert consumer.pull(topic, 0, 0, "other")[:2] == ("NO_MATCHED_MSG", 4)
        assert consumer.pull(topic, 0, 9)[:2] == ("OFFSET_ILLEGAL", 4)
        assert consumer.commit(topic, 0, 3) == 3


def test_lite_pull_consumer_assigns_seeks_and_commits(stage: Stage) -> None:
    """The group continues at the committed offsets."""
    topic, group = stage.topic(queues=2), stage.name("group")
    producer = stage.producer()
    producer.send(topic, *"abcd", mode="queue", queue=0)
    producer.send(topic, *"wxyz", mode="queue", queue=1)

    with stage.polling(topic, group, queues=[0]) as consumer:
        assert [m.text for m in consumer.poll_from(0, 1, 3)] == list("bcd")
        assert [m.text for m in consumer.poll_from(0, "begin", 4)] == list("abcd")
        consumer.commit()
        assert consumer.committed(0) == 4

    producer.send(topic, "e", mode="queue", queue=0)
    with stage.polling(topic, group) as member:
        polled = member.poll(5)
        member.commit()
    assert Counter(m.text for m in polled) == Counter("ewxyz")


def test_paused_queue_is_not_polled(stage: Stage) -> None:
    """Its messages wait until it is resumed; the other queue's are polled."""
    topic = stage.topic(queues=2)
    producer = stage.producer()
    with stage.polling(topic, queues=[0, 1]) as consumer:
        consumer.seek(0, "begin")
        # Pausing does not end a pull that the broker holds; the seek after it discards that pull's answer.
        consumer.pause(1)
        consumer.seek(1, "begin")
        producer.send(topic, *"yz", mode="queue", queue=1)
        producer.send(topic, *"ab", mode="queue", queue=0)
        assert [m.text for m in consumer.poll(2)] == list("ab")
        assert consumer.poll_for(500) == []

        consumer.resume(1)
        assert [m.text for m in consumer.poll(2)] == list("yz")


def test_offset_reset_reaches_a_live_consumer(stage: Stage) -> None:
    """mqadmin's resetOffsetByTime makes a running push consumer receive everything again."""
    topic, group = stage.topic(queues=1), stage.name("group")
    begun = int(time.time() * 1000) - 60_000
    producer = stage.producer()
    producer.send(topic, *"abc")
    consumer = stage.consumer(topic, group)
    consumer.take(3)

    # Only a group with committed offsets can be reset; the client commits with its next pull, or after 10 s.
    producer.send(topic, "d")
    consumer.take(4)
    eventually(lambda: stage.mqadmin("consumerProgress", "-g", group), lambda reported: topic in reported, timeout=60)
    reported = stage.mqadmin("resetOffsetByTime", "-g", group, "-t", topic, "-s", str(begun))

    assert "broker-a" in reported, reported

    def heard_again() -> int:
        consumer.rebalance()
        return len(consumer.received)

    # Apache's client waits for 10 s between the broker's notification and its use of the new offsets.
    assert eventually(heard_again, lambda count: count >= 8, timeout=60) == 8
    assert texts(consumer) == list("aabbccdd")


def test_order_configuration_is_in_the_route(stage: Stage) -> None:
    """mqadmin puts, gets and deletes it; meanwhile producers send to its queues."""
    topic = stage.topic(queues=4)
    conf = "broker-a:2"
    stage.mqadmin("updateOrderConf", "-t", topic, "-m", "put", "-v", conf)

    assert conf in stage.mqadmin("updateOrderConf", "-t", topic, "-m", "get")
    assert f'"orderTopicConf":"{conf}"' in stage.mqadmin("topicRoute", "-t", topic).replace(" ", "")
    sent = stage.producer().send(topic, *"abcdefgh")
    assert {answer["queue"] for answer in sent} == {0, 1}

    stage.mqadmin("updateOrderConf", "-t", topic, "-m", "delete")
    assert conf not in stage.mqadmin("topicRoute", "-t", topic).replace(" ", "")
    sent = stage.producer().send(topic, *"abcdefgh")
    assert {answer["queue"] for answer in sent} == {0, 1, 2, 3}


def test_namespaces_separate_topics_and_groups(stage: Stage) -> None:
    """Clients of two namespaces use equal names for different topics, without the prefix."""
    topic, group = stage.name("topic"), stage.name("group")
    for namespace in ("left", "right"):
        stage.client.create_topic(stage.name_server, stage.address, f"{namespace}%{topic}", 1)
    left = stage.consumer(topic, group, namespace="left")
    right = stage.consumer(topic, group, namespace="right")

    stage.producer(namespace="left").send(topic, "for left")
    stage.producer(namespace="right").send(topic, "for right")

    assert [(m.topic, m.text) for m in left.take(1)] == [(topic, "for left")]
    assert [(m.topic, m.text) for m in right.take(1)] == [(topic, "for right")]
    assert f"left%{topic}" in stage.mqadmin("topicList").split()


def test_namespace_has_its_own_retries(stage: Stage) -> None:
    """A failed message is redelivered by the retry topic of the namespace's group."""
    topic, group = stage.name("topic"), stage.name("group")
    stage.client.create_topic(stage.name_server, stage.address, f"left%{topic}", 1)
    consumer = stage.consumer(topic, group, namespace="left", failTimes=1)

    stage.producer(namespace="left").send(topic, "bad")

    first, again = consumer.take(2, timeout=60)
    assert (first.topic, again.topic) == (topic, topic)
    assert [first.reconsume_times, again.reconsume_times] == [0, 1]


def test_broadcast_offsets_are_each_members_own(stage: Stage) -> None:
    """A returning member continues at its offsets; a new one has separate ones."""
    topic, group = stage.topic(queues=1), stage.name("group")
    producer = stage.producer()
    member = {"model": "BROADCASTING", "instance": stage.name("member")}
    producer.send(topic, "a", "b")
    first = stage.consumer(topic, group, **member)
    first.take(2)
    first.stop()
    producer.send(topic, "c")

    assert [m.text for m in stage.consumer(topic, group, **member).take(1)] == ["c"]
    other = stage.consumer(topic, group, model="BROADCASTING")
    assert sorted(m.text for m in other.take(3)) == ["a", "b", "c"]
    assert topic not in stage.mqadmin("consumerProgress", "-g", group)
