"""Creation of the stages and suppliers of the functions that settings bind.

::

    definition   upper|count
    functions    upper: (str) -> str            count: (AsyncIterator[str]) -> AsyncIterator[int]
    stages       channel uppercount-in-0 ─▶ ListenerHandler ─▶ NextStage ─▶ StreamStage ─▶ channel uppercount-out-0
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import get_args, get_origin

from streamkit.binder.binder import BindingState
from streamkit.binder.binding_service import BindingService
from streamkit.binder.channels import Channels
from streamkit.binder.error_channels import ErrorChannels
from streamkit.bridge import StreamBridge
from streamkit.clock import Clock
from streamkit.config.relaxed import uniform
from streamkit.errors import ConfigurationError, MessageConversionError, MessageHandlingError
from streamkit.functions.catalog import BoundFunction, RegisteredFunction
from streamkit.functions.definition import Definition
from streamkit.functions.pipeline import (
    ItemsHandler,
    NextStage,
    Stage,
    StageReader,
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
from streamkit.listeners.injection import Injection
from streamkit.listeners.input_settings import InputSettings
from streamkit.listeners.invocation import ListenerHandler, Outputs, SendElsewhere, call_on_thread
from streamkit.listeners.listener import Listener
from streamkit.listeners.listener_threads import ListenerPools
from streamkit.messaging.converter import CompositeMessageConverter
from streamkit.messaging.handler import awaited, is_async
from streamkit.messaging.message import ErrorMessage, Message

__all__ = ["FunctionWiring", "ResultTarget"]

MakeReader = Callable[[object], Reader]


@dataclass(frozen=True, slots=True)
class ResultTarget:
    """The destinations of a function's results.

    Attributes:
        outputs: The channel of each output, by its index.
        elsewhere: Sends a result whose header names another destination.
        not_copied: Headers of the incoming message that are not copied to results.
    """

    outputs: Sequence[Outputs]
    elsewhere: SendElsewhere
    not_copied: Sequence[str] = ()


class FunctionWiring:
    """The functions of one run of an application.

    Attributes:
        stages: The stage that handles the messages of each input binding, by the binding's uniform name.
        suppliers: The functions that are called without messages.
        streams: The functions that are called once, with streams.
    """

    def __init__(
        self,
        settings: FunctionSettings,
        *,
        inputs: InputSettings,
        bindings: BindingService,
        channels: Channels,
        error_channels: ErrorChannels,
        converter: CompositeMessageConverter,
        injection: Injection,
        threads: ListenerPools,
        bridge: StreamBridge,
        clock: Clock,
    ) -> None:
        """Create an empty wiring; :meth:`connect` adds functions.

        Args:
            settings: The settings of functions.
            inputs: The settings of their inputs.
            bindings: The bindings, to test whether outputs are bound.
            channels: The channels of outputs.
            error_channels: The channels for failures that concern no message.
            converter: Converts payloads between composed functions.
            injection: Resolves the markers of containers.
            threads: The threads of `def` functions.
            bridge: Sends results whose header names another destination.
            clock: Wall-clock time, for cron expressions.
        """
        self.stages: dict[str, Stage] = {}
        self.suppliers: list[Supplier] = []
        self.streams: list[StreamFunction] = []
        self._settings = settings
        self._inputs = inputs
        self._bindings = bindings
        self._channels = channels
        self._error_channels = error_channels
        self._converter = converter
        self._injection = injection
        self._threads = threads
        self._bridge = bridge
        self._clock = clock

    def start(self) -> None:
        """Call the functions over streams, and start to poll the suppliers."""
        for function in self.streams:
            function.start()
        for supplier in self.suppliers:
            supplier.start()

    async def stop_suppliers(self, timeout: float) -> None:
        """Stop polling, and let the functions over streams expect no more messages.

        Args:
            timeout: Seconds that a poll in progress may still take.
        """
        for function in self.streams:
            function.close()
        await asyncio.gather(*(supplier.stop(timeout) for supplier in self.suppliers))

    async def stop_streams(self) -> None:
        """Cancel the functions over streams."""
        await asyncio.gather(*(function.stop() for function in self.streams))

    def connect(self, bound: BoundFunction) -> None:
        """Create the stages of a definition, and its supplier.

        Raises:
            ConfigurationError: A function has a parameter that cannot be supplied.
        """
        channels = [self._channels[name] for name in bound.outputs]
        first = self.compose(bound, ResultTarget(channels, self._bridge.asend))
        for name, stage in zip(bound.inputs, first, strict=True):
            self.stages[uniform(name)] = stage

    def compose(self, bound: BoundFunction, target: ResultTarget) -> list[Stage]:
        """Create the stages of a definition, the last one first, and return those of its inputs.

        A supplier has no inputs: the returned list is empty then.

        Raises:
            ConfigurationError: A function has a parameter that cannot be supplied.
        """
        stages: list[Stage] = []
        # From the last to the first, because a stage is made with the stage that gets its results.
        for position in reversed(range(len(bound.functions))):
            one = bound.functions[position]
            if stages:
                following = NextStage(stages[0])
                target = ResultTarget((following,), following.elsewhere, target.not_copied)
            if not one.signature.takes_messages:
                self.suppliers.append(self._supplier(bound, one, target))
                return []
            stages = self._stages(bound, position, target)
            if position and stages[0].settles_by_hand:
                raise ConfigurationError(
                    f"function {describe(one.function)} takes an Acknowledgment, but in {str(bound.definition)!r} "
                    "its message is not the received one: only the first function can take it"
                )
        return stages

    def _stages(self, bound: BoundFunction, position: int, target: ResultTarget) -> list[Stage]:
        one = bound.functions[position]
        readers = self._readers(bound, position)
        if not one.signature.streams:
            is_batch = position == 0 and self._inputs.is_batch(bound.inputs[0])
            return [self._handler(one, bound.inputs, readers[0], target, is_batch=is_batch)]
        batches = [name for name in bound.inputs if position == 0 and self._inputs.is_batch(name)]
        if batches:
            raise ConfigurationError(
                f"function {describe(one.function)} takes streams, but its binding {batches[0]!r} is in batch mode"
            )
        function = self._stream_function(bound.definition, one, readers, target)
        self.streams.append(function)
        return [StreamStage(function, index) for index in range(one.signature.inputs)]

    def _readers(self, bound: BoundFunction, position: int) -> list[MakeReader]:
        """Return the reader factory of each input: of a binding, or of the preceding function's results."""
        if position == 0:
            return [self._inputs.reader_factory(name) for name in bound.inputs]
        given = _payload_of(bound.functions[position - 1].signature.item)
        return [lambda asked: StageReader(self._converter, given, asked)]

    def _handler(
        self,
        one: RegisteredFunction,
        inputs: Sequence[str],
        reader_for: MakeReader,
        target: ResultTarget,
        *,
        is_batch: bool,
    ) -> ListenerHandler:
        name = inputs[0] if inputs else one.declaration.name
        width = self._inputs.width(name) if inputs else 1
        gives_items = one.signature.result in (Result.ITEMS, Result.STREAM)
        kind, plan = ItemsHandler if gives_items else ListenerHandler, plan_arguments
        if is_batch:
            kind, plan = BatchListenerHandler, plan_batch_arguments
            if gives_items:
                raise ConfigurationError(
                    f"function {describe(one.function)} returns an iterator, but its binding {name!r} is in batch "
                    "mode: "
                    "let it return list[Message[...]]"
                )
        return kind(
            one.function,
            Listener(name),
            plan(one.function, reader_for, self._injection),
            condition=None,
            is_async=is_async(one.function),
            pool=lambda: self._threads.get(name, width),
            outputs=target.outputs,
            elsewhere=target.elsewhere,
            not_copied=(BATCH_HEADERS, *self._inputs.not_propagated, *target.not_copied),
        )

    def _stream_function(
        self,
        definition: Definition,
        one: RegisteredFunction,
        readers: Sequence[MakeReader],
        target: ResultTarget,
    ) -> StreamFunction:
        provided = provided_to(one.function, self._injection)
        items = [item for parameter in one.signature.streams for item in parameter.items]

        def call(streams: Sequence[MessageStream]) -> object:
            return one.function(**_stream_arguments(one.signature, streams), **_made(provided))

        async def emit(index: int, item: object) -> None:
            await send_to_outputs(item, target.outputs[index : index + 1], target.elsewhere)

        item_readers = [_item_reader(one, item, make) for item, make in zip(items, readers, strict=True)]
        return StreamFunction(str(definition), call, item_readers, emit, partial(self._report, definition))

    def _supplier(self, bound: BoundFunction, one: RegisteredFunction, target: ResultTarget) -> Supplier:
        definition, result = bound.definition, one.signature.result
        provided = provided_to(one.function, self._injection)

        async def call() -> AsyncIterator[object]:
            if result is Result.VALUE:
                yield await self._call(definition, one, _made(provided))
                return
            async for item in items_of(one.function(**_made(provided)), partial(self._pool, definition)):
                yield item

        async def send(value: object) -> None:
            await send_to_outputs(value, target.outputs, target.elsewhere)

        own = self._inputs.bindings.properties(bound.outputs[0]).producer.poller if bound.outputs else None
        poller = self._settings.poller if own is None else own.over(self._settings.poller)
        trigger = trigger_of(poller, self._clock)
        report = partial(self._report, definition)
        feed = Feed(str(definition), call, send, partial(self._is_ready, bound), report)
        if result is Result.STREAM and not one.declaration.polled:
            return StreamSupplier(feed, trigger)
        return PolledSupplier(feed, trigger, poller.max_messages_per_poll or 1)

    async def _call(self, definition: Definition, one: RegisteredFunction, arguments: Mapping[str, object]) -> object:
        if is_async(one.function):
            return await awaited(one.function(**arguments))
        return await call_on_thread(self._pool(definition), one.function, **arguments)

    def _pool(self, definition: Definition) -> Executor:
        return self._threads.get(f"{definition} supplier", 1)

    def _is_ready(self, bound: BoundFunction) -> bool:
        """Return whether the outputs of a supplier are bound and running."""
        found = (self._bindings.find(name) for name in bound.outputs)
        return all(binding is not None and binding.state is BindingState.RUNNING for binding in found)

    async def _report(self, definition: Definition, error: Exception) -> None:
        """Report a failure that concerns no message, on the channel `<definition>.errors` and on `errorChannel`."""
        failure = MessageHandlingError(f"function {str(definition)!r} failed: {type(error).__name__}: {error}")
        failure.__cause__ = error
        await self._error_channels.report(f"{definition}.errors", ErrorMessage(failure))


def _made(provided: Mapping[str, Callable[[], object]]) -> dict[str, object]:
    return {name: provide() for name, provide in provided.items()}


def _stream_arguments(signature: Signature, streams: Sequence[MessageStream]) -> dict[str, object]:
    """Return the streams by the names of the function's parameters."""
    left = list(streams)
    arguments: dict[str, object] = {}
    for parameter in signature.streams:
        taken, left = left[: len(parameter.items)], left[len(parameter.items) :]
        arguments[parameter.name] = tuple(taken) if parameter.is_tuple else taken[0]
    return arguments


def _item_reader(one: RegisteredFunction, item: object, make: MakeReader) -> Reader:
    """Return the reader that makes the items of a stream."""
    is_message = item is Message or get_origin(item) is Message
    try:
        read = make(_payload_of(item))
    except MessageConversionError as error:
        raise ConfigurationError(f"function {describe(one.function)} {error}") from error
    if not is_message:
        return read
    return lambda message: Message(read(message), message.headers)


def _payload_of(type_: object) -> object:
    """Return `T` for `Message[T]` and `list[Message[T]]`, bytes for a bare `Message`, else the type itself."""
    if get_origin(type_) is list and len(get_args(type_)) == 1:
        (item,) = get_args(type_)
        if item is Message or get_origin(item) is Message:
            return _payload_of(item)
    if type_ is Message:
        return bytes
    return get_args(type_)[0] if get_origin(type_) is Message else type_
