"""The dispatchers: who gets a message, by the rules of Spring's."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from streamkit.errors import (
    AllHandlersFailed,
    MessageConversionError,
    MessageDeliveryError,
    MessageHandlingError,
    NoSubscriberError,
)
from streamkit.messaging import BroadcastingDispatcher, Message, MessageDispatcher, RoundRobin, UnicastingDispatcher
from streamkit.messaging.handler import drive
from streamkit.settlement import Reject

MESSAGE = Message("a")


class Recorder:
    """Creates handlers that record their calls; those in `failing` raise."""

    def __init__(self, *failing: str) -> None:
        self.calls: list[str] = []
        self._failing = failing

    def handler(self, name: str, order: int | None = None):
        def handle(message: Message[object]) -> None:
            self.calls.append(name)
            if name in self._failing:
                raise ValueError(name)

        if order is not None:
            handle.order = order
        return handle


def dispatch(dispatcher, message=MESSAGE):
    return drive(dispatcher.dispatch(message))


def test_first_handler_gets_all_without_load_balancing():
    """In registration order."""
    recorder = Recorder()
    dispatcher = UnicastingDispatcher("c")
    dispatcher.add_handler(recorder.handler("one"))
    dispatcher.add_handler(recorder.handler("two"))
    assert dispatch(dispatcher)
    assert dispatch(dispatcher)
    assert recorder.calls == ["one", "one"]


def test_ordered_handlers_come_first():
    """Handlers with an order precede those without, the smallest first."""
    recorder = Recorder("one", "two", "three")
    dispatcher = UnicastingDispatcher("c")
    dispatcher.add_handler(recorder.handler("three"))
    dispatcher.add_handler(recorder.handler("two", order=5))
    dispatcher.add_handler(recorder.handler("one", order=-1))
    with pytest.raises(AllHandlersFailed):
        dispatch(dispatcher)
    assert recorder.calls == ["one", "two", "three"]


def test_round_robin():
    """Handlers are called in turn."""
    recorder = Recorder()
    dispatcher = UnicastingDispatcher("c", load_balancing=RoundRobin())
    for name in ("one", "two", "three"):
        dispatcher.add_handler(recorder.handler(name))
    for _ in range(4):
        dispatch(dispatcher)
    assert recorder.calls == ["one", "two", "three", "one"]


def test_failover_stops_at_the_first_success():
    """A handler that raises is followed by the next one."""
    recorder = Recorder("one")
    dispatcher = UnicastingDispatcher("c")
    for name in ("one", "two", "three"):
        dispatcher.add_handler(recorder.handler(name))
    assert dispatch(dispatcher)
    assert recorder.calls == ["one", "two"]


def test_failover_starts_at_the_round_robin_position():
    """Then the others follow, in a circle."""
    recorder = Recorder("two", "three")
    dispatcher = UnicastingDispatcher("c", load_balancing=RoundRobin())
    for name in ("one", "two", "three"):
        dispatcher.add_handler(recorder.handler(name))
    dispatch(dispatcher)
    dispatch(dispatcher)
    assert recorder.calls == ["one", "two", "three", "one"]


def test_first_failure_ends_the_dispatch_without_failover():
    """No other handler is tried."""
    recorder = Recorder("one")
    dispatcher = UnicastingDispatcher("c", failover=False)
    dispatcher.add_handler(recorder.handler("one"))
    dispatcher.add_handler(recorder.handler("two"))
    with pytest.raises(MessageHandlingError):
        dispatch(dispatcher)
    assert recorder.calls == ["one"]


def test_every_cause_is_kept():
    """When all handlers fail, the error has the message and each exception in order."""
    recorder = Recorder("one", "two")
    dispatcher = UnicastingDispatcher("c")
    dispatcher.add_handler(recorder.handler("one"))
    dispatcher.add_handler(recorder.handler("two"))
    with pytest.raises(AllHandlersFailed, match="All 2 handlers of channel 'c' failed") as caught:
        dispatch(dispatcher)
    assert [str(e) for e in caught.value.exceptions] == ["one", "two"]
    assert isinstance(caught.value.__cause__, ExceptionGroup)
    assert caught.value.__cause__.exceptions == caught.value.exceptions
    assert caught.value.failed_message is MESSAGE


def test_single_failure_is_the_cause():
    """Of the error that the sender gets."""
    recorder = Recorder("one")
    dispatcher = UnicastingDispatcher("c")
    dispatcher.add_handler(recorder.handler("one"))
    with pytest.raises(MessageHandlingError, match="ValueError: one") as caught:
        dispatch(dispatcher)
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.failed_message is MESSAGE


def test_exception_without_text_is_reported_by_its_class():
    """The sender gets the handler's exception as the cause, not the error of its `str`."""

    class WithoutTextError(Exception):
        def __str__(self):
            raise RuntimeError("broken")

    def handler(message):
        raise WithoutTextError

    dispatcher = UnicastingDispatcher("c")
    dispatcher.add_handler(handler)
    with pytest.raises(MessageHandlingError, match="WithoutTextError: <its text cannot be made") as caught:
        dispatch(dispatcher)
    assert isinstance(caught.value.__cause__, WithoutTextError)


def test_messaging_errors_are_not_wrapped():
    """One without a message gets the message."""

    def complete(message):
        raise MessageConversionError("bad", message)

    def incomplete(message):
        raise MessageDeliveryError("bad")

    for handler, expected in ((complete, MessageConversionError), (incomplete, MessageDeliveryError)):
        dispatcher = UnicastingDispatcher("c")
        dispatcher.add_handler(handler)
        with pytest.raises(expected) as caught:
            dispatch(dispatcher)
        assert caught.value.failed_message is MESSAGE


def test_settlement_is_no_failure():
    """A handler that rejects its message ends the dispatch."""
    calls = []

    def rejecting(message):
        raise Reject("poison")

    dispatcher = UnicastingDispatcher("c")
    dispatcher.add_handler(rejecting)
    dispatcher.add_handler(calls.append)
    with pytest.raises(Reject, match="poison"):
        dispatch(dispatcher)
    assert calls == []


def test_settlement_is_not_ignored_with_failures():
    """A rejection applies to all handlers, although failures are ignored."""
    dispatcher = BroadcastingDispatcher("c", ignore_failures=True)
    calls = []

    def rejecting(message):
        raise Reject("poison")

    dispatcher.add_handler(calls.append)
    dispatcher.add_handler(rejecting)
    with pytest.raises(Reject, match="poison"):
        dispatch(dispatcher)
    assert calls == [MESSAGE]


@pytest.mark.parametrize(
    "dispatcher", [UnicastingDispatcher("orders"), BroadcastingDispatcher("orders", require_subscribers=True)]
)
def test_no_subscriber_is_an_error(dispatcher):
    """It names the channel and says what to do."""
    with pytest.raises(NoSubscriberError, match="has no subscribers for channel 'orders'") as caught:
        dispatch(dispatcher)
    assert "Subscribe a handler to it" in str(caught.value)
    assert caught.value.failed_message is MESSAGE


def test_handler_is_added_and_removed_once():
    """Both calls report whether they changed something."""
    dispatcher = UnicastingDispatcher("c")
    handler = Recorder().handler("one")
    assert dispatcher.add_handler(handler) is True
    assert dispatcher.add_handler(handler) is False
    assert dispatcher.handlers == (handler,)
    assert dispatcher.remove_handler(handler) is True
    assert dispatcher.remove_handler(handler) is False
    assert dispatcher.handlers == ()


def test_removal_during_a_dispatch_is_safe():
    """The dispatch continues with the handlers it started with."""
    dispatcher = BroadcastingDispatcher("c")
    calls = []

    def second(message):
        calls.append("second")

    def first(message):
        calls.append("first")
        dispatcher.remove_handler(second)

    dispatcher.add_handler(first)
    dispatcher.add_handler(second)
    dispatch(dispatcher)
    dispatch(dispatcher)
    assert calls == ["first", "second", "first"]


class HandlerObject:
    def __init__(self) -> None:
        self.messages = []

    async def handle_message(self, message):
        self.messages.append(message)


def test_objects_with_handle_message_are_handlers():
    """So are partials and callable objects, `async def` or not."""
    handler = HandlerObject()
    seen = []

    async def with_prefix(prefix, message):
        seen.append(prefix)

    class Callable:
        async def __call__(self, message):
            seen.append("called")

    async def main():
        dispatcher = BroadcastingDispatcher("c")
        for each in (handler, partial(with_prefix, "p"), Callable()):
            dispatcher.add_handler(each)
        assert not dispatcher.is_synchronous
        assert await dispatcher.dispatch(MESSAGE)

    asyncio.run(main())
    assert handler.messages == [MESSAGE]
    assert seen == ["p", "called"]


def test_object_that_is_no_handler_is_refused():
    """When it is added."""
    with pytest.raises(TypeError, match="'x' cannot handle messages"):
        UnicastingDispatcher("c").add_handler("x")


def test_failover_over_async_handlers():
    """A failing `async def` handler is followed by the next one."""
    calls = []

    async def failing(message):
        await asyncio.sleep(0)
        raise ValueError

    async def working(message):
        calls.append(message)

    async def main():
        dispatcher = UnicastingDispatcher("c")
        dispatcher.add_handler(failing)
        dispatcher.add_handler(working)
        assert await dispatcher.dispatch(MESSAGE)

    asyncio.run(main())
    assert calls == [MESSAGE]


def test_cancellation_is_no_failure():
    """A cancelled handler is not followed by the next one."""
    calls = []

    async def main():
        started = asyncio.Event()

        async def waiting(message):
            started.set()
            await asyncio.sleep(3600)

        dispatcher = UnicastingDispatcher("c")
        dispatcher.add_handler(waiting)
        dispatcher.add_handler(calls.append)
        task = asyncio.create_task(dispatcher.dispatch(MESSAGE))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert calls == []


def test_broadcast_reaches_every_handler():
    """In order; without handlers it succeeds."""
    recorder = Recorder()
    dispatcher = BroadcastingDispatcher("c")
    assert dispatch(dispatcher)
    dispatcher.add_handler(recorder.handler("one"))
    dispatcher.add_handler(recorder.handler("two"))
    assert dispatch(dispatcher)
    assert recorder.calls == ["one", "two"]


def test_broadcast_stops_at_a_failure():
    """With the handler's error."""
    recorder = Recorder("one")
    dispatcher = BroadcastingDispatcher("c")
    dispatcher.add_handler(recorder.handler("one"))
    dispatcher.add_handler(recorder.handler("two"))
    with pytest.raises(MessageHandlingError):
        dispatch(dispatcher)
    assert recorder.calls == ["one"]


def test_broadcast_can_ignore_failures(caplog):
    """With `ignore_failures` the others get the message, and the failure is logged."""
    recorder = Recorder("one")
    dispatcher = BroadcastingDispatcher("c", ignore_failures=True)
    dispatcher.add_handler(recorder.handler("one"))
    dispatcher.add_handler(recorder.handler("two"))
    assert dispatch(dispatcher)
    assert recorder.calls == ["one", "two"]
    assert "of channel 'c' failed" in caplog.text


@pytest.mark.parametrize("kind", [UnicastingDispatcher, BroadcastingDispatcher])
def test_executor_runs_the_handlers(kind):
    """The message is queued, True is returned at once, and another thread handles it."""
    release = threading.Event()
    threads = []

    def handle(message):
        release.wait(10)
        threads.append(threading.current_thread())

    with ThreadPoolExecutor(1) as executor:
        dispatcher = kind("c", executor=executor)
        dispatcher.add_handler(handle)
        assert dispatch(dispatcher)
        assert threads == []
        release.set()
    assert threads != []
    assert threads[0] is not threading.current_thread()


@pytest.mark.parametrize("kind", [UnicastingDispatcher, BroadcastingDispatcher])
def test_queued_failure_is_logged(kind, caplog):
    """No caller waits for it."""
    with ThreadPoolExecutor(1) as executor:
        dispatcher = kind("c", executor=executor)
        dispatcher.add_handler(Recorder("one").handler("one"))
        assert dispatch(dispatcher)
    assert "could not deliver the queued message Message('a'" in caplog.text


def test_repr_shows_channel_and_handlers():
    """The repr shows channel and handlers."""
    dispatcher = UnicastingDispatcher("c")
    dispatcher.add_handler(HandlerObject())
    assert repr(dispatcher) == "UnicastingDispatcher('c', handlers=[HandlerObject])"


class Noting(UnicastingDispatcher):
    """A dispatcher of an application that sees each message first."""

    def __init__(self) -> None:
        super().__init__("c")
        self.seen: list[object] = []

    def dispatch(self, message: Message[object]) -> Coroutine[object, None, bool]:
        self.seen.append(message.payload)
        return super().dispatch(message)


def test_dispatcher_may_override_dispatch() -> None:
    """The handler is called by the method that it overrides."""
    recorder = Recorder()
    dispatcher = Noting()
    dispatcher.add_handler(recorder.handler("one"))
    assert dispatch(dispatcher)
    assert (dispatcher.seen, recorder.calls) == (["a"], ["one"])


def test_dispatcher_without_dispatch_is_refused_when_it_is_made() -> None:
    """And not at its first message."""
    with pytest.raises(TypeError, match="dispatch"):
        MessageDispatcher("c")  # type: ignore[abstract]
