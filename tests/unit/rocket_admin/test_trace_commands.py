"""`streamkit trace` on the bundled broker."""

import asyncio

from rocket_admin.commands.trace import trace
from rocket_broker.threaded_broker import ThreadedBroker
from rocket_client import Producer, ProducerSettings
from rocket_remoting import Message
from tests.unit.rocket_admin.terminal import Terminal


def test_trace_of_a_message_is_shown(terminal: Terminal, broker: ThreadedBroker) -> None:
    """As a table and as JSON; a message without a trace is a hint."""

    async def send() -> str:
        settings = ProducerSettings(name_servers=broker.name_server, trace_topic="traces")
        async with Producer("shop", settings) as producer:
            return (await producer.send(Message("traced", b"coffee", keys=["o-1"]))).msg_id

    message_id = asyncio.run(send())
    (record,) = terminal.json(trace, "show", message_id, "--topic", "traces")
    assert (record["type"], record["group"], record["topic"], record["keys"]) == ("Pub", "shop", "traced", "o-1")
    printed = terminal.run(trace, "show", message_id, "--topic", "traces", columns=120).stdout
    assert printed.split()[:6] == ["TIME", "TYPE", "GROUP", "CLIENT", "MS", "RESULT"]
    assert printed.split()[-1] == "success"
    hint = terminal.run(trace, "show", "7F000001A2B3C4D5E6F70000", "--topic", "traces")
    assert "traces has no trace of message 7F000001A2B3C4D5E6F70000" in hint.output
