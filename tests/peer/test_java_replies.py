"""Requests with replies: Apache's Java client on Apache's own broker, then on ours."""

from functools import partial

from tests.peer.java_client import JavaMessage, JavaProducer
from tests.peer.json_peer import PeerError
from tests.peer.stage import Stage, eventually


def test_a_request_gets_its_reply(stage: Stage) -> None:
    """The listener's reply goes back to the producer that asked."""
    topic = stage.topic()
    replying, asking = stage.producer(), stage.producer(group=stage.name("asking"), heartbeatMs=100)
    stage.consumer(topic, replyBy=replying.name)

    reply = eventually(partial(asked, asking, topic), lambda reply: reply is not None, timeout=120)

    assert reply is not None
    assert reply.text == "re: how are you?"
    assert reply.properties["MSG_TYPE"] == "reply"


def asked(producer: JavaProducer, topic: str) -> JavaMessage | None:
    """Return the reply; a broker can deliver none before it knows the producer by a heartbeat."""
    try:
        return producer.request(topic, "how are you?", timeout_ms=3_000)
    except PeerError as error:
        if error.type != "RequestTimeoutException":
            raise
        return None
