"""Interceptors: see, change or stop what passes through a channel."""

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
    """Hooks around a channel's work; each does nothing until overridden, by a `def` or an `async def`.

    Sending calls `pre_send` of each interceptor in order, then sends, then `post_send` in order. Whatever
    happened, `after_send_completion` ends it in reverse order, for those whose `pre_send` passed the message
    on. Receiving, where a channel is received from, goes the same way.
    """

    def pre_send(self, message: Message[object], channel: MessageChannel) -> Hooked | Awaitable[Hooked]:
        """The message to send instead; None stops it, and the sender is told False."""
        return message

    def post_send(
        self, message: Message[object], channel: MessageChannel, sent: bool
    ) -> Awaitable[None] | None:
        """The message was sent, or timed out; not called when sending raised."""

    def after_send_completion(
        self, message: Message[object], channel: MessageChannel, sent: bool, error: BaseException | None
    ) -> Awaitable[None] | None:
        """The sending is over; `error` is what it raised, if it did. Raising here is only logged."""

    def pre_receive(self, channel: MessageChannel) -> bool:
        """False: nothing is received, and the receiver is given None."""
        return True

    def post_receive(self, message: Message[object], channel: MessageChannel) -> Hooked:
        """The message the receiver gets instead; None keeps it from the receiver."""
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
        """Sends `message` through `do_send` and all hooks; False when a hook stopped it or it timed out."""
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
        """True when every interceptor lets the channel be received from."""
        return all(interceptor.pre_receive(channel) for interceptor in self.interceptors)

    def after_receive(self, message: Message[object], channel: MessageChannel) -> Hooked:
        """The message as the interceptors leave it; None when one keeps it."""
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
        """`interceptor` will be given to the channels that match one of `patterns`, smallest `order` first.

        A pattern is a name with `*` and `?`; one that starts with `!` excludes what it matches. The first
        pattern that matches a name decides; no pattern at all means every channel.
        """
        self._entries.append((order, patterns or ("*",), interceptor))
        self._entries.sort(key=lambda entry: entry[0])

    def matching(self, channel_name: str) -> list[ChannelInterceptor]:
        """The interceptors for the channel of that name, in their order."""
        return [interceptor for _, patterns, interceptor in self._entries if _matches(channel_name, patterns)]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    for pattern in patterns:
        if fnmatchcase(name, pattern.removeprefix("!")):
            return not pattern.startswith("!")
    return False
