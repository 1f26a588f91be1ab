"""Transactions between Spring Cloud Alibaba's applications and streamkit's, on Apache's broker and ours."""

import json

import pytest

from streamkit import Message, TransactionState
from tests.peer.spring_apps import SpringApp, SpringMessage
from tests.peer.spring_stage import STREAM, SpringStage
from tests.peer.test_spring_exchange import Order

pytestmark = pytest.mark.peer

CHECK_TIMEOUT = 60.0
ORDER = {"id": "123", "address": "浙江杭州"}
NEVER_ASKED_ABOUT = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}
"""Its half and its end may be further apart than the half second after which brokers ask here."""


def events(sender: SpringApp, kind: str) -> list[SpringMessage]:
    """Return the calls of its transaction listener: "execute" or "check"."""
    return [asked for asked in sender.received if asked.event == kind]


def test_spring_transaction_commits_or_rolls_back(spring_stage: SpringStage) -> None:
    """The book's order arrives only when its local transaction is committed."""
    topic = spring_stage.topic()
    inbox = spring_stage.streamkit_receiver(topic, Order)
    sender = spring_stage.transactional_sender(topic)

    sender.send({"id": "0", "address": "nowhere"}, execute="ROLLBACK", TRANSACTION_ID="t0")
    sender.send(ORDER, execute="COMMIT", TRANSACTION_ID="t1")

    (message,) = inbox.take(1, CHECK_TIMEOUT)
    assert message.payload == Order(**ORDER)
    sender.wait_for(lambda: len(events(sender, "execute")) == 2, what="both local transactions")
    assert [json.loads(executed.payload)["id"] for executed in events(sender, "execute")] == ["0", "123"]


def test_spring_transaction_is_checked(spring_stage: SpringStage) -> None:
    """The broker asks about an unknown one with the book's transaction id."""
    topic = spring_stage.topic()
    inbox = spring_stage.streamkit_receiver(topic, Order)
    sender = spring_stage.transactional_sender(topic)

    sender.send(ORDER, execute="UNKNOWN", check="COMMIT", TRANSACTION_ID="t1")

    # If a check begins before the last commit is recorded, the message is delivered again.
    assert inbox.take(1, CHECK_TIMEOUT)[0].payload == Order(**ORDER)
    sender.wait_for(lambda: bool(events(sender, "check")), what="the check")
    assert len(events(sender, "execute")) == 1
    checked = events(sender, "check")[0]
    assert json.loads(checked.payload) == ORDER
    name = "rocketmq_TRANSACTION_ID" if spring_stage.first else "UNIQ_KEY"
    assert "t1" in {checked.headers.get("TRANSACTION_ID"), checked.headers.get(name)}


@pytest.mark.parametrize(
    ("executed", "checked", "arrives"),
    [("COMMIT", "ROLLBACK", True), ("ROLLBACK", "COMMIT", False), ("UNKNOWN", "COMMIT", True)],
)
def test_streamkit_transaction_ends_as_its_listener_says(
    spring_stage: SpringStage, executed: str, checked: str, arrives: bool
) -> None:
    """A listener in the book's form decides, and answers the broker's checks; Spring receives committed messages."""
    topic, group = spring_stage.topic(), spring_stage.name("orders")
    receiver = spring_stage.receiver(topic, orders=True)
    app = spring_stage.streamkit(
        {
            f"{STREAM}.bindings.output.destination": topic,
            f"{STREAM}.output-bindings": "output",
            f"{STREAM}.rocketmq.bindings.output.producer.transactional": "true",
            f"{STREAM}.rocketmq.bindings.output.producer.group": group,
        }
    )

    known = {} if executed == "UNKNOWN" else NEVER_ASKED_ABOUT
    asked: list[str] = []

    @app.transaction_listener(group)
    class Orders:
        def execute_local_transaction(self, message: Message[Order], argument: object) -> TransactionState:
            return TransactionState[executed if message.payload.id == "123" else "COMMIT"]

        def check_local_transaction(self, message: Message[Order]) -> TransactionState:
            asked.append(message.payload.id)
            return TransactionState[checked]

    def received() -> list[str]:
        return [m.payload for m in receiver.received]

    with app:
        app.bridge.send("output", Message(Order("123", "one"), known))
        expected = ["123 to one"] if arrives else []
        receiver.take(len(expected), CHECK_TIMEOUT)
        app.bridge.send("output", Message(Order("124", "two"), NEVER_ASKED_ABOUT))

    receiver.wait_for(lambda: "124 to two" in received(), CHECK_TIMEOUT, "the second order")
    assert list(dict.fromkeys(received())) == [*expected, "124 to two"]
    # If a check begins before the last commit is recorded, the message is delivered again.
    assert bool(asked) == (executed == "UNKNOWN")
    assert len(received()) <= 1 + max(len(expected), len(asked))
