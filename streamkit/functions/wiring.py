"""Makes stages and suppliers of the functions that settings bind.

::

    definition   upper|count
    functions    upper: (str) -> str            count: (AsyncIterator[str]) -> AsyncIterator[int]
    stages       channel uppercount-in-0 ─▶ ListenerHandler ─▶ Joint ─▶ StreamStage ─▶ channel uppercount-out-0
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import cast, get_args, get_origin

from streamkit.binder.binder import BindingState
from streamkit.config.relaxed import uniform
from streamkit.errors import ConfigurationError, MessageConversionError, MessageHandlingError
from streamkit.functions.catalog import BoundFunction, RegisteredFunction
from streamkit.functions.definition import Definition
from streamkit.functions.pipeline import (
    ItemsHandler,
    Joint,
    JointReader,
    Stage,
    StreamStage,
    items_of,
    send_to_outputs,
)
from streamkit.functions.settings import FunctionSettings
from streamkit.functions.signature import Result, Signature, provided_to
from streamkit.functions.streams import MessageStream, StreamFunction
from streamkit.functions.supplier import Feed, PolledSupplier, StreamSupplier, Supplier
from streamkit.functions.trigger import trigger_of
from streamkit.listeners.arguments import Reader, describe, plan_arguments
from streamkit.listeners.batch_listener import BATCH_HEADERS, BatchListenerHandler, plan_batch_arguments
from streamkit.listeners.invocation import ListenerHandler, Outputs, SendElsewhere, call_on_thread
from streamkit.listeners.listener import Listener
from streamkit.listeners.listener_threads import ListenerPools
from streamkit.listeners.parts import Parts
from streamkit.messaging.handler import is_async
from streamkit.messaging.message import ErrorMessage, Message

__all__ = ["Exit", "FunctionWiring"]

MakeReader = Callable[[object], Reader]


@dataclass(frozen=True, slots=True)
class Exit:
    """Where the results of a function go.

    Attributes:
        outputs: By the index of the output.
        elsewhere: Sends one whose header names another destination.
        not_copied: Headers of what came that are not given to results.
    """

    outputs: Sequence[Outputs]
    elsewhere: SendElsewhere
    not_copied: Sequence[str] = ()


class FunctionWiring:
    """The functions of one run of an application.

    Attributes:
        stages: What handles the messages of an input binding, by its uniform name.
        suppliers: Those that are called without messages.
        streams: Those that are called once, with streams.
    """

    def __init__(self, settings: FunctionSettings, parts: Parts, pools: ListenerPools) -> None:
        """Wire nothing yet.

        Args:
            settings: What settings say about functions.
            parts: What they are put together from.
            pools: The threads of those that are `def`.
        """
        self.stages: dict[str, Stage] = {}
        self.suppliers: list[Supplier] = []
        self.streams: list[StreamFunction] = []
        self._settings = settings
        self._parts = parts
        self._pools = pools

    def start(self) -> None:
        """Call what is called once, and begin to poll."""
        for function in self.streams:
            function.start()
        for supplier in self.suppliers:
            supplier.start()

    async def stop_suppliers(self, timeout: float) -> None:
        """Poll no more; a poll under way gets ``timeout`` seconds. Streams expect their end."""
        for function in self.streams:
            function.close()
        await asyncio.gather(*(supplier.stop(timeout) for supplier in self.suppliers))

    async def stop_streams(self) -> None:
        """End the functions over streams."""
        await asyncio.gather(*(function.stop() for function in self.streams))

    def connect(self, bound: BoundFunction) -> None:
        """Make the stages of a definition, and its supplier.

        Raises:
            ConfigurationError: A function asks for what it cannot be given.
        """
        channels = [self._parts.channels[name] for name in bound.outputs]
        first = self.compose(bound, Exit(channels, self._parts.bridge.asend))
        for name, stage in zip(bound.inputs, first, strict=True):
            self.stages[uniform(name)] = stage

    def compose(self, bound: BoundFunction, exit_: Exit) -> list[Stage]:
        """Make the stages, the last one first; return those of the inputs, which a supplier has none of.

        Raises:
            ConfigurationError: A function asks for what it cannot be given.
        """
        stages: list[Stage] = []
        for position in reversed(range(len(bound.functions))):
            one = bound.functions[position]
            if stages:
                joint = Joint(stages[0])
                exit_ = Exit((joint,), joint.elsewhere, exit_.not_copied)
            if not one.signature.takes_messages:
                self.suppliers.append(self._supplier(bound, one, exit_))
                return []
            stages = self._stages(bound, position, exit_)
            if position and stages[0].settles_by_hand:
                raise ConfigurationError(
                    f"function {describe(one.function)} takes an Acknowledgment, but in {str(bound.definition)!r} its "
                    "message is not the one that came: let the first function take it"
                )
        return stages

    def _stages(self, bound: BoundFunction, position: int, exit_: Exit) -> list[Stage]:
        one = bound.functions[position]
        readers = self._readers(bound, position)
        if not one.signature.streams:
            is_batch = position == 0 and self._parts.is_batch(bound.inputs[0])
            return [self._handler(one, bound.inputs, readers[0], exit_, is_batch=is_batch)]
        batches = [name for name in bound.inputs if position == 0 and self._parts.is_batch(name)]
        if batches:
            raise ConfigurationError(
                f"function {describe(one.function)} takes streams, but its binding {batches[0]!r} is in batch mode"
            )
        function = self._stream_function(bound.definition, one, readers, exit_)
        self.streams.append(function)
        return [StreamStage(function, index) for index in range(one.signature.inputs)]

    def _readers(self, bound: BoundFunction, position: int) -> list[MakeReader]:
        """What makes the readers of a function's inputs: of bindings, or of what the function before gives."""
        if position == 0:
            return [self._parts.reader_factory(name) for name in bound.inputs]
        given = _payload_of(bound.functions[position - 1].signature.item)
        return [lambda asked: JointReader(self._parts.converter, given, asked)]

    def _handler(
        self,
        one: RegisteredFunction,
        inputs: Sequence[str],
        reader_for: MakeReader,
        exit_: Exit,
        *,
        is_batch: bool,
    ) -> ListenerHandler:
        name = inputs[0] if inputs else one.declaration.name
        width = self._parts.width(name) if inputs else 1
        gives_items = one.signature.result in (Result.ITEMS, Result.STREAM)
        kind, plan = ItemsHandler if gives_items else ListenerHandler, plan_arguments
        if is_batch:
            kind, plan = BatchListenerHandler, plan_batch_arguments
            if gives_items:
                raise ConfigurationError(
                    f"function {describe(one.function)} gives an iterator, but its binding {name!r} is in batch mode: "
                    "let it return list[Message[...]]"
                )
        return kind(
            one.function,
            Listener(name),
            plan(one.function, reader_for, self._parts.providers),
            condition=None,
            is_async=is_async(one.function),
            pool=lambda: self._pools.get(name, width),
            outputs=exit_.outputs,
            elsewhere=exit_.elsewhere,
            not_copied=(
                BATCH_HEADERS,
                *self._parts.settings.integration.message_handler_not_propagated_headers,
                *exit_.not_copied,
            ),
        )

    def _stream_function(
        self,
        definition: Definition,
        one: RegisteredFunction,
        readers: Sequence[MakeReader],
        exit_: Exit,
    ) -> StreamFunction:
        provided = provided_to(one.function, self._parts.providers)
        items = [item for parameter in one.signature.streams for item in parameter.items]

        def call(streams: Sequence[MessageStream]) -> object:
            return one.function(**_stream_arguments(one.signature, streams), **_made(provided))

        async def emit(index: int, item: object) -> None:
            await send_to_outputs(item, exit_.outputs[index : index + 1], exit_.elsewhere)

        item_readers = [_item_reader(one, item, make) for item, make in zip(items, readers, strict=True)]
        return StreamFunction(str(definition), call, item_readers, emit, partial(self._report, definition))

    def _supplier(self, bound: BoundFunction, one: RegisteredFunction, exit_: Exit) -> Supplier:
        definition, result = bound.definition, one.signature.result
        provided = provided_to(one.function, self._parts.providers)

        async def call() -> AsyncIterator[object]:
            if result is Result.VALUE:
                yield await self._call(definition, one, _made(provided))
                return
            async for item in items_of(one.function(**_made(provided)), partial(self._pool, definition)):
                yield item

        async def send(value: object) -> None:
            await send_to_outputs(value, exit_.outputs, exit_.elsewhere)

        own = (
            self._parts.service.factory.settings.properties(bound.outputs[0]).producer.poller
            if bound.outputs
            else None
        )
        poller = self._settings.poller if own is None else own.over(self._settings.poller)
        trigger = trigger_of(poller, self._parts.clock)
        report = partial(self._report, definition)
        feed = Feed(str(definition), call, send, partial(self._is_ready, bound), report)
        if result is Result.STREAM and not one.declaration.polled:
            return StreamSupplier(feed, trigger)
        return PolledSupplier(feed, trigger, poller.max_messages_per_poll or 1)

    async def _call(
        self, definition: Definition, one: RegisteredFunction, arguments: Mapping[str, object]
    ) -> object:
        if is_async(one.function):
            return await cast("Awaitable[object]", one.function(**arguments))
        return await call_on_thread(self._pool(definition), one.function, **arguments)

    def _pool(self, definition: Definition) -> Executor:
        return self._pools.get(f"{definition} supplier", 1)

    def _is_ready(self, bound: BoundFunction) -> bool:
        """Whether the outputs of a supplier are bound."""
        found = (self._parts.service.find(name) for name in bound.outputs)
        return all(binding is not None and binding.state is BindingState.RUNNING for binding in found)

    async def _report(self, definition: Definition, error: Exception) -> None:
        """Tell a failure that is no message's on the channel `<definition>.errors` and on `errorChannel`."""
        failure = MessageHandlingError(
            f"function {str(definition)!r} failed: {type(error).__name__}: {error}"
        )
        failure.__cause__ = error
        await self._parts.error_channels.report(f"{definition}.errors", ErrorMessage(failure))


def _made(provided: Mapping[str, Callable[[], object]]) -> dict[str, object]:
    return {name: provide() for name, provide in provided.items()}


def _stream_arguments(signature: Signature, streams: Sequence[MessageStream]) -> dict[str, object]:
    """A function's streams by the names of its parameters."""
    left = list(streams)
    arguments: dict[str, object] = {}
    for parameter in signature.streams:
        taken, left = left[: len(parameter.items)], left[len(parameter.items) :]
        arguments[parameter.name] = tuple(taken) if parameter.is_tuple else taken[0]
    return arguments


def _item_reader(one: RegisteredFunction, item: object, make: MakeReader) -> Reader:
    """What makes a stream's items of messages."""
    is_message = item is Message or get_origin(item) is Message
    try:
        read = make(_payload_of(item))
    except MessageConversionError as error:
        raise ConfigurationError(f"function {describe(one.function)} {error}") from error
    if not is_message:
        return read
    return lambda message: Message(read(message), message.headers)


def _payload_of(type_: object) -> object:
    """`T` of `Message[T]` and of `list[Message[T]]`, bytes of a bare message, else the type itself."""
    if get_origin(type_) is list and len(get_args(type_)) == 1:
        (item,) = get_args(type_)
        if item is Message or get_origin(item) is Message:
            return _payload_of(item)
    if type_ is Message:
        return bytes
    return get_args(type_)[0] if get_origin(type_) is Message else type_
