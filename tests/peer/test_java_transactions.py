"""Apache's Java transaction producer on Apache's broker, which proves the expectations, then on ours."""

import pytest

from tests.contract.rocket_environment import few_checks
from tests.peer.java_client import JavaConsumer
from tests.peer.stage import Stage, eventually

CHECK_TIMEOUT = 60.0
PUT_ASIDE = "TRANS_CHECK_MAX_TIME_TOPIC"
NEVER_ASKED_ABOUT = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}
"""Its half and its end may be further apart than the half second after which brokers ask here."""


def texts(consumer: JavaConsumer) -> list[str]:
    """Return the bodies received so far."""
    return [m.text for m in consumer.received]


def test_committed_message_is_delivered_and_a_rolled_back_one_never(stage: Stage) -> None:
    """Consumers get a half message at its commit, as an ordinary message."""
    topic = stage.topic()
    consumer = stage.consumer(topic)
    producer = stage.producer(transactional=True, group=stage.name("orders"))
    lost, kept = ({"execute": end} | NEVER_ASKED_ABOUT for end in ("ROLLBACK", "COMMIT"))

    (rolled_back,) = producer.send(topic, "lost", mode="transaction", properties=lost)
    (sent,) = producer.send(topic, "kept", mode="transaction", tags="t", keys="k", properties=kept)

    (message,) = consumer.take(1)
    assert {rolled_back["status"], sent["status"]} == {"SEND_OK"}
    assert (message.text, message.tags, message.keys, message.id) == ("kept", "t", "k", sent["id"])
    assert message.raw["sysFlag"] & 0b1100 == 0b1000
    assert message.properties["TRAN_MSG"] == "true"
    assert message.properties["PGROUP"] == producer.group
    assert producer.checks.received == []


@pytest.mark.parametrize(("answer", "arrive"), [("COMMIT", ["asked", "after"]), ("ROLLBACK", ["after"])])
def test_unknown_transaction_is_checked(stage: Stage, answer: str, arrive: list[str]) -> None:
    """The broker asks the producer's group, and follows its answer."""
    topic = stage.topic(queues=1)
    consumer = stage.consumer(topic)
    producer = stage.producer(transactional=True, group=stage.name("orders"))
    unknown = {"execute": "UNKNOWN", "check": answer, "colour": "crimson"}

    (sent,) = producer.send(topic, "asked", mode="transaction", keys="k", properties=unknown)
    half = producer.checks.take(1, CHECK_TIMEOUT)[0]
    if answer == "COMMIT":
        consumer.take(1, CHECK_TIMEOUT)
    producer.send(topic, "after", mode="transaction", properties={"execute": "COMMIT"})

    consumer.wait_for(lambda: "after" in texts(consumer), CHECK_TIMEOUT, "the one after it")
    assert list(dict.fromkeys(texts(consumer))) == arrive
    # If a check begins before the last commit is recorded, the transaction is checked and delivered again.
    assert texts(consumer).count("asked") <= len(producer.checks.received)
    assert (half.topic, half.text, half.keys) == (topic, "asked", "k")
    assert half.properties["colour"] == "crimson"
    assert half.raw["transactionId"] == half.properties["UNIQ_KEY"] == sent["id"]


def test_another_member_of_the_group_is_checked_after_a_crash(stage: Stage) -> None:
    """A producer of the same group answers for the crashed one."""
    topic, group = stage.topic(), stage.name("orders")
    consumer = stage.consumer(topic)
    survivor = stage.producer(transactional=True, group=group)
    # If the broker checks this producer before it has stopped, the answer is "unknown".
    crashed = stage.producer(transactional=True, group=group, check="UNKNOWN")

    crashed.send(topic, "orphan", mode="transaction", properties={"execute": "UNKNOWN", "check": "COMMIT"})
    crashed.stop()

    assert survivor.checks.take(1, CHECK_TIMEOUT)[0].text == "orphan"
    assert consumer.take(1, CHECK_TIMEOUT)[0].text == "orphan"


def test_transaction_that_stays_unknown_is_put_aside(stage: Stage) -> None:
    """After so many checks the message is in a separate topic, where operators find it."""
    topic = stage.topic()
    producer = stage.producer(transactional=True, group=stage.name("orders"))
    unknown = {"execute": "UNKNOWN", "check": "UNKNOWN"}
    with few_checks(stage.address):
        (sent,) = producer.send(topic, "doubtful", mode="transaction", keys="k", properties=unknown)

        # The topic is created with its first message.
        eventually(
            lambda: stage.mqadmin("topicRoute", "-t", PUT_ASIDE),
            lambda reported: "queueDatas" in reported,
            CHECK_TIMEOUT,
        )
        aside = stage.consumer(PUT_ASIDE)
        # The topic has messages of other tests on this broker, too.
        aside.wait_for(
            lambda: topic in [m.properties["REAL_TOPIC"] for m in aside.received],
            CHECK_TIMEOUT,
            "the message",
        )

    message = next(m for m in aside.received if m.properties["REAL_TOPIC"] == topic)
    assert message.text == "doubtful"
    assert message.properties["UNIQ_KEY"] == sent["id"]
    asked = [int(m.properties["TRANSACTION_CHECK_TIMES"]) for m in producer.checks.take(3)]
    assert asked == [1, 2, 3]
