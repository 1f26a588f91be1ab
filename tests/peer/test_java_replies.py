"""Requests with replies: Apache's Java client on Apache's broker, then on ours."""

from tests.peer.stage import Stage, reply_to


def test_request_gets_its_reply(stage: Stage) -> None:
    """The listener's reply reaches the producer that asked."""
    topic = stage.topic()
    replying, asking = stage.producer(), stage.producer(group=stage.name("asking"), heartbeatMs=100)
    stage.consumer(topic, replyBy=replying.name)

    reply = reply_to(asking, topic, "how are you?")

    assert reply.text == "re: how are you?"
    assert reply.properties["MSG_TYPE"] == "reply"
