"""Processes end when they are told to, or when their program fails, whatever they wait for.

Each case is a process in one state, and an ending: one SIGINT, two, SIGTERM, or an exception of the program. A listener
or a broker would keep each of them for an hour. docs/operations.md has the table of endings.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocket_broker.threaded_broker import ThreadedBroker
from tests.end_to_end.broker_process import ROOT
from tests.interrupts import accept_interrupts

pytestmark = pytest.mark.slow

PATIENCE = 45.0
"""Seconds until a process that has not ended fails its test; much less than the hour, and than the tests' timeout."""

CLIENT = """
import asyncio, os, sys
from datetime import timedelta
from rocket_client import *
from rocket_client.blocking import BlockingClient
from rocket_remoting import Message

state, address, fails = sys.argv[1], sys.argv[2], sys.argv[3] == "raise"
# Of its own: a killed member of an ordered group keeps the locks on its queues for a minute.
group = f"{state}-{os.getpid()}"
hours = timedelta(hours=1)

async def hang(*_):
    print("ready", flush=True)
    if fails:
        failing.set()
    await asyncio.sleep(3600)

def push(**settings):
    consumer = PushConsumer(group, PushConsumerSettings(
        name_servers=address, concurrency=1, consume_from_where=ConsumeFromWhere.FIRST_OFFSET, **settings))
    consumer.subscribe("orders")
    return consumer

async def send():
    async with Producer("shop", ProducerSettings(name_servers=address)) as producer:
        for number in range(4):
            await producer.send(Message("orders", b"%d" % number))

async def wait_or_fail():
    await failing.wait()
    raise RuntimeError("the program fails")

async def main():
    global failing
    failing = asyncio.Event()
    if state in ("concurrent", "orderly"):
        await send()
        consumer = push()
        (consumer.listen_orderly if state == "orderly" else consumer.listen_concurrently)(hang)
        await consumer.start()
        await wait_or_fail()
    elif state == "leaving":
        await send()
        consumer = push()
        consumer.listen_concurrently(hang)
        async with consumer:
            try:
                await wait_or_fail()
            finally:
                print("stopping", flush=True)
    elif state == "polling":
        consumer = LitePullConsumer(group, LitePullConsumerSettings(name_servers=address))
        consumer.subscribe("orders")
        await consumer.start()
        print("ready", flush=True)
        while True:
            await consumer.poll(3600)
    elif state == "pulling":
        await send()
        async with PullConsumer(group, PullConsumerSettings(name_servers=address)) as consumer:
            queue = (await consumer.fetch_message_queues("orders"))[0]
            print("ready", flush=True)
            while True:
                await consumer.pull_block_if_not_found(queue, await consumer.max_offset(queue))
    elif state == "starting":
        consumer = push(request_timeout=hours)
        consumer.listen_concurrently(hang)
        print("ready", flush=True)
        await consumer.start()

def block():
    settings = ProducerSettings(name_servers=address, request_timeout=hours)
    with BlockingClient("blocking", settings) as client:
        print("ready", flush=True)
        client.queues("orders")

block() if state == "blocking" else asyncio.run(main())
"""

APPLICATION = """
import asyncio, logging, os, sys
from streamkit import StreamApplication
from streamkit.events import application_started

logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
how, binder, address, _, *settings = sys.argv[1:]
keys = {"rocketmq": "rocketmq.binder.name-server", "kafka": "kafka.binder.brokers"}
stream = "spring.cloud.stream"
arguments = [f"--{stream}.default-binder={binder}", f"--{stream}.bindings.in.destination=orders-{binder}",
             f"--{stream}.bindings.in.group={how}-{os.getpid()}",
             f"--{stream}.bindings.out.destination=orders-{binder}", *settings]
if binder in keys:
    arguments.append(f"--{stream}.{keys[binder]}={address}")
app = StreamApplication(config_location="optional:/none", args=arguments)

@app.stream_listener("in")
async def hang(number: int) -> None:
    print("ready", flush=True)
    await asyncio.sleep(3600)

@application_started.connect
def feed(sender):
    async def send():
        await app.bridge.asend("out", 1)
    tasks.append(asyncio.get_running_loop().create_task(send()))

tasks = []

async def main():
    async with app:
        await asyncio.Event().wait()

if how == "run":
    app.run()
elif how == "async":
    asyncio.run(main())
else:
    with app:
        import threading
        threading.Event().wait()
"""

AT_ONCE = "--spring.lifecycle.timeout-per-shutdown-phase=10ms"
"""For endings in order, which give the calls under way this time."""

CODES = {"run": 0, "async": -signal.SIGINT, "with": -signal.SIGINT}
"""The exit codes of applications that end in order, by the way in which they run."""


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    """The address of the name server of a broker."""
    with ThreadedBroker() as running:
        yield running.name_server


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that accepts connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def exit_code(
    directory: Path, program: str, arguments: tuple[str, ...], ending: str, waits: socket.socket | None
) -> int:
    """Start the program; end it once it says that it is ready and, if it waits for a server, has connected to it."""
    (directory / "program.py").write_text(program)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(directory / "program.py"), *arguments]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=directory,
        preexec_fn=accept_interrupts,  # noqa: PLW1509
    )
    assert process.stdout is not None
    with process, process.stdout as output:
        try:
            if waits is not None:
                waits.settimeout(PATIENCE)
                waits.accept()[0].detach()
            else:
                assert any("ready" in line for line in output)
            if ending != "raise":
                process.send_signal(signal.SIGTERM if ending == "SIGTERM" else signal.SIGINT)
            if ending == "SIGINT twice":
                assert any("stopping" in line for line in output)
                # A second signal that comes within 0.1 s counts as a repetition of the first.
                while process.poll() is None:
                    process.send_signal(signal.SIGINT)
                    try:
                        process.wait(0.2)
                    except subprocess.TimeoutExpired:
                        pass
            return process.wait(PATIENCE)
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("state", "ending"),
    [
        ("concurrent", "SIGINT"),
        ("concurrent", "raise"),
        ("orderly", "SIGINT"),
        ("orderly", "raise"),
        ("leaving", "SIGINT twice"),
        ("polling", "SIGINT"),
        ("pulling", "SIGINT"),
        ("starting", "SIGINT"),
        ("blocking", "SIGINT"),
    ],
)
def test_programs_with_a_client_end(
    tmp_path: Path, broker: str, silent: socket.socket, state: str, ending: str
) -> None:
    """They make no further call of a listener, and wait for no answer; Python handles their signals."""
    waits = silent if state in ("starting", "blocking") else None
    address = broker if waits is None else f"127.0.0.1:{silent.getsockname()[1]}"
    code = exit_code(tmp_path, CLIENT, (state, address, ending), ending, waits)
    assert code == (1 if ending == "raise" else -signal.SIGINT)


@pytest.mark.parametrize(
    ("how", "binder", "ending"),
    [
        ("run", "rocketmq", "SIGTERM"),
        ("run", "rocketmq", "SIGINT twice"),
        ("run", "inmemory", "SIGINT"),
        ("async", "inmemory", "SIGINT"),
    ],
)
def test_applications_with_a_call_under_way_end(
    tmp_path: Path, broker: str, how: str, binder: str, ending: str
) -> None:
    """In order, with the time that the settings give; at the second signal at once."""
    is_double = ending == "SIGINT twice"
    arguments = (how, binder, broker, ending) if is_double else (how, binder, broker, ending, AT_ONCE)
    code = exit_code(tmp_path, APPLICATION, arguments, ending, None)
    assert code == (128 + signal.SIGINT if is_double else CODES[how])


@pytest.mark.parametrize(
    ("how", "binder", "ending"),
    [
        ("run", "kafka", "SIGINT"),
        ("async", "kafka", "SIGINT"),
        ("with", "rocketmq", "SIGINT"),
        ("run", "rocketmq", "SIGTERM"),
    ],
)
def test_applications_that_wait_for_a_broker_end(
    tmp_path: Path, silent: socket.socket, how: str, binder: str, ending: str
) -> None:
    """Their start is given up, although the broker has not answered."""
    address = f"127.0.0.1:{silent.getsockname()[1]}"
    assert exit_code(tmp_path, APPLICATION, (how, binder, address, ending), ending, silent) == CODES[how]
