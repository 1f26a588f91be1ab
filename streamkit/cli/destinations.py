"""Sends to a destination and receives from it, as an application in the current directory would: on any binder.

The command has the binders of the application's settings, and one binding. It starts nothing else that the settings
name: no functions, no management endpoints, no embedded broker, and no local store, which one process has open.
"""

import asyncio
import itertools
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Final, cast

import click
import msgspec
from msgspec.structs import asdict

from streamkit.binder.binding import InputBinding, OutputBinding
from streamkit.cli.terminal_log import log_to_terminal
from streamkit.config.environment import Environment
from streamkit.config.judgement import read_settings
from streamkit.config.settings import BindingProperties, StreamSettings
from streamkit.config.validation import Bound
from streamkit.errors import StreamkitError
from streamkit.messaging.headers import CONTENT_TYPE, ID, KEY, PARTITION, TIMESTAMP
from streamkit.messaging.message import Message
from streamkit.plugins.application_plugins import ApplicationPlugins
from streamkit.printable_text import LINES, printable
from streamkit.running.settings_alone import SettingsAlone

__all__ = ["Asked", "Sent", "receive", "send", "send_one", "show_arrivals"]

_BINDING: Final = "streamkit-command"
"""The name of the binding that receives: a group of its own, with the settings of the asked binding but its group."""
_EMBEDDED: Final = "spring.cloud.stream.rocketmq.binder.embedded"
_SHOWN: Final = 1000
"""Characters of a payload that are shown, without `--json`."""


class Asked(msgspec.Struct, frozen=True):
    """The destination that a command was asked to send to or to receive from.

    Attributes:
        name: The name of a binding, or a destination.
        binder: The name of the binder; None for the one of the settings.
        settings: Settings as arguments.
    """

    name: str
    binder: str | None
    settings: Sequence[str]


class Sent(msgspec.Struct, frozen=True):
    """A message that was sent, or that would be.

    Attributes:
        destination: The name that the messaging system knows.
        binder: The name of its binder.
        content_type: The content type of the payload.
        payload_size: The bytes of the payload.
    """

    destination: str
    binder: str
    content_type: str
    payload_size: int

    def json(self) -> str:
        """Return these facts as a JSON object."""
        return json.dumps(asdict(self), ensure_ascii=False)


class _Place(msgspec.Struct, frozen=True):
    """A destination, and what an application in the current directory would reach it with.

    Attributes:
        alone: The parts that the settings make.
        binding: The settings of the binding of this name; the defaults if the settings have none.
        binder: The name of the binder.
    """

    alone: SettingsAlone
    binding: BindingProperties
    binder: str


def send_one(
    asked: Asked, payload: bytes, headers: Mapping[str, object], content_type: str | None, *, is_dry: bool
) -> Sent:
    """Run `send`; its errors are those of the command.

    Raises:
        click.ClickException: A setting is wrong, or the messaging system cannot be used.
    """
    with _reported() as runner:
        return runner.run(send(asked, payload, headers, content_type, is_dry=is_dry))


def show_arrivals(asked: Asked, *, count: int | None, with_headers: bool, as_json: bool) -> None:
    """Print the messages that arrive, until there were `count` of them or Ctrl-C is pressed.

    Args:
        asked: The destination.
        count: The number of messages; None for no end.
        with_headers: Whether to print headers without JSON.
        as_json: Whether to print a line of JSON for each message.

    Raises:
        click.ClickException: A setting is wrong, or the messaging system cannot be used.
    """

    def began(place: str) -> None:
        click.secho(f"Receiving from {place}. Ctrl-C ends.", dim=True, err=True)

    show = partial(_print, with_headers=with_headers, as_json=as_json)
    with _reported() as runner, suppress(KeyboardInterrupt):
        runner.run(receive(asked, show, count, began))


async def send(
    asked: Asked,
    payload: bytes,
    headers: Mapping[str, object],
    content_type: str | None,
    *,
    is_dry: bool = False,
) -> Sent:
    """Send a message, and return what was sent, and where to.

    Args:
        asked: The destination.
        payload: The payload, as it is sent.
        headers: Its headers.
        content_type: Its content type; None to find out whether it is JSON.
        is_dry: Whether to send nothing, and to connect nothing.

    Raises:
        StreamkitError: A setting is wrong, or the messaging system cannot be used.
        click.ClickException: The binder keeps messages in memory.
    """
    place = _place(asked)
    content_type = content_type or _type_of(payload)
    channel = place.alone.channels[asked.name]
    # A binding of the settings sends as it would in its application.
    binding = place.alone.factory.output(asked.name, channel, place.binder)
    if not is_dry:
        async with _bound(place, binding):
            await channel.asend(Message(payload, {**headers, CONTENT_TYPE: content_type}))
    return Sent(binding.destination.name, place.binder, content_type, len(payload))


async def receive(
    asked: Asked, show: Callable[[Message[bytes]], None], count: int | None, began: Callable[[str], None]
) -> None:
    """Receive the messages that arrive, until there were `count` of them.

    Args:
        asked: The destination.
        show: Called with each message.
        count: The number of messages; None for no end.
        began: Called with the destination when messages are being received.

    Raises:
        StreamkitError: A setting is wrong, or the messaging system cannot be used.
        click.ClickException: The binder keeps messages in memory.
    """
    place = _place(asked, receives=True)
    channel = place.alone.channels[_BINDING]
    numbers = itertools.count(1)
    ended = asyncio.Event()

    async def arrived(message: Message[object]) -> None:
        if not ended.is_set():
            show(cast("Message[bytes]", message))
            if next(numbers) == count:
                ended.set()

    channel.subscribe(arrived)
    async with _bound(place, place.alone.factory.input(_BINDING, channel)):
        began(f"{place.binding.destination} ({place.binder})")
        await ended.wait()


@asynccontextmanager
async def _bound(place: _Place, binding: InputBinding | OutputBinding) -> AsyncIterator[None]:
    """Bind within the block; disconnect afterwards."""
    try:
        await binding.start()
        yield
    finally:
        await binding.stop()
        await place.alone.binders.stop()


def _place(asked: Asked, *, receives: bool = False) -> _Place:
    """Look the destination up in the settings.

    Args:
        asked: The destination.
        receives: Whether to add a binding that receives from it, by a group of its own.

    Raises:
        ConfigurationError: A setting is wrong, or no binder can be chosen.
        click.ClickException: Its binder keeps messages in memory.
    """
    plugins = ApplicationPlugins()
    environment = Environment.load(arguments=asked.settings, more_sources=plugins.settings_sources)
    settings = read_settings(environment, plugins.binder_types())
    alone = SettingsAlone(environment, settings, plugins)
    binding = settings.value.binding(asked.name)
    binder = asked.binder or binding.binder or alone.binders.default_name()
    type_ = alone.binders.type_of(binder)
    if alone.binders.types.get(type_).is_in_process:
        raise click.ClickException(
            f"binder {binder!r} keeps messages in the memory of the application's process, where no other process can "
            "send or receive them. Use the application's tests, or name another binder with --binder."
        )
    if type_ == "rocketmq":  # a broker that the command started would have no messages of others
        environment = environment.with_arguments([f"--{alone.binders.key_for(binder, _EMBEDDED)}=never"])
    if receives:
        settings = _with_receiver(settings, binding, binder)
    return _Place(SettingsAlone(environment, settings, plugins), binding, binder)


def _with_receiver(settings: Bound[StreamSettings], binding: BindingProperties, binder: str) -> Bound[StreamSettings]:
    """Return the settings with a binding that gets one message after the other, each once."""
    one_by_one: dict[str, object] = {
        "batch_mode": False,
        "concurrency": 1,
        "max_attempts": 1,
        "retry_template_name": None,  # the policy is in the code
        "retryable_exceptions": {},
    }
    own = binding.model_copy(
        update={
            "binder": binder,
            "group": None,
            "error_handler_definition": None,
            "consumer": binding.consumer.model_copy(update=one_by_one),
        }
    )
    bindings = {**settings.value.bindings, _BINDING: own}
    return Bound(settings.value.model_copy(update={"bindings": bindings}), settings.origins)


@contextmanager
def _reported() -> Iterator["asyncio.Runner"]:
    """Yield a runner; turn errors of the framework into those of the command, and log nothing but errors."""
    log_to_terminal("error")
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    with asyncio.Runner() as runner:
        try:
            yield runner
        except StreamkitError as error:
            raise click.ClickException(str(error)) from error


def _type_of(payload: bytes) -> str:
    try:
        json.loads(payload)
    except (ValueError, RecursionError):
        return "text/plain"
    return "application/json"


def _print(message: Message[bytes], *, with_headers: bool, as_json: bool) -> None:
    headers = {name: _plain(value) for name, value in message.headers.items()}
    if as_json:
        click.echo(json.dumps({"headers": headers, "payload": _plain(bytes(message.payload))}, ensure_ascii=False))
        return
    when = datetime.fromtimestamp(message.headers.timestamp / 1000).astimezone()
    facts = [f"{when:%H:%M:%S}"]
    if (partition := headers.get(PARTITION)) is not None:
        facts.append(f"partition {partition}")
    if key := headers.get(KEY):
        facts.append(f"key {printable(str(key), keep=LINES)}")
    click.secho("  ".join(facts), dim=True)
    if with_headers:
        for name in sorted(headers.keys() - {ID, TIMESTAMP, KEY, PARTITION}):
            click.secho(f"  {printable(name, keep=LINES)}: {printable(str(headers[name]), keep=LINES)}", dim=True)
    text = printable(str(_plain(bytes(message.payload))), keep=LINES)
    click.echo(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(message.payload)} bytes; --json shows all)")


def _plain(value: object) -> object:
    """Return a header's value or a payload as JSON has it; bytes as text, if they are text, else in hexadecimal."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex(" ")
    return value if isinstance(value, str | int | float | bool | None) else str(value)
