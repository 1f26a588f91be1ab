"""`streamkit wire` as a process."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import Producer, ProducerSettings
from rocket_remoting import Message
from tests.interrupts import accept_interrupts

WIRE = [sys.executable, "-c", "from rocket_admin.commands.wire import wire; wire()"]


def test_command_prints_one_object_for_each_command_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    """`--only` chooses requests and their responses; the address for clients is on standard error."""

    async def send(name_server: str) -> None:
        async with Producer("shop", ProducerSettings(name_servers=name_server)) as producer:
            await producer.send(Message("orders", b"tea"))

    with ThreadedBroker() as broker:
        arguments = ["-n", broker.name_server, "--json", "--only", "send_*", "--bodies"]
        with subprocess.Popen(
            [*WIRE, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            preexec_fn=accept_interrupts,  # noqa: PLW1509 - no other thread runs code of ours
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            told = process.stderr.readline()
            asyncio.run(send(told.split()[4]))
            seen = [json.loads(process.stdout.readline()) for _ in range(2)]
            process.send_signal(signal.SIGINT)
            assert process.wait() == 0, process.stderr.read()
    assert [(each["kind"], each["name"]) for each in seen] == [("request", "SEND_MESSAGE_V2"), ("response", "SUCCESS")]
    assert seen[0]["body"] == "tea"
    assert seen[1]["answers"] == "SEND_MESSAGE_V2"
    assert seen[1]["server"] == broker.address


def test_wrong_address_is_refused() -> None:
    """In one line."""
    done = subprocess.run([*WIRE, "-n", "nowhere"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert "nowhere" in done.stderr
