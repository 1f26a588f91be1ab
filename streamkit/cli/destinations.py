"""Sends to a destination and receives from it, as an application in the current directory would: on any binder.

The command's application has the settings of that directory and one binding. It starts nothing else that the settings
name: no functions, no management endpoints, no embedded broker.
"""

import asyncio
import itertools
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

import click

from streamkit.application import StreamApplication
from streamkit.cli.terminal_log import log_to_terminal
from streamkit.config.origin import Scalar
from streamkit.errors import StreamkitError
from streamkit.loop.loops import new_loop
from streamkit.messaging.headers import CONTENT_TYPE, ID, KEY, PARTITION, TIMESTAMP
from streamkit.messaging.message import Message

__all__ = ["Asked", "receive", "send", "send_one", "show_arrivals"]

_PREFIX: Final = "spring.cloud.stream"
_BINDING: Final = "streamkit-command"
_SHOWN: Final = 1000
"""Characters of a payload that are shown, without `--json`."""
_OTHERS: Final[Mapping[str, Scalar]] = {
    "spring.cloud.function.definition": "",
    f"{_PREFIX}.source": "",
    f"{_PREFIX}.input-bindings": "",
    f"{_PREFIX}.output-bindings": "",
    "management.server.port": "",
    # A broker that is away ends the command; an application would wait for it.
    f"{_PREFIX}.binding-retry-interval": "0",
}


@dataclass(frozen=True)
class Asked:
    """What a command was asked to send to or to receive from.

    Attributes:
        name: The name of a binding, or a destination.
        binder: The name of the binder; None for the one of the settings.
        settings: Settings as arguments.
    """

    name: str
    binder: str | None
    settings: Sequence[str]


@dataclass(frozen=True)
class _Place:
    """A destination that the settings were asked about.

    Attributes:
        destination: The name that the messaging system knows.
        binder: The name of its binder.
        type: The type of the binder.
        binding: The binding of the settings; None if they have none of this name.
        overrides: The settings of the command's application.
    """

    destination: str
    binder: str
    type: str
    binding: str | None
    overrides: Mapping[str, Scalar]

    def __str__(self) -> str:
        return f"{self.destination} ({self.binder})"


def send_one(asked: Asked, payload: bytes, headers: Mapping[str, object], content_type: str | None) -> str:
    """Run `send`, and return where the message was sent to.

    Raises:
        click.ClickException: A setting is wrong, or the messaging system cannot be used.
    """
    with _reported() as runner:
        return runner.run(send(asked, payload, headers, content_type))


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


async def send(asked: Asked, payload: bytes, headers: Mapping[str, object], content_type: str | None) -> str:
    """Send a message, and return where to.

    Args:
        asked: The destination.
        payload: The payload, as it is sent.
        headers: Its headers.
        content_type: Its content type; None to find out whether it is JSON.

    Raises:
        StreamkitError: A setting is wrong, or the messaging system cannot be used.
        click.ClickException: The binder keeps messages in memory.
    """
    place = _place(asked)
    # A binding of the settings sends as it would in its application.
    name = _BINDING if place.binding is None else place.binding
    binding = f"{_PREFIX}.bindings[{name}]"
    settings = {
        **place.overrides,
        f"{_PREFIX}.output-bindings": name,
        f"{binding}.destination": place.destination,
        f"{binding}.binder": place.binder,
    }
    application = _application(asked, settings)
    message = Message(payload, {**headers, CONTENT_TYPE: content_type or _type_of(payload)})
    async with application:
        await application.channel(name).asend(message)
    return str(place)


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
    place = _place(asked)
    binding = f"{_PREFIX}.bindings[{_BINDING}]"
    settings = {
        **place.overrides,
        f"{binding}.destination": place.destination,
        f"{binding}.binder": place.binder,
    }
    application = _application(asked, settings)
    numbers = itertools.count(1)
    ended = asyncio.Event()

    @application.stream_listener(_BINDING)
    async def arrived(message: Message[bytes]) -> None:
        if not ended.is_set():
            show(message)
            if next(numbers) == count:
                ended.set()

    async with application:
        began(str(place))
        await ended.wait()


def _place(asked: Asked) -> _Place:
    """Look the destination up in the settings.

    Raises:
        ConfigurationError: A setting is wrong, or no binder can be chosen.
        click.ClickException: Its binder keeps messages in memory.
    """
    application = _application(asked, _OTHERS)
    settings = application.container.binding_factory().settings
    binding = asked.name if settings.is_configured(asked.name) else None
    properties = settings.properties(asked.name)
    registry = application.container.binders()
    binder = asked.binder or properties.binder or registry.get(None).name
    configuration = registry.configurations.get(binder)
    type_ = binder if configuration is None else configuration.type or binder
    if registry.types.get(type_).is_in_process:
        raise click.ClickException(
            f"binder {binder!r} keeps messages in the memory of the application's process, where no other process can "
            "send or receive them. Use the application's tests, or name another binder with --binder."
        )
    overrides = dict(_OTHERS)
    embedded = f"{_PREFIX}.{type_}.binder.embedded"
    if type_ == "rocketmq":  # a broker that the command started would have no messages of others
        overrides[registry.key_for(binder, embedded)] = "never"
    return _Place(properties.destination or asked.name, binder, type_, binding, overrides)


def _application(asked: Asked, settings: Mapping[str, Scalar]) -> StreamApplication:
    application = StreamApplication(properties=dict(settings))
    application.take_arguments(asked.settings)
    return application


@contextmanager
def _reported() -> Iterator["asyncio.Runner"]:
    """Yield a runner; turn errors of the framework into those of the command, and log nothing but errors."""
    log_to_terminal("error")
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    with asyncio.Runner(loop_factory=new_loop) as runner:
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
        facts.append(f"key {_visible(str(key))}")
    click.secho("  ".join(facts), dim=True)
    if with_headers:
        for name in sorted(headers.keys() - {ID, TIMESTAMP, KEY, PARTITION}):
            click.secho(f"  {_visible(name)}: {_visible(str(headers[name]))}", dim=True)
    text = _visible(str(_plain(bytes(message.payload))))
    click.echo(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(message.payload)} bytes; --json shows all)")


def _plain(value: object) -> object:
    """Return a header's value or a payload as JSON has it; bytes as text, if they are text, else in hexadecimal."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex(" ")
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _visible(text: str) -> str:
    """Return a text without characters that change the state of a terminal: these are written as escapes."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode() for each in text
    )
