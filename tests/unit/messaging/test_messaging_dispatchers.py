"""Who gets a message: the rules of Spring's dispatchers."""

import asyncio
import threading
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
from streamkit.messaging import BroadcastingDispatcher, Message, RoundRobin, UnicastingDispatcher
from streamkit.messaging.handler import drive
from streamkit.settlement import Reject

MESSAGE = Message("a")


class Recorder:
    """Handlers that note who was called; those in `failing` raise."""

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


def test_registration_order_without_load_balancing():
    """Without load balancing the first handler gets every message."""
    recorder = Recorder()
    dispatcher = UnicastingDispatcher("c")
    dispatcher.add_handler(recorder.handler("one"))
    dispatcher.add_handler(recorder.handler("two"))
    assert dispatch(dispatcher)
    assert dispatch(dispatcher)
    assert recorder.calls == ["one", "one"]


def test_ordered_handlers_come_first():
    """Handlers with an order come before those without, the smallest first."""
    recorder = Recorder("one", "two", "three")
    dispatcher = UnicastingDispatcher("c")
    dispatcher.add_handler(recorder.handler("three"))
    dispatcher.add_handler(recorder.handler("two", order=5))
    dispatcher.add_handler(recorder.handler("one", order=-1))
    with pytest.raises(AllHandlersFailed):
        dispatch(dispatcher)
    assert recorder.calls == ["one", "two", "three"]


def test_round_robin():
    """With round robin the handlers take turns."""
    recorder = Recorder()
    dispatcher = UnicastingDispatcher("c", load_balancing=RoundRobin())
    for name in ("one", "two", "three"):
        dispatcher.add_handler(recorder.handler(name))
    for _ in range(4):
        dispatch(dispatcher)
    assert recorder.calls == ["one", "two", "three", "one"]


def test_failover_stops_at_the_winner():
    """A handler that raises hands over to the next; the first that does not raise is the last one called."""
    recorder = Recorder("one")
    dispatcher = UnicastingDispatcher("c")
    for name in ("one", "two", "three"):
        dispatcher.add_handler(recorder.handler(name))
    assert dispatch(dispatcher)
    assert recorder.calls == ["one", "two"]


def test_failover_starts_where_round_robin_points():
    """After the handler whose turn it is come the others, in a circle."""
    recorder = Recorder("two", "three")
    dispatcher = UnicastingDispatcher("c", load_balancing=RoundRobin())
    for name in ("one", "two", "three"):
        dispatcher.add_handler(recorder.handler(name))
    dispatch(dispatcher)
    dispatch(dispatcher)
    assert recorder.calls == ["one", "two", "three", "one"]


def test_without_failover_the_first_failure_counts():
    """Without fail-over nobody else is tried."""
    recorder = Recorder("one")
    dispatcher = UnicastingDispatcher("c", failover=False)
    dispatcher.add_handler(recorder.handler("one"))
    dispatcher.add_handler(recorder.handler("two"))
    with pytest.raises(MessageHandlingError):
        dispatch(dispatcher)
    assert recorder.calls == ["one"]


def test_every_cause_is_kept():
    """When all handlers fail, the error has the message and each handler's exception, in order."""
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


def test_a_single_failure_is_the_cause():
    """One handler's exception is the cause of the error the sender gets."""
    recorder = Recorder("one")
    dispatcher = UnicastingDispatcher("c")
    dispatcher.add_handler(recorder.handler("one"))
    with pytest.raises(MessageHandlingError, match="ValueError: one") as caught:
        dispatch(dispatcher)
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.failed_message is MESSAGE


def test_a_failure_whose_text_cannot_be_made_is_told_by_its_class():
    """The sender sees the handler's exception as the cause, not what became of asking for its text."""

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


def test_our_own_errors_pass_as_they_are():
    """An error that already tells its message is not wrapped again; one that does not is given it."""

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


def test_a_decision_is_no_failure():
    """A handler that rejects its message has handled it: nobody else is asked."""
    calls = []

    def rejecting(message):
        raise Reject("poison")

    dispatcher = UnicastingDispatcher("c")
    dispatcher.add_handler(rejecting)
    dispatcher.add_handler(calls.append)
    with pytest.raises(Reject, match="poison"):
        dispatch(dispatcher)
    assert calls == []


def test_a_decision_is_not_ignored_with_failures():
    """A handler that rejects its message rejects it for all, also where the failures of one keep it from nobody."""
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
def test_no_subscriber(dispatcher):
    """A message nobody takes is an error that names the channel and says what to do."""
    with pytest.raises(NoSubscriberError, match="has no subscribers for channel 'orders'") as caught:
        dispatch(dispatcher)
    assert "Subscribe a handler to it" in str(caught.value)
    assert caught.value.failed_message is MESSAGE


def test_adding_twice_adds_once():
    """A handler is added once and removed once; both say whether they did something."""
    dispatcher = UnicastingDispatcher("c")
    handler = Recorder().handler("one")
    assert dispatcher.add_handler(handler) is True
    assert dispatcher.add_handler(handler) is False
    assert dispatcher.handlers == (handler,)
    assert dispatcher.remove_handler(handler) is True
    assert dispatcher.remove_handler(handler) is False
    assert dispatcher.handlers == ()


def test_removing_while_dispatching_is_safe():
    """A dispatch under way goes on with the handlers it started with."""
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


def test_objects_with_handle_message():
    """An object with `handle_message`, a partial and a callable object are handlers, `async def` or not."""
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


def test_what_is_no_handler():
    """Adding something that handles no messages is an error at once."""
    with pytest.raises(TypeError, match="'x' cannot handle messages"):
        UnicastingDispatcher("c").add_handler("x")


def test_failover_over_async_handlers():
    """An `async def` handler that raises hands over too."""
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


def test_cancelling_is_no_failure():
    """A cancelled handler does not hand over to the next."""
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


def test_broadcasting_reaches_everybody():
    """Every handler gets the message, in order; nobody listening is fine."""
    recorder = Recorder()
    dispatcher = BroadcastingDispatcher("c")
    assert dispatch(dispatcher)
    dispatcher.add_handler(recorder.handler("one"))
    dispatcher.add_handler(recorder.handler("two"))
    assert dispatch(dispatcher)
    assert recorder.calls == ["one", "two"]


def test_broadcasting_stops_at_a_failure():
    """A failing handler ends the broadcast with its error."""
    recorder = Recorder("one")
    dispatcher = BroadcastingDispatcher("c")
    dispatcher.add_handler(recorder.handler("one"))
    dispatcher.add_handler(recorder.handler("two"))
    with pytest.raises(MessageHandlingError):
        dispatch(dispatcher)
    assert recorder.calls == ["one"]


def test_broadcasting_can_ignore_failures(caplog):
    """With `ignore_failures` the others still get the message, and the failure is logged."""
    recorder = Recorder("one")
    dispatcher = BroadcastingDispatcher("c", ignore_failures=True)
    dispatcher.add_handler(recorder.handler("one"))
    dispatcher.add_handler(recorder.handler("two"))
    assert dispatch(dispatcher)
    assert recorder.calls == ["one", "two"]
    assert "of channel 'c' failed" in caplog.text


@pytest.mark.parametrize("kind", [UnicastingDispatcher, BroadcastingDispatcher])
def test_an_executor_runs_the_handlers(kind):
    """With an executor the message is queued, True comes at once, and another thread handles it."""
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
def test_a_queued_failure_is_logged(kind, caplog):
    """Nobody waits for a queued message, so its failure is in the log."""
    with ThreadPoolExecutor(1) as executor:
        dispatcher = kind("c", executor=executor)
        dispatcher.add_handler(Recorder("one").handler("one"))
        assert dispatch(dispatcher)
    assert "could not deliver the queued message Message('a'" in caplog.text


def test_repr_names_the_handlers():
    """The repr shows channel and handlers."""
    dispatcher = UnicastingDispatcher("c")
    dispatcher.add_handler(HandlerObject())
    assert repr(dispatcher) == "UnicastingDispatcher('c', handlers=[HandlerObject])"
