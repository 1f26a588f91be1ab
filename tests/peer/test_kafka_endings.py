"""Applications on a real Kafka end when they are told to, whatever they wait for, and settle nothing that was not done.

docs/operations.md has the table of endings; `end_to_end/test_endings.py` has the states on other binders.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from tests.end_to_end.broker_process import ROOT
from tests.interrupts import accept_interrupts
from tests.peer.kafka import KafkaServer

pytestmark = [pytest.mark.slow, pytest.mark.promise]

PATIENCE = 60.0
"""Seconds until a process that has not ended fails its test; less than the two minutes that a send is tried for."""

PROGRAM = """
import asyncio, logging, os, sys
from streamkit import StreamApplication
from streamkit.errors import StreamkitError
from streamkit.events import application_started

logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
app = StreamApplication(config_location="optional:/none", args=sys.argv[1:])
go_on = asyncio.Event()
sending = []

@app.stream_listener("in")
async def hear(text: str) -> None:
    print("begins", text, flush=True)
    await go_on.wait()
    print("returns", text, flush=True)

async def send(text):
    print("sends", text, flush=True)
    try:
        await app.bridge.asend("out", text)
    except StreamkitError:
        print("fails", text, flush=True)
    else:
        print("acknowledged", text, flush=True)

def obey():
    for word in os.read(0, 100).decode().split():
        if word == "return":
            go_on.set()
        else:
            sending.append(asyncio.get_running_loop().create_task(send(word)))

@application_started.connect
def listen(sender):
    asyncio.get_running_loop().add_reader(0, obey)

app.run()
"""

_numbers = count(1)


class Program:
    """A process with an application that sends to its own input.

    Attributes:
        topic: The topic.
        group: The group.
    """

    def __init__(self, process: "subprocess.Popen[str]", topic: str) -> None:
        self.topic = topic
        self.group = f"group-of-{topic}"
        self._process = process
        self._printed: list[str] = []

    def tell(self, word: str) -> None:
        """Write a word to the process: `return` ends its running handler, any other word is sent as a message."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def says(self, text: str) -> None:
        """Return when the process has printed the text."""
        assert self._process.stdout is not None
        while not any(text in line for line in self._printed):
            line = self._process.stdout.readline()
            assert line, f"it ended before it said {text!r}: {self._printed}"
            self._printed.append(line)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self._process.send_signal(number)

    def ending(self) -> tuple[int, str]:
        """Return the exit code when the process has ended, and what the process printed."""
        output, _ = self._process.communicate(timeout=PATIENCE)
        return self._process.returncode, "".join([*self._printed, output])


@contextmanager
def program(server: KafkaServer, *settings: str) -> Iterator[Program]:
    """Start a process on that broker, with settings below `spring.cloud.stream`; kill it at the end."""
    topic = f"endings-{next(_numbers)}"
    stream = "--spring.cloud.stream"
    arguments = [
        f"{stream}.default-binder=kafka",
        f"{stream}.kafka.binder.brokers={server.address}",
        f"{stream}.bindings.in.destination={topic}",
        f"{stream}.bindings.in.group=group-of-{topic}",
        f"{stream}.bindings.out.destination={topic}",
        f"{stream}.output-bindings=out",
        *settings,
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        preexec_fn=accept_interrupts,  # noqa: PLW1509
    )
    try:
        yield Program(process, topic)
    finally:
        process.kill()
        process.communicate()


def committed(server: KafkaServer, ended: Program) -> int:
    """Return the sum of the offsets that the group has committed: the number of messages that count as handled."""
    deadline = time.monotonic() + PATIENCE
    with KafkaAdminClient(bootstrap_servers=server.address) as admin:
        while True:
            try:
                offsets = admin.list_group_offsets({ended.group: None})[ended.group]
                return sum(max(0, each.offset) for each in offsets.values())
            except KafkaError as error:
                # A broker that has just been started loads its groups first.
                if not error.retriable or time.monotonic() > deadline:
                    raise


def stored(server: KafkaServer, ended: Program) -> int:
    """Return the number of messages in the topic."""
    consumer = KafkaConsumer(bootstrap_servers=server.address)
    try:
        keys = [TopicPartition(ended.topic, number) for number in consumer.partitions_for_topic(ended.topic)]
        return sum(consumer.end_offsets(keys).values())
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("number", "returns", "settings"),
    [
        (signal.SIGTERM, True, []),
        (signal.SIGINT, True, []),
        (signal.SIGTERM, False, ["--spring.lifecycle.timeout-per-shutdown-phase=10ms"]),
    ],
)
def test_message_of_a_running_handler_is_committed_if_the_handler_returned(
    kafka_server: KafkaServer, number: signal.Signals, returns: bool, settings: list[str]
) -> None:
    """The stop waits for the call; a call that is cancelled when the time is over leaves its message unsettled."""
    with program(kafka_server, *settings) as running:
        running.tell("tea")
        running.says("begins tea")
        running.signal(number)
        if returns:
            running.tell("return")
        code, output = running.ending()
    assert code == 0, output
    assert ("returns tea" in output) is returns
    assert committed(kafka_server, running) == int(returns)


@pytest.mark.peer
def test_applications_end_while_kafka_is_away(kafka_server_of_its_own: KafkaServer) -> None:
    """A call, a start and a send without acknowledgment; nothing is committed, and only what was confirmed is stored.

    The second signal ends a process that would give its call half a minute.
    """
    server = kafka_server_of_its_own
    soon = "--spring.cloud.stream.kafka.bindings.out.producer.close-timeout=1"
    with ExitStack() as stack:
        handling, sending, waiting = (stack.enter_context(program(server, soon)) for _ in range(3))
        for each in (handling, sending, waiting):
            each.tell("tea")
            each.says("begins tea")
            each.says("acknowledged tea")
        server.kill()
        starting = stack.enter_context(program(server))
        starting.says("cannot be reached")
        starting.signal(signal.SIGTERM)
        handling.signal(signal.SIGTERM)
        handling.tell("return")
        sending.tell("cake")
        sending.says("sends cake")
        sending.signal(signal.SIGINT)
        sending.tell("return")
        waiting.signal(signal.SIGTERM)
        waiting.says("stopping")
        endings = [each.ending() for each in (starting, handling, sending)]
        waiting.signal(signal.SIGTERM)
        endings.append(waiting.ending())
    assert [code for code, _ in endings] == [0, 0, 0, 128 + signal.SIGTERM], endings
    assert "fails cake" in endings[2][1]
    server.start()
    members = (handling, sending, waiting)
    assert [committed(server, each) for each in members] == [0, 0, 0]
    assert [stored(server, each) for each in members] == [1, 1, 1]
