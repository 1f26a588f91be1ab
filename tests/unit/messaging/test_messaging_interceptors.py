"""Interceptors: the calls of their hooks, changed and stopped messages."""

import asyncio

import pytest

from streamkit.errors import MessageHandlingError
from streamkit.messaging import (
    ChannelInterceptor,
    DirectChannel,
    GlobalChannelInterceptors,
    Message,
    QueueChannel,
)

MESSAGE = Message("a")


class Noting(ChannelInterceptor):
    """Records every call of its hooks."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log

    def pre_send(self, message, channel):
        self.log.append(f"{self.name} pre")
        return message

    def post_send(self, message, channel, sent):
        self.log.append(f"{self.name} post {sent}")

    def after_send_completion(self, message, channel, sent, error):
        self.log.append(f"{self.name} after {sent} {type(error).__name__}")


class Stopping(Noting):
    def pre_send(self, message, channel):
        super().pre_send(message, channel)


def channel_with(*interceptors, handler=lambda message: None):
    channel = DirectChannel("c")
    channel.subscribe(handler)
    for interceptor in interceptors:
        channel.add_interceptor(interceptor)
    return channel


def test_order_of_hooks():
    """`pre_send` and `post_send` in order, the completion in reverse."""
    log = []
    assert channel_with(Noting("1", log), Noting("2", log)).send(MESSAGE)
    assert log == [
        "1 pre",
        "2 pre",
        "1 post True",
        "2 post True",
        "2 after True NoneType",
        "1 after True NoneType",
    ]


def test_interceptor_can_stop_a_message():
    """None from `pre_send` stops it; only interceptors that passed it on get the completion."""
    log, calls = [], []
    channel = channel_with(Noting("1", log), Stopping("2", log), Noting("3", log), handler=calls.append)
    assert channel.send(MESSAGE) is False
    assert log == ["1 pre", "2 pre", "1 after False NoneType"]
    assert calls == []


def test_interceptor_can_replace_a_message():
    """The result of `pre_send` is sent and passed to later hooks."""
    calls, seen = [], []

    class Replacing(ChannelInterceptor):
        def pre_send(self, message, channel):
            return message.with_payload("b")

        def post_send(self, message, channel, sent):
            seen.append(message)

    assert channel_with(Replacing(), handler=calls.append).send(MESSAGE)
    assert calls == seen == [Message("b")]


def test_completion_gets_the_error_of_a_failed_send():
    """There is no `post_send`; the sender gets the error too."""
    log = []

    def failing(message):
        raise ValueError

    with pytest.raises(MessageHandlingError):
        channel_with(Noting("1", log), Noting("2", log), handler=failing).send(MESSAGE)
    assert log == [
        "1 pre",
        "2 pre",
        "2 after False MessageHandlingError",
        "1 after False MessageHandlingError",
    ]


def test_error_in_pre_send_ends_the_send():
    """Earlier interceptors get the completion."""
    log, calls = [], []

    class Failing(ChannelInterceptor):
        def pre_send(self, message, channel):
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        channel_with(Noting("1", log), Failing(), handler=calls.append).send(MESSAGE)
    assert log == ["1 pre", "1 after False ValueError"]
    assert calls == []


def test_error_in_a_completion_is_only_logged(caplog):
    """The sender and other completions are not affected."""
    log = []

    class Failing(ChannelInterceptor):
        def after_send_completion(self, message, channel, sent, error):
            raise ValueError("late")

    assert channel_with(Noting("1", log), Failing()).send(MESSAGE)
    assert log[-1] == "1 after True NoneType"
    assert "late" in caplog.text


def test_async_hooks():
    """Hooks may be `async def`; the channel is then asynchronous."""
    log = []

    class Async(ChannelInterceptor):
        async def pre_send(self, message, channel):
            await asyncio.sleep(0)
            return message.with_header("x", 1)

        async def post_send(self, message, channel, sent):
            log.append(sent)

        async def after_send_completion(self, message, channel, sent, error):
            log.append(error)

    calls = []
    channel = channel_with(Async(), handler=calls.append)
    assert not channel.is_synchronous
    assert asyncio.run(channel.asend(MESSAGE))
    assert calls == [Message("a", {"x": 1})]
    assert log == [True, None]


def test_interceptors_are_added_and_removed():
    """Last or at an index; removed by identity."""
    first, second = ChannelInterceptor(), ChannelInterceptor()
    channel = channel_with(second)
    channel.add_interceptor(first, index=0)
    assert channel.interceptors == (first, second)
    assert channel.remove_interceptor(second) is True
    assert channel.remove_interceptor(second) is False
    assert channel.interceptors == (first,)
    assert channel.send(MESSAGE)


def test_intercepting_receive():
    """A receive can be stopped before, and its message changed or dropped afterwards."""

    class Receiving(ChannelInterceptor):
        open = False

        def pre_receive(self, channel):
            return self.open

        def post_receive(self, message, channel):
            return None if message.payload == "secret" else message.with_header("seen", True)

    gate = Receiving()
    channel = QueueChannel("c")
    channel.add_interceptor(gate)
    channel.send(MESSAGE)
    assert channel.receive(0) is None
    gate.open = True
    assert channel.receive(0) == Message("a", {"seen": True})
    channel.send(Message("secret"))
    assert channel.receive(0) is None


def test_global_interceptors():
    """Each channel gets those whose first matching pattern does not exclude it, in their order."""
    everywhere, orders, not_internal = ChannelInterceptor(), ChannelInterceptor(), ChannelInterceptor()
    registry = GlobalChannelInterceptors()
    registry.add(everywhere, order=10)
    registry.add(orders, "order*", "sales")
    registry.add(not_internal, "!internal*", "*", order=-1)
    assert registry.matching("orders") == [not_internal, orders, everywhere]
    assert registry.matching("internal.x") == [everywhere]
    assert registry.matching("sales") == [not_internal, orders, everywhere]
