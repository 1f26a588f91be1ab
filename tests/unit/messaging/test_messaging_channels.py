"""Sending: in the caller's thread, on a loop, and with a time limit."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from streamkit.errors import BlockingSendError, MessageHandlingError, NoSubscriberError
from streamkit.messaging import ChannelInterceptor, DirectChannel, LoopPortal, Message, PublishSubscribeChannel

MESSAGE = Message("a")


@pytest.fixture
def portal() -> Iterator[LoopPortal]:
    """Return a portal to a loop in another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield LoopPortal(loop)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_payload_without_a_message_is_refused():
    """The error names the channel and says what to send."""
    channel = DirectChannel("output")
    channel.subscribe(lambda message: None)
    with pytest.raises(TypeError, match=r"channel 'output' sends messages, not str: send Message\(payload\)"):
        channel.send("text")
    with pytest.raises(TypeError, match="not dict"):
        asyncio.run(channel.asend({}))

    async def make():
        return MESSAGE

    forgotten = make()
    with pytest.raises(TypeError, match=r"not the coroutine of .*\.make, which was not awaited: await it"):
        channel.send(forgotten)
    forgotten.close()


def test_send_runs_plain_functions_in_the_callers_thread():
    """With or without a loop."""
    threads = []
    channel = DirectChannel("c")
    channel.subscribe(lambda message: threads.append(threading.current_thread()))
    assert channel.is_synchronous
    assert channel.send(MESSAGE)

    async def main():
        assert channel.send(MESSAGE)
        assert await channel.asend(MESSAGE)

    asyncio.run(main())
    assert threads == [threading.current_thread()] * 3


def test_send_through_the_portal(portal):
    """An `async def` subscriber runs on the application's loop, and the sender waits."""
    loops = []

    async def handle(message):
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())

    channel = DirectChannel("c", portal=portal)
    channel.subscribe(handle)
    assert not channel.is_synchronous
    assert channel.send(MESSAGE)
    assert loops == [portal.loop]


def test_errors_return_through_the_portal(portal):
    """They reach the sender in its thread."""

    async def handle(message):
        raise ValueError("no")

    channel = DirectChannel("c", portal=portal)
    channel.subscribe(handle)
    with pytest.raises(MessageHandlingError, match="ValueError: no"):
        channel.send(MESSAGE)


def test_send_on_the_loops_own_thread_is_refused():
    """It would block the loop; the error says to use `asend`."""

    async def handle(message):
        pass

    async def main():
        channel = DirectChannel("c", portal=LoopPortal(asyncio.get_running_loop()))
        channel.subscribe(handle)
        with pytest.raises(BlockingSendError, match=r"await channel\.asend"):
            channel.send(MESSAGE)
        assert await channel.asend(MESSAGE)

    asyncio.run(main())


def test_send_without_an_application_is_refused():
    """An `async def` subscriber needs a loop; the error says what to do."""

    async def handle(message):
        pass

    channel = DirectChannel("c")
    channel.subscribe(handle)
    with pytest.raises(BlockingSendError, match="start the application first"):
        channel.send(MESSAGE)


def test_timeout_returns_false(portal):
    """From `send` and `asend`; the subscriber is cancelled."""
    cancelled = []

    async def handle(message):
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(message)
            raise

    channel = DirectChannel("c", portal=portal)
    channel.subscribe(handle)
    assert channel.send(MESSAGE, 0.01) is False
    channel.portal = None
    assert asyncio.run(channel.asend(MESSAGE, 0.01)) is False
    assert cancelled == [MESSAGE, MESSAGE]


def test_subscribers_own_timeout_is_a_failure():
    """It is distinguished from the sender's timeout."""

    async def handle(message):
        raise TimeoutError("mine")

    channel = DirectChannel("c")
    channel.subscribe(handle)
    with pytest.raises(MessageHandlingError, match="mine"):
        asyncio.run(channel.asend(MESSAGE, 10))


@pytest.mark.parametrize("timeout", [None, -1, 10])
def test_negative_timeout_means_no_timeout(timeout):
    """As Spring's INDEFINITE_TIMEOUT."""
    calls = []

    async def handle(message):
        await asyncio.sleep(0)
        calls.append(message)

    channel = DirectChannel("c")
    channel.subscribe(handle)
    assert asyncio.run(channel.asend(MESSAGE, timeout))
    assert calls == [MESSAGE]


def test_direct_channel_uses_subscribers_in_turn():
    """Unless load balancing is off."""
    calls = []
    balanced, fixed = DirectChannel("b"), DirectChannel("f", load_balancing=None)
    for channel in (balanced, fixed):
        channel.subscribe(lambda message: calls.append(1))
        channel.subscribe(lambda message: calls.append(2))
        channel.send(MESSAGE)
        channel.send(MESSAGE)
    assert calls == [1, 2, 1, 1]


def test_subscribe_and_unsubscribe_report_changes():
    """A channel without subscribers refuses messages."""
    calls = []
    channel = DirectChannel("c")
    assert channel.subscribe(calls.append) is True
    assert channel.subscribe(calls.append) is False
    assert channel.unsubscribe(calls.append) is True
    assert channel.unsubscribe(calls.append) is False
    with pytest.raises(NoSubscriberError):
        channel.send(MESSAGE)


def test_publish_subscribe_channel_sends_to_every_subscriber():
    """Without subscribers it accepts messages too."""
    calls = []
    channel = PublishSubscribeChannel("c")
    assert channel.send(MESSAGE)
    channel.subscribe(lambda message: calls.append(1))
    channel.subscribe(lambda message: calls.append(2))
    assert channel.send(MESSAGE)
    assert calls == [1, 2]


def test_executor_returns_at_once(portal):
    """`send` only queues, even on the loop's thread; `async def` subscribers run on the loop."""
    handled = threading.Event()
    loops = []

    async def handle(message):
        loops.append(asyncio.get_running_loop())
        handled.set()

    with ThreadPoolExecutor(1) as executor:
        channel = DirectChannel("c", executor=executor, portal=portal)
        channel.subscribe(handle)
        assert channel.is_synchronous
        assert channel.send(MESSAGE)
        assert handled.wait(10)
    assert loops == [portal.loop]


def test_executor_without_a_portal_uses_its_own_loop():
    """A thread of the executor runs `async def` subscribers."""
    calls = []

    async def handle(message):
        await asyncio.sleep(0)
        calls.append(message)

    with ThreadPoolExecutor(1) as executor:
        channel = DirectChannel("c", executor=executor)
        channel.subscribe(handle)
        assert channel.send(MESSAGE)
    assert calls == [MESSAGE]


def test_plain_function_may_return_a_coroutine():
    """`asend` awaits it; `send` says that the subscriber should be `async def`."""
    calls = []

    async def handle(message, log):
        await asyncio.sleep(0)
        log.append(message)

    channel = DirectChannel("c")
    channel.subscribe(lambda message: handle(message, calls))
    assert asyncio.run(channel.asend(MESSAGE))
    assert calls == [MESSAGE]
    with pytest.raises(BlockingSendError, match="make it `async def`"):
        channel.send(MESSAGE)


def test_repr_of_portal_and_channel(portal):
    """Portal and channel tell what they are."""
    assert repr(portal).startswith("LoopPortal(<")
    assert repr(DirectChannel("c")) == "DirectChannel('c')"


class TakesLists:
    """Handles lists, and fails at `bad`."""

    def __init__(self):
        self.calls = []

    async def handle_message(self, message):
        self.calls.append(message.payload)

    async def handle_messages(self, messages):
        self.calls.append([message.payload for message in messages])
        return next(((message, ValueError("no")) for message in messages if message.payload == "bad"), None)


def test_list_is_passed_to_a_handler_of_lists():
    """Unless an interceptor must see each message."""
    channel, handler = DirectChannel("c"), TakesLists()
    channel.subscribe(handler)
    asyncio.run(channel.asend_all([Message("a"), Message("b")]))
    channel.add_interceptor(Renaming())
    asyncio.run(channel.asend_all([Message("a"), Message("b")]))
    assert handler.calls == [["a", "b"], "A", "B"]


def test_failed_message_of_a_list_is_named():
    """As if it had been sent alone."""
    channel, bad = DirectChannel("c"), Message("bad")
    channel.subscribe(TakesLists())
    with pytest.raises(MessageHandlingError, match="no") as caught:
        asyncio.run(channel.asend_all([Message("a"), bad]))
    assert caught.value.failed_message is bad
    assert isinstance(caught.value.__cause__, ValueError)


def test_list_is_sent_up_to_the_first_failure():
    """A handler of single messages gets them one by one."""
    handled = []

    async def handle(message):
        handled.append(message.payload)
        if message.payload == "bad":
            raise ValueError("no")

    channel = DirectChannel("c")
    channel.subscribe(handle)
    with pytest.raises(MessageHandlingError):
        asyncio.run(channel.asend_all([Message("a"), Message("bad"), Message("b")]))
    assert handled == ["a", "bad"]


class Renaming(ChannelInterceptor):
    """Converts payloads to upper case."""

    def pre_send(self, message, channel):
        return message.with_payload(message.payload.upper())
