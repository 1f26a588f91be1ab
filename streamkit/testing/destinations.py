"""The destinations of a test: to send messages to the application, and to receive messages from it."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar, cast, overload

from streamkit.binder.binder import Binder, ConsumerDestination, ProducerBinding, ProducerDestination
from streamkit.binder.binding_settings import topics_of
from streamkit.binder.delivery import Delivery, ExtendedProducerProperties, StartPosition
from streamkit.binder.permits import Permits
from streamkit.config.settings import BindingProperties, ConsumerProperties, ProducerProperties
from streamkit.errors import BinderError, MessageConversionError
from streamkit.messaging.converter import CompositeMessageConverter
from streamkit.messaging.headers import SEQUENCE
from streamkit.messaging.message import Message
from streamkit.settlement import ACCEPT, Settlement

__all__ = ["InputDestination", "OutputDestination", "described"]

T = TypeVar("T")

_SHOWN: Final = 200


class RunningTest(Protocol):
    """The part of the harness that destinations use."""

    def properties(self, name: str) -> BindingProperties:
        """Return the settings of a binding."""
        ...

    async def started_binder(self, name: str) -> Binder:
        """Return the binder behind a binding, or the default one."""
        ...

    def converter(self) -> CompositeMessageConverter:
        """Return the application's converter."""
        ...

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the application's loop.

        Raises:
            ApplicationError: The test itself runs on that loop.
        """
        ...

    async def asettle(self) -> None:
        """Run everything that is due now; virtual time stands still."""
        ...

    def what_happened(self) -> str:
        """Return a description of what the application has sent, and of its errors."""
        ...


class _Sender(ExtendedProducerProperties):
    """The settings of a sender outside of the application: it sends all headers, and has no limits of its own."""

    spellings: dict[str, str]

    @property
    def header_spellings(self) -> Mapping[str, str]:
        return self.spellings


class InputDestination:
    """A destination from which the application receives."""

    def __init__(self, harness: RunningTest, name: str) -> None:
        self._harness = harness
        self._name = name
        properties = harness.properties(name)
        self._topic = topics_of(properties.destination or name)[0]
        self._write = harness.converter().payload_writer(properties.content_type)
        self._producer: ProducerBinding | None = None

    def send(self, data: object, headers: Mapping[str, object] | None = None) -> None:
        """Send a message, or a payload converted by the binding's content type; return when it is settled.

        Args:
            data: A message or a payload.
            headers: Headers of the payload; of a message they replace those of the same names.

        Raises:
            ApplicationError: This is an async test: await :meth:`asend`.
        """
        self._harness.run(self.asend(data, headers))

    async def asend(self, data: object, headers: Mapping[str, object] | None = None) -> None:
        """Send a message in an async test, as :meth:`send` does in others."""
        if self._producer is None:
            self._producer = await self._bind(await self._harness.started_binder(self._name))
        message: Message[object] = data if isinstance(data, Message) else Message(data)
        await self._producer.send(self._write(message.with_headers(headers) if headers else message))
        await self._harness.asettle()

    async def _bind(self, binder: Binder) -> ProducerBinding:
        extended = _Sender(spellings=dict(binder.producer_properties().header_spellings))
        destination = ProducerDestination(self._topic, f"test of {self._name}", ProducerProperties(), extended, _ignore)
        return await binder.bind_producer(destination)


class OutputDestination:
    """The messages that the application has sent to a destination, or to the destinations of dead letters."""

    def __init__(self, harness: RunningTest, name: str, topics: Sequence[str]) -> None:
        self._harness = harness
        self._name = name
        self._topics = tuple(topics)
        self._topic = ", ".join(topics)
        self._content_type = harness.properties(name).content_type
        self._waiting: list[Message[bytes]] = []
        self._arrival: asyncio.Future[None] | None = None
        self._is_bound = False

    async def _settle(self) -> None:
        """Collect the messages that the application has sent, and that what is due now sends."""
        if not self._is_bound:
            self._is_bound = True
            binder = await self._harness.started_binder(self._name)
            for topic in self._topics:
                destination = ConsumerDestination(
                    topic,
                    None,
                    f"test of {topic}",
                    ConsumerProperties(),
                    binder.consumer_properties(),
                    Delivery(own_start=StartPosition.EARLIEST),
                    Permits(1000),
                )
                await binder.bind_consumer(destination, self._collect)
        await self._harness.asettle()

    async def _collect(self, message: Message[bytes], redeliveries: int) -> Settlement:
        self._waiting.append(message)
        self._waiting.sort(key=_sequence)
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
        return ACCEPT

    @overload
    def receive(self, type_: None = None, *, within: float = 0) -> Message[bytes]: ...
    @overload
    def receive(self, type_: type[T], *, within: float = 0) -> Message[T]: ...
    def receive(self, type_: type[T] | None = None, *, within: float = 0) -> Message[T] | Message[bytes]:
        """Remove and return the oldest message.

        Args:
            type_: The type of the payload; bytes by default.
            within: Seconds of virtual time to wait for a message.

        Raises:
            AssertionError: There is no message.
            ApplicationError: This is an async test: await :meth:`areceive`.
        """
        return self._harness.run(self._receive(type_, within))

    @overload
    async def areceive(self, type_: None = None, *, within: float = 0) -> Message[bytes]: ...
    @overload
    async def areceive(self, type_: type[T], *, within: float = 0) -> Message[T]: ...
    async def areceive(self, type_: type[T] | None = None, *, within: float = 0) -> Message[T] | Message[bytes]:
        """Receive a message in an async test, as :meth:`receive` does in others."""
        return await self._receive(type_, within)

    async def _receive(self, type_: type[T] | None, within: float) -> Message[T] | Message[bytes]:
        await self._settle_if_empty()
        if not self._waiting and within > 0:
            await self._wait(within)
        if not self._waiting:
            raise AssertionError(self._nothing(within))
        return self._read(self._waiting.pop(0), type_)

    @overload
    def receive_all(self, type_: None = None) -> list[Message[bytes]]: ...
    @overload
    def receive_all(self, type_: type[T]) -> list[Message[T]]: ...
    def receive_all(self, type_: type[T] | None = None) -> list[Message[T]] | list[Message[bytes]]:
        """Remove and return all messages, in the order in which they were sent.

        Raises:
            ApplicationError: This is an async test: await :meth:`areceive_all`.
        """
        return self._harness.run(self._receive_all(type_))

    @overload
    async def areceive_all(self, type_: None = None) -> list[Message[bytes]]: ...
    @overload
    async def areceive_all(self, type_: type[T]) -> list[Message[T]]: ...
    async def areceive_all(self, type_: type[T] | None = None) -> list[Message[T]] | list[Message[bytes]]:
        """Receive all messages in an async test, as :meth:`receive_all` does in others."""
        return await self._receive_all(type_)

    async def _receive_all(self, type_: type[T] | None) -> list[Message[T]] | list[Message[bytes]]:
        await self._settle()
        taken, self._waiting = self._waiting, []
        if type_ is None:
            return taken
        return [cast("Message[T]", self._read(message, type_)) for message in taken]

    @property
    def is_empty(self) -> bool:
        """Whether there is no message.

        Raises:
            ApplicationError: This is an async test: await :meth:`ais_empty`.
        """
        return self._harness.run(self.ais_empty())

    async def ais_empty(self) -> bool:
        """Return in an async test what :attr:`is_empty` is in others."""
        await self._settle_if_empty()
        return not self._waiting

    def clear(self) -> None:
        """Remove all messages.

        Raises:
            ApplicationError: This is an async test: await :meth:`aclear`.
        """
        self._harness.run(self.aclear())

    async def aclear(self) -> None:
        """Clear the destination in an async test, as :meth:`clear` does in others."""
        await self._settle()
        self._waiting.clear()

    def __len__(self) -> int:
        return len(self._waiting)

    def __bool__(self) -> bool:
        return True

    async def _settle_if_empty(self) -> None:
        """Deliver the messages that the test has sent in other ways, if none waits here."""
        if not self._waiting:
            await self._settle()

    async def _wait(self, seconds: float) -> None:
        self._arrival = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                await self._arrival
        except TimeoutError:
            pass  # the caller reports that no message came
        finally:
            self._arrival = None

    def _read(self, message: Message[bytes], type_: type[T] | None) -> "Message[T] | Message[bytes]":
        if type_ is None:
            return message
        converter = self._harness.converter()
        try:
            value = converter.payload_reader(type_, self._content_type)(message)
        except MessageConversionError as error:
            error.add_note(f"The message at {self._topic!r}: {described(message)}")
            raise
        return Message(cast("T", value), message.headers)

    def _nothing(self, within: float) -> str:
        waited = f" within {within:g} s" if within else ""
        return f"nothing was sent to {self._topic!r}{waited}\n{self._harness.what_happened()}"

    def described(self) -> str:
        """Return a description of the messages."""
        return ", ".join(described(message) for message in self._waiting)

    def __repr__(self) -> str:
        return f"<OutputDestination {self._topic!r} with {len(self._waiting)}>"


def described(message: Message[object]) -> str:
    """Return a message's payload and headers in one line of limited length."""
    payload, headers = repr(message.payload), message.headers.user_values()
    return (payload if len(payload) <= _SHOWN else f"{payload[:_SHOWN]}…") + f" {headers}"


def _sequence(message: Message[bytes]) -> int:
    number = message.headers.get(SEQUENCE)
    return number if isinstance(number, int) else 0


async def _ignore(message: Message[bytes], error: BinderError) -> None:
    """Do nothing: the in-memory producer never fails after it has returned."""
