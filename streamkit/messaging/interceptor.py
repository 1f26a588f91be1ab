"""Interceptors, which see, change or stop the messages of a channel."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias

from streamkit.messaging.handler import is_async
from streamkit.messaging.message import Message
from streamkit.messaging.message_channel import MessageChannel

logger = logging.getLogger(__name__)

Hooked: TypeAlias = Message[object] | None


class ChannelInterceptor:
    """Hooks around sending and receiving; override them by `def` or `async def`.

    A send calls `pre_send` of each interceptor in order, then sends, then `post_send` in order. Finally, also
    after a failure, it calls `after_send_completion` in reverse order, for those whose `pre_send` passed the message
    on. A receive works the same way.
    """

    def pre_send(self, message: Message[object], channel: MessageChannel) -> Hooked | Awaitable[Hooked]:
        """Return the message to send; None stops it, and the sender's call returns False."""
        return message

    def post_send(self, message: Message[object], channel: MessageChannel, sent: bool) -> Awaitable[None] | None:
        """Called when the message was sent, or timed out; not called if sending raised."""

    def after_send_completion(
        self, message: Message[object], channel: MessageChannel, sent: bool, error: BaseException | None
    ) -> Awaitable[None] | None:
        """Called at the end of a send, with its exception, if any. An exception raised here is only logged."""

    def pre_receive(self, channel: MessageChannel) -> bool:
        """Return whether to receive; if False, the receiver gets None."""
        return True

    def post_receive(self, message: Message[object], channel: MessageChannel) -> Hooked:
        """Return the message for the receiver; None withholds it."""
        return message


class InterceptorChain:
    """The interceptors of one channel, each hook resolved to those that override it."""

    __slots__ = ("_after", "_post", "_pre", "interceptors", "is_synchronous")

    def __init__(self, interceptors: Sequence[ChannelInterceptor] = ()) -> None:
        self.interceptors = tuple(interceptors)
        self._pre = tuple(i for i in self.interceptors if _overrides(i, "pre_send"))
        self._post = tuple(i for i in self.interceptors if _overrides(i, "post_send"))
        self._after = tuple(i for i in self.interceptors if _overrides(i, "after_send_completion"))
        self.is_synchronous = not any(
            is_async(getattr(interceptor, hook))
            for interceptor in self.interceptors
            for hook in ("pre_send", "post_send", "after_send_completion")
        )

    def __bool__(self) -> bool:
        return bool(self.interceptors)

    async def send(
        self,
        message: Message[object],
        channel: MessageChannel,
        do_send: Callable[[Message[object], float | None], Awaitable[bool]],
        timeout: float | None,
    ) -> bool:
        """Send `message` through `do_send` and all hooks; return False if a hook stopped it or it timed out."""
        stopped_by: ChannelInterceptor | None = None
        error: BaseException | None = None
        sent = False
        try:
            for interceptor in self._pre:
                stopped_by = interceptor
                passed = interceptor.pre_send(message, channel)
                if passed is not None and not isinstance(passed, Message):
                    passed = await passed
                if passed is None:
                    return False
                message = passed
            stopped_by = None
            sent = await do_send(message, timeout)
            for interceptor in self._post:
                waiting = interceptor.post_send(message, channel, sent)
                if waiting is not None:
                    await waiting
            return sent
        except BaseException as raised:
            error = raised
            raise
        finally:
            if self._after:
                await self._complete(message, channel, sent, error, stopped_by)

    async def _complete(
        self,
        message: Message[object],
        channel: MessageChannel,
        sent: bool,
        error: BaseException | None,
        stopped_by: ChannelInterceptor | None,
    ) -> None:
        passed = self.interceptors
        if stopped_by is not None:
            passed = passed[: passed.index(stopped_by)]
        for interceptor in reversed(passed):
            if interceptor not in self._after:
                continue
            try:
                waiting = interceptor.after_send_completion(message, channel, sent, error)
                if waiting is not None:
                    await waiting
            except Exception:
                logger.exception("%r.after_send_completion failed on %r", interceptor, channel)

    def before_receive(self, channel: MessageChannel) -> bool:
        """Return whether every interceptor allows the receive."""
        return all(interceptor.pre_receive(channel) for interceptor in self.interceptors)

    def after_receive(self, message: Message[object], channel: MessageChannel) -> Hooked:
        """Return the message as the interceptors change it; None if one withholds it."""
        passed: Hooked = message
        for interceptor in self.interceptors:
            passed = interceptor.post_receive(message, channel)
            if passed is None:
                return None
            message = passed
        return message


def _overrides(interceptor: ChannelInterceptor, hook: str) -> bool:
    return getattr(type(interceptor), hook) is not getattr(ChannelInterceptor, hook)


class GlobalChannelInterceptors:
    """Interceptors for every channel whose name matches a pattern."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[int, tuple[str, ...], ChannelInterceptor]] = []

    def add(self, interceptor: ChannelInterceptor, *patterns: str, order: int = 0) -> None:
        """Add an interceptor for the channels that match one of `patterns`, smallest `order` first.

        A pattern is a name with `*` and `?`. A pattern that starts with `!` excludes the channels that it matches. The
        first pattern that matches a name decides; without patterns the interceptor is for every channel.
        """
        self._entries.append((order, patterns or ("*",), interceptor))
        self._entries.sort(key=lambda entry: entry[0])

    def matching(self, channel_name: str) -> list[ChannelInterceptor]:
        """Return the interceptors for the channel of that name, in their order."""
        return [interceptor for _, patterns, interceptor in self._entries if _matches(channel_name, patterns)]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    for pattern in patterns:
        if fnmatchcase(name, pattern.removeprefix("!")):
            return not pattern.startswith("!")
    return False
