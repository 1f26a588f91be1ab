"""`streamkit send` and `streamkit tail`: one message to and from any destination, without a program."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rocket_broker.threaded_broker import ThreadedBroker
from streamkit.cli.binding_names import complete_bindings
from streamkit.cli.destinations import Asked, receive, send
from streamkit.cli.send import send as send_command
from streamkit.cli.tail import tail as tail_command
from streamkit.messaging.message import Message

SETTINGS = """
spring.cloud.function.definition=charge
spring.cloud.stream.bindings.orders.destination=order-topic
spring.cloud.stream.bindings.orders.group=kitchen
spring.cloud.stream.bindings.orders.consumer.batch-mode=true
spring.cloud.stream.rocketmq.binder.name-server={}
management.server.port=1
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[ThreadedBroker]:
    """A broker of the module's own."""
    with ThreadedBroker() as broker:
        yield broker


@pytest.fixture
def directory(broker: ThreadedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with the settings of an application."""
    (tmp_path / "application.properties").write_text(SETTINGS.format(broker.name_server))
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def exchanged(sent_to: str, received_from: str) -> Message[bytes]:
    """Send to one name until a message arrives at another one, and return it."""
    arrived: list[Message[bytes]] = []
    listening = asyncio.Event()
    receiving = asyncio.create_task(
        receive(Asked(received_from, None, ()), arrived.append, 1, lambda place: listening.set())
    )
    begun = asyncio.create_task(listening.wait())
    await asyncio.wait({receiving, begun}, return_when=asyncio.FIRST_COMPLETED)
    # The new group begins at the end of the topic, a moment after the start.
    while not receiving.done():
        await send(Asked(sent_to, None, ()), b'{"table": 7}', {"priority": "5"}, None)
    await receiving
    return arrived[0]


@pytest.mark.usefixtures("directory")
def test_message_sent_to_a_binding_arrives_at_its_destination() -> None:
    """The binding's destination and binder are those of the settings; nothing else that they name is started."""
    message = asyncio.run(exchanged("orders", "order-topic"))
    assert bytes(message.payload) == b'{"table": 7}'
    assert message.headers["priority"] == "5"
    assert message.headers.content_type == "application/json"


def test_command_says_where_the_message_was_sent(directory: Path) -> None:
    """Also from standard input, to a topic that no setting names."""
    done = CliRunner().invoke(send_command, ["orders", "coffee"])
    assert (done.exit_code, done.output) == (0, "Sent 6 bytes to order-topic (rocketmq).\n")
    done = CliRunner().invoke(send_command, ["bills", "-"], input="two\nlines")
    assert (done.exit_code, done.output) == (0, "Sent 9 bytes to bills (rocketmq).\n")
    assert [path.name for path in directory.iterdir()] == ["application.properties"]


@pytest.mark.usefixtures("directory")
def test_dry_run_says_where_the_message_would_be_sent_to() -> None:
    """And connects nothing; the same facts are there as JSON."""
    away = "--spring.cloud.stream.rocketmq.binder.name-server=127.0.0.1:1"
    done = CliRunner().invoke(send_command, ["orders", "coffee", "--dry-run", away])
    assert (done.exit_code, done.output) == (0, "Would send 6 bytes to order-topic (rocketmq).\n")
    done = CliRunner().invoke(send_command, ["orders", "[7]", "--dry-run", "--json", away])
    assert json.loads(done.output) == {
        "destination": "order-topic",
        "binder": "rocketmq",
        "content_type": "application/json",
        "payload_size": 3,
    }


@pytest.mark.usefixtures("directory")
def test_bindings_of_the_settings_are_completed() -> None:
    """None are offered where the settings cannot be read."""
    context = click.Context(tail_command)
    assert complete_bindings(context, tail_command.params[0], "") == ["orders"]
    assert complete_bindings(context, tail_command.params[0], "x") == []
    Path("application.properties").write_text("a=\\u1\n")
    assert complete_bindings(context, tail_command.params[0], "") == []


@pytest.mark.parametrize("command", [send_command, tail_command])
def test_memory_is_refused_with_the_reason(command: object) -> None:
    """No other process sees messages of a binder in memory."""
    arguments = ["orders", *(["x"] if command is send_command else []), "--binder", "inmemory"]
    done = CliRunner().invoke(command, arguments)  # type: ignore[arg-type]
    assert done.exit_code == 1
    assert "binder 'inmemory' keeps messages in the memory of the application's process" in done.output


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["orders", "x", "--header", "priority"], "--header 'priority': write it as NAME=VALUE"),
        (["orders", "x", "--binder", "kafak"], "kafak"),
        (["orders", "x", "--spring.cloud.stream.bindigns.orders.group=g"], "bindigns"),
        (["orders", "x", "more"], "'more' is not a setting"),
        (["orders", "x", "--spring.cloud.stream.rocketmq.binder.name-server=127.0.0.1:1"], "127.0.0.1:1"),
    ],
)
@pytest.mark.usefixtures("directory")
def test_wrong_arguments_are_errors(arguments: list[str], error: str) -> None:
    """A broker that is away, too: nothing waits for it, and none is started."""
    done = CliRunner().invoke(send_command, arguments)
    assert done.exit_code != 0
    assert error in done.output
