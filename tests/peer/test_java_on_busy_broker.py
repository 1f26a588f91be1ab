"""Apache's Java producer on a broker that refuses late requests."""

import socket
import threading
from collections.abc import Callable

import pytest

from rocket_broker.threaded_broker import ThreadedBroker
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.frame_decoder import FrameDecoder
from tests.end_to_end.raw_client import send_header
from tests.peer.java_client import JavaClient
from tests.peer.stage import Stage

pytestmark = pytest.mark.peer

IMPATIENT = {"brokerFastFailureEnable": "true", "waitTimeMillsInSendQueue": "20"}
FLOOD = 125
CLIENTS = 8
SLOW = "slow"
TRIES = 50


class Flood:
    """A client with more pending requests than a broker reads at once, each of which takes 30 ms."""

    def __init__(self, ours: ThreadedBroker) -> None:
        self.refused = 0
        host, _, port = ours.address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._writing = threading.Thread(target=self._socket.sendall, args=(self._frames(),))
        self._writing.start()

    def _frames(self) -> bytes:
        pieces = []
        for number in range(FLOOD):
            command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, send_header(SLOW), bytes(1024))
            command.opaque = number
            pieces += command.encode()
        return b"".join(pieces)

    def end(self) -> None:
        """Read all answers."""
        decoder, answers = FrameDecoder(), 0
        while answers < FLOOD:
            for answer in decoder.received(self._socket.recv_into(decoder.writable())):
                answers += 1
                self.refused += answer.code == ResponseCode.SYSTEM_BUSY
        self._writing.join()
        self._socket.close()


def slow_down(topic: str, *message: object) -> None:
    """Take the disk's time for a message of the flood."""
    if topic == SLOW:
        threading.Event().wait(0.03)


def test_java_producer_retries_refusals_of_a_busy_broker(
    java_client: Callable[[str], JavaClient],
) -> None:
    """By default from 5.x on; each message is stored once."""
    with ThreadedBroker(settings=IMPATIENT) as ours:
        broker = ours._embedded.broker
        broker.store.arrival_listeners.append(slow_down)
        with Stage(java_client("5.3.3"), ours.name_server, ours.address) as stage:
            topic = stage.topic()
            producer = stage.producer(retryTimes=1_000, timeoutMs=60_000)
            refused_to_others = sent = 0
            while broker.fast_failure.refused == refused_to_others and sent < TRIES:
                floods = [Flood(ours) for _ in range(CLIENTS)]
                producer.send(topic, f"m{sent}")
                sent += 1
                for flood in floods:
                    flood.end()
                    refused_to_others += flood.refused
            assert broker.fast_failure.refused > refused_to_others
            received = stage.consumer(topic).take(sent)
            assert sorted(message.text for message in received) == sorted(f"m{n}" for n in range(sent))
