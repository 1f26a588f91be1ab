"""Apache's Java push consumers on Apache's broker, which proves the expectations, then on ours."""

import time
from collections import Counter

from tests.peer.java_client import JavaClient, JavaConsumer
from tests.peer.stage import Stage, eventually

ONLY_WHEN_TOLD = 3_600_000
"""Milliseconds after which a client rebalances without being told, unless set 20 s."""
AT_ONCE = 14.0
"""Less than four pulls, one after the other, take when each is answered as Apache's broker looks, every 5 s."""
ATTEMPTS = 4
"""A machine with much to do may stand still for seconds."""


def texts(consumer: JavaConsumer) -> list[str]:
    """Return the bodies received so far."""
    return [m.text for m in consumer.received]


def test_tags_select_the_messages(stage: Stage) -> None:
    """A subscription to two tags gets only their messages."""
    topic = stage.topic()
    producer = stage.producer()
    for tag in ("red", "green", "blue"):
        producer.send(topic, tag, tags=tag)
    producer.send(topic, "none")
    consumer = stage.consumer({topic: "red || blue"})

    consumer.take(2)
    producer.send(topic, "red again", tags="red")

    assert sorted(m.text for m in consumer.take(3)) == ["blue", "red", "red again"]


def test_waiting_consumer_gets_a_new_message_at_once(stage: Stage) -> None:
    """A held pull is answered at the arrival, not at its timeout."""
    topic = stage.topic()
    consumer = stage.consumer(topic)
    eventually(lambda: consumer.assigned(topic), lambda queues: len(queues) == 4)
    producer = stage.producer()

    for attempt in range(ATTEMPTS):
        begun = time.monotonic()
        for i in range(4):
            producer.send(topic, str(i), mode="queue", queue=i)
            consumer.take(4 * attempt + i + 1)
        if time.monotonic() - begun < AT_ONCE:
            return
    raise AssertionError(f"four messages never came within {AT_ONCE:g} s")


def test_broadcasting_reaches_every_member(stage: Stage) -> None:
    """Each member of a broadcasting group gets every message."""
    topic, group = stage.topic(), stage.name("group")
    members = [stage.consumer(topic, group, model="BROADCASTING") for _ in range(2)]

    stage.producer().send(topic, *"abcdefgh")

    for member in members:
        assert sorted(m.text for m in member.take(8)) == list("abcdefgh")


def test_two_members_share_and_one_takes_over(stage: Stage) -> None:
    """Each has half of the queues, and each message is delivered once; when one leaves, the other is notified."""
    with (
        JavaClient(stage.version, rebalance_ms=ONLY_WHEN_TOLD) as client,
        Stage(client, stage.name_server, stage.address) as members,
    ):
        share_and_take_over(members)


def share_and_take_over(stage: Stage) -> None:
    """Check that two members share the queues, and that one takes over all of them when the other leaves."""
    topic, group = stage.topic(), stage.name("group")
    first, second = stage.consumer(topic, group), stage.consumer(topic, group)
    producer = stage.producer()
    one, other = eventually(
        lambda: (first.assigned(topic), second.assigned(topic)),
        lambda both: len(both[0]) == 2 and sorted(both[0] + both[1]) == [0, 1, 2, 3],
    )
    assert (len(one), sorted(one + other)) == (2, [0, 1, 2, 3])

    sent = [f"shared {i}" for i in range(40)]
    producer.send(topic, *sent)
    first.wait_for(lambda: len(first.received) == 20, what="its half")
    second.wait_for(lambda: len(second.received) == 20, what="its half")
    assert Counter(texts(first) + texts(second)) == Counter(sent)

    second.stop()
    assert eventually(lambda: first.assigned(topic), lambda queues: len(queues) == 4) == [0, 1, 2, 3]
    producer.send(topic, *"wxyz")
    first.wait_for(lambda: set("wxyz") <= set(texts(first)), what="all four queues")
    # Only messages whose calls were under way when the other member left may be delivered twice; none of these was.
    assert [Counter(texts(first))[text] for text in "wxyz"] == [1, 1, 1, 1]


def test_failed_message_is_redelivered(stage: Stage) -> None:
    """Under its own topic and id, with its count; other messages are not blocked."""
    topic = stage.topic()
    stage.producer().send(topic, "bad", "good", tags="t", keys="k", properties={"p": "v"})

    consumer = stage.consumer(topic, failTimes=2, failBody="bad")
    received = consumer.take(4)

    assert Counter(texts(consumer)) == Counter({"bad": 3, "good": 1})
    first, again, last = [m for m in received if m.text == "bad"]
    assert [m.reconsume_times for m in (first, again, last)] == [0, 1, 2]
    assert (again.topic, again.tags, again.keys, again.properties["p"]) == (topic, "t", "k", "v")
    assert again.id == first.id
    assert again.properties["ORIGIN_MESSAGE_ID"] == last.properties["ORIGIN_MESSAGE_ID"] == first.offset_id


def test_message_that_keeps_failing_becomes_a_dead_letter(stage: Stage) -> None:
    """After maxReconsumeTimes redeliveries it is readable in %DLQ%group and not redelivered."""
    topic, group = stage.topic(), stage.name("group")
    stage.producer().send(topic, "poison", tags="t", keys="k")
    failing = stage.consumer(topic, group, failTimes=99, maxReconsumeTimes=1)

    failing.take(2)
    # The dead-letter topic is created with its first message.
    eventually(lambda: stage.mqadmin("topicRoute", "-t", f"%DLQ%{group}"), lambda reported: "queueDatas" in reported)
    (letter,) = stage.consumer(f"%DLQ%{group}").take(1)

    assert [m.reconsume_times for m in failing.received] == [0, 1]
    assert (letter.text, letter.tags, letter.keys) == ("poison", "t", "k")
    assert letter.properties["RETRY_TOPIC"] == topic
    assert letter.properties["ORIGIN_MESSAGE_ID"] == failing.received[0].offset_id
    assert letter.properties["WAIT"] == "false"


def test_orderly_failure_blocks_its_queue(stage: Stage) -> None:
    """A suspended queue redelivers the message before the next; other queues continue."""
    topic = stage.topic(queues=2)
    producer = stage.producer()
    producer.send(topic, "a", "bad", "c", mode="queue", queue=0)
    producer.send(topic, "x", "y", mode="queue", queue=1)

    consumer = stage.consumer(topic, mode="orderly", failTimes=2, failBody="bad")
    received = consumer.take(7)

    assert [m.text for m in received if m.queue == 0] == ["a", "bad", "bad", "bad", "c"]
    assert [m.text for m in received if m.queue == 1] == ["x", "y"]
    assert [m.reconsume_times for m in received if m.text == "bad"] == [0, 1, 2]


def test_orderly_message_that_keeps_failing_becomes_a_dead_letter(stage: Stage) -> None:
    """After maxReconsumeTimes its queue continues in order."""
    topic, group = stage.topic(queues=1), stage.name("group")
    stage.producer().send(topic, "poison", "b", "c")

    consumer = stage.consumer(topic, group, mode="orderly", failTimes=99, failBody="poison", maxReconsumeTimes=1)
    consumer.wait_for(lambda: texts(consumer)[-2:] == ["b", "c"], what="the queue to continue")

    assert texts(consumer) == ["poison", "poison", "b", "c"]
    eventually(lambda: stage.mqadmin("topicRoute", "-t", f"%DLQ%{group}"), lambda reported: "queueDatas" in reported)
    assert [m.text for m in stage.consumer(f"%DLQ%{group}").take(1)] == ["poison"]


def test_group_continues_at_its_committed_offsets(stage: Stage) -> None:
    """Those committed at a consumer's end."""
    topic, group = stage.topic(), stage.name("group")
    producer = stage.producer()
    producer.send(topic, *"abcd")
    earlier = stage.consumer(topic, group)
    earlier.take(4)
    earlier.stop()

    producer.send(topic, *"efgh")
    later = stage.consumer(topic, group)

    assert sorted(m.text for m in later.take(4)) == list("efgh")


def test_two_groups_get_everything_each(stage: Stage) -> None:
    """Groups are independent."""
    topic = stage.topic()
    stage.producer().send(topic, *"abcd")

    for consumer in [stage.consumer(topic), stage.consumer(topic)]:
        assert sorted(m.text for m in consumer.take(4)) == list("abcd")


def test_listener_may_take_a_batch(stage: Stage) -> None:
    """A consume batch of 8 from one pull."""
    topic = stage.topic(queues=1)
    stage.producer().send(topic, *"abcdefgh")

    received = stage.consumer(topic, batch=8).take(8)

    assert [m.text for m in received] == list("abcdefgh")
    assert {m.raw["batch"] for m in received} == {8}


def test_lite_pull_consumer_polls_and_commits(stage: Stage) -> None:
    """It is a member like others; 5.x pulls for it with a separate request."""
    topic, group = stage.topic(), stage.name("group")
    producer = stage.producer()
    producer.send(topic, *"abcd")
    assert sorted(m.text for m in stage.poll(topic, group, count=4)) == list("abcd")

    producer.send(topic, *"ef")
    assert sorted(m.text for m in stage.poll(topic, group, count=2)) == ["e", "f"]
