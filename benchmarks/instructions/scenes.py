"""The work that is counted: `python -m benchmarks.instructions.scenes NAME=ROUNDS NAME=ROUNDS ...` does it once.

Each piece is done in a fork of the process, after the process has started every kind of scene once: a start takes
Valgrind five times as long as all the work. The process prints the number and the piece of each fork.

A broker and the load on it are in one process and on one loop. The load encodes its requests once and writes the same
bytes to raw sockets again and again, so nearly all instructions are the broker's. Only the scene of our client counts a
client, too, and those over TLS count the encryption at both ends.
"""

import asyncio
import gc
import os
import re
import socket
import ssl
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from benchmarks import memory
from benchmarks.guarded import KEYS, OPERATOR, settings_of
from benchmarks.load.frames import QUEUES, PullFrames, SendFrames, pull_frame
from benchmarks.orders import Order, Receipt
from rocket_broker import put_times
from rocket_broker.embedded import EmbeddedBroker
from rocket_client import (
    Admin,
    ClientSettings,
    ConsumeContext,
    Credentials,
    Producer,
    ProducerSettings,
    PushConsumer,
    PushConsumerSettings,
    Success,
)
from rocket_remoting import Message, MessageExt
from rocket_remoting.session import turns
from streamkit import StreamApplication, send_to
from streamkit.loop.loops import new_loop

__all__ = ["SCENES"]

BODY = b"x" * 128
TOPIC = "counted"
ORDER = b'{"number":7,"customer":"Ann","price":3.5}'
ORDER_PROPERTIES = {
    "contentType": "application/json",
    "id": "0af4bbd0-5c5a-4a0e-8d0a-2f1d6f4bba11",
    "timestamp": "1790000000000",
}
_ANSWER = re.compile(rb'\{"code":0,')
_NEXT_OFFSET = re.compile(rb'"nextBeginOffset":"(\d+)"')

BrokerWork = Callable[[EmbeddedBroker, int], Coroutine[object, object, None]]


@dataclass(frozen=True, slots=True)
class Scene:
    """Work that is done again and again.

    Attributes:
        title: The row in tables.
        messages: Messages of a round.
        rounds: Rounds that are counted.
        start: What the start is shared with: scenes with the same word do the same before their first round.
        work: Does a number of rounds.
    """

    title: str
    messages: int
    rounds: int
    start: str
    work: Callable[[int], Coroutine[object, object, None]]


class _RawConnection:
    """A connection whose requests are written as bytes, and whose answers are only counted."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)

    def send(self, frames: bytes) -> None:
        self._socket.sendall(frames)

    async def answers(self, count: int) -> bytes:
        """Read until ``count`` answers have arrived; each must say success."""
        received = b""
        while len(_ANSWER.findall(received)) < count:
            received += await self.receive()
        return received

    async def receive(self) -> bytes:
        """Read once."""
        data = await asyncio.get_running_loop().sock_recv(self._socket, 1 << 20)
        if not data:
            raise ConnectionError("the broker closed the connection")
        return data

    def close(self) -> None:
        self._socket.close()


class _RawTlsConnection(_RawConnection):
    """The same, encrypted; `shake_hands` comes first."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing)

    async def shake_hands(self) -> None:
        """Do the handshake."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                super().send(self._outgoing.read())
                self._incoming.write(await super().receive())
            else:
                super().send(self._outgoing.read())
                return

    def send(self, frames: bytes) -> None:
        self._tls.write(frames)
        super().send(self._outgoing.read())

    async def receive(self) -> bytes:
        """Read once, and decrypt what is whole."""
        self._incoming.write(await super().receive())
        received = b""
        while True:
            try:
                received += self._tls.read(1 << 20)
            except ssl.SSLWantReadError:
                return received


async def _connected(address: str, *, tls: bool) -> _RawConnection:
    if not tls:
        return _RawConnection(address)
    connection = _RawTlsConnection(address)
    await connection.shake_hands()
    return connection


def _sends(
    connections: int, in_flight: int, batch: int = 1, *, keys: Credentials | None = None, tls: bool = False
) -> BrokerWork:
    async def work(broker: EmbeddedBroker, rounds: int) -> None:
        frames = SendFrames(TOPIC, BODY, batch=batch, keys=keys)
        raw = [await _connected(broker.broker_address, tls=tls) for _ in range(connections)]
        requests = [frames.next(in_flight) for _ in raw]
        for _ in range(rounds):
            for connection, own in zip(raw, requests, strict=True):
                connection.send(own)
            for connection in raw:
                await connection.answers(in_flight)
        for connection in raw:
            connection.close()

    return work


async def _pulls(broker: EmbeddedBroker, rounds: int) -> None:
    """Pull 32 messages of the backlog in each round."""
    await _sends(1, 32)(broker, 4)
    raw = _RawConnection(broker.broker_address)
    for number in range(rounds):
        raw.send(pull_frame(TOPIC, "counting", number % QUEUES, 0, 32))
        found = _NEXT_OFFSET.search(await raw.answers(1))
        if found is None or int(found[1]) != 32:
            raise ConnectionError(f"queue {number % QUEUES} has no 32 messages")
    raw.close()


async def _waits(broker: EmbeddedBroker, rounds: int) -> None:
    """Send an order in each round, for which a consumer waits; it sends a receipt, for which another consumer waits.

    Both pull again; the first one writes its receipt and its pull together. Orders are in queue 0, receipts in queue 1.
    """
    await _sends(1, QUEUES)(broker, 1)
    frames = SendFrames(TOPIC, BODY, queues=2)
    producer, shop, customer = (_RawConnection(broker.broker_address) for _ in range(3))
    orders, receipts = (PullFrames(TOPIC, "counting", queue_id, wait_ms=30_000_000) for queue_id in range(2))
    shop.send(orders.next(1))
    customer.send(receipts.next(1))
    await asyncio.sleep(0.1)  # until the pulls are held
    for offset in range(2, rounds + 2):
        producer.send(frames.next(1))
        await producer.answers(1)
        await shop.answers(1)
        shop.send(frames.next(1) + orders.next(offset))
        await shop.answers(1)
        await customer.answers(1)
        customer.send(receipts.next(offset))
    for connection in (producer, shop, customer):
        connection.close()


def _producer_settings(broker: EmbeddedBroker) -> ProducerSettings:
    """Return settings without a limit that Valgrind could reach."""
    return ProducerSettings(name_servers=broker.name_server_address, send_timeout=timedelta(minutes=10))


async def _client(broker: EmbeddedBroker, rounds: int) -> None:
    """Send messages with a producer, 32 at a time, and receive them with a push consumer."""
    received = asyncio.Semaphore(0)

    async def listener(messages: Sequence[MessageExt], context: ConsumeContext) -> Success:
        for _ in messages:
            received.release()
        return Success()

    consumer = PushConsumer("counting", PushConsumerSettings(name_servers=broker.name_server_address))
    consumer.subscribe(TOPIC)
    consumer.listen_concurrently(listener)
    async with Producer("counting", _producer_settings(broker)) as producer, consumer:
        for _ in range(rounds):
            await asyncio.gather(*(producer.send(Message(TOPIC, BODY)) for _ in range(32)))
            for _ in range(32):
                await received.acquire()


# Under Valgrind the broker needs some fifty times as long, and what it does by the clock would count as often more:
# flushing, letting others have their turn, and noting that storing was slow. So it does none of these.
turns.TURN_SECONDS = 3600.0
put_times.FAST_SECONDS = 3600.0
_SETTINGS = {"flushIntervalCommitLog": "3600000", "flushIntervalConsumeQueue": "3600000"}


def _with_broker(work: BrokerWork) -> Callable[[int], Coroutine[object, object, None]]:
    async def run(rounds: int) -> None:
        async with EmbeddedBroker(settings=_SETTINGS) as broker:
            async with Admin(ClientSettings(name_servers=broker.name_server_address)) as admin:
                await admin.create_topic(TOPIC, queues=QUEUES)
            await work(broker, rounds)

    return run


def _with_guarded_broker(work: BrokerWork) -> Callable[[int], Coroutine[object, object, None]]:
    """Return the work on a broker with access control, which accepts TLS connections, too."""

    async def run(rounds: int) -> None:
        with tempfile.TemporaryDirectory(prefix="streamkit-instructions-") as home:
            async with EmbeddedBroker(settings=_SETTINGS | settings_of(Path(home))) as broker:
                own = ClientSettings(name_servers=broker.name_server_address, credentials=OPERATOR)
                async with Admin(own) as admin:
                    await admin.create_topic(TOPIC, queues=QUEUES)
                await work(broker, rounds)

    return run


def _shop(broker: EmbeddedBroker, on_order: Callable[[], object]) -> StreamApplication:
    """Return an application whose listener returns a receipt for each order."""
    prefix = "spring.cloud.stream"
    app = StreamApplication(
        properties={
            f"{prefix}.default-binder": "rocketmq",
            f"{prefix}.rocketmq.binder.name-server": broker.name_server_address,
            f"{prefix}.bindings.orders.destination": TOPIC,
            f"{prefix}.bindings.orders.group": "counting",
            f"{prefix}.bindings.orders.consumer.concurrency": "32",
            f"{prefix}.bindings.receipts.destination": "receipts",
            f"{prefix}.rocketmq.default.producer.send-message-timeout": "600000",
        }
    )

    @app.stream_listener("orders")
    @send_to("receipts")
    async def answer(order: Order) -> Receipt:
        on_order()
        return Receipt(order.number, order.price)

    return app


def _order() -> Message:
    return Message(TOPIC, ORDER, properties=dict(ORDER_PROPERTIES))


async def _receipts(broker: EmbeddedBroker, rounds: int) -> None:
    """Send orders to an application, 32 in one request."""
    received = asyncio.Semaphore(0)
    async with (
        Producer("orders", _producer_settings(broker)) as producer,
        _shop(broker, received.release),
    ):
        for _ in range(rounds):
            await producer.send_batch([_order() for _ in range(32)])
            for _ in range(32):
                await received.acquire()


async def _one_by_one(broker: EmbeddedBroker, rounds: int) -> None:
    """Send an order to an application when the receipt of the order before has come."""
    received = asyncio.Semaphore(0)

    async def listener(messages: Sequence[MessageExt], context: ConsumeContext) -> Success:
        received.release()
        return Success()

    async with Admin(ClientSettings(name_servers=broker.name_server_address)) as admin:
        await admin.create_topic("receipts", queues=QUEUES)
    consumer = PushConsumer("receiving", PushConsumerSettings(name_servers=broker.name_server_address))
    consumer.subscribe("receipts")
    consumer.listen_concurrently(listener)
    async with (
        Producer("orders", _producer_settings(broker)) as producer,
        consumer,
        _shop(broker, lambda: None),
    ):
        for _ in range(rounds):
            await producer.send(_order())
            await received.acquire()


async def _in_memory(rounds: int) -> None:
    await memory.measure(32 * rounds)


SCENES = {
    "send": Scene("send, 1 connection, synchronous", 1, 2_500, "broker", _with_broker(_sends(1, 1))),
    "send-8": Scene("send, 8 connections, synchronous", 8, 400, "broker", _with_broker(_sends(8, 1))),
    "pipelined": Scene("send, 4 connections × 64 in flight", 256, 200, "broker", _with_broker(_sends(4, 64))),
    "batch": Scene("send in batches of 32, 8 connections", 256, 200, "broker", _with_broker(_sends(8, 1, batch=32))),
    "signed": Scene(
        "send signed, 4 connections × 64 in flight", 256, 20, "guarded", _with_guarded_broker(_sends(4, 64, keys=KEYS))
    ),
    "encrypted": Scene(
        "the same over TLS, both ends",
        256,
        20,
        "guarded",
        _with_guarded_broker(_sends(4, 64, keys=KEYS, tls=True)),
    ),
    "pull": Scene("pull a backlog, 32 messages a request", 32, 1_500, "broker", _with_broker(_pulls)),
    "waits": Scene(
        "an order and its receipt, each sent to a pull that waits", 1, 1_000, "broker", _with_broker(_waits)
    ),
    "client": Scene("our client and the broker: send 32 at once, receive", 32, 60, "client", _with_broker(_client)),
    "receipts": Scene(
        "an application on the broker: order, convert, receipt", 32, 60, "receipts", _with_broker(_receipts)
    ),
    "one-by-one": Scene("the same one by one, and its consumer", 1, 600, "one-by-one", _with_broker(_one_by_one)),
    "in-memory": Scene("an application in memory: send, receive in a listener", 32, 120, "in-memory", _in_memory),
}


def _do(name: str, rounds: int) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(SCENES[name].work(rounds))


def _fork(name: str, rounds: int) -> int:
    """Do a piece of work in a fork; return its process number."""
    process = os.fork()
    if process:
        return process
    try:
        _do(name, rounds)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main(pieces: Sequence[str]) -> bool:
    """Do the pieces of work, as many at a time as there are processors; return whether all succeeded."""
    names = [piece.partition("=")[0] for piece in pieces]
    for name in {SCENES[name].start: name for name in names}.values():
        _do(name, 1)
    if threading.active_count() > 1:
        raise RuntimeError(f"a fork would lack these threads: {threading.enumerate()}")
    gc.collect()
    gc.freeze()
    at_once = os.cpu_count() or 1
    results = []
    for number, piece in enumerate(pieces):
        if number >= at_once:
            results.append(os.wait()[1])
        name, _, rounds = piece.partition("=")
        print(_fork(name, int(rounds)), piece, flush=True)
    results += [os.wait()[1] for _ in pieces[:at_once]]
    return not any(results)


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1:]) else 1)
