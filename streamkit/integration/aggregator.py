"""The aggregator: makes one message of several that belong together."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from streamkit.messaging.headers import CORRELATION_ID, SEQUENCE_NUMBER, SEQUENCE_SIZE
from streamkit.messaging.message import Message
from streamkit.messaging.message_channel import MessageChannel

__all__ = ["Aggregator"]

logger = logging.getLogger(__name__)

Group = Sequence[Message[object]]


@dataclass(slots=True)
class _Open:
    """A group that is not complete yet."""

    messages: list[Message[object]] = field(default_factory=list)
    expiry: asyncio.TimerHandle | None = None


def by_correlation_id(message: Message[object]) -> object:
    """Return what a splitter wrote."""
    return message.headers.get(CORRELATION_ID)


def is_complete(group: Group) -> bool:
    """Return whether all parts of what a splitter split are there."""
    return len(group) == group[0].headers.get(SEQUENCE_SIZE)


def payloads(group: Group) -> object:
    """Return the list of the payloads, in the order a splitter numbered them."""
    return [message.payload for message in sorted(group, key=_place)]


class Aggregator:
    """Collects messages into groups and sends one message for each group that is complete.

    Groups are kept in memory: messages count as handled as soon as they are collected, so those of an incomplete group
    are lost with the process.
    """

    def __init__(
        self,
        output: MessageChannel,
        *,
        correlate: Callable[[Message[object]], object] = by_correlation_id,
        release: Callable[[Group], bool] = is_complete,
        combine: Callable[[Group], object] = payloads,
        timeout: timedelta | None = None,
        expired: MessageChannel | None = None,
    ) -> None:
        """Make an aggregator; without more than an output it puts together what a splitter has split.

        Args:
            output: Where the result goes, with the headers of the group's first message.
            correlate: Says which group a message belongs to.
            release: Says whether a group is complete.
            combine: Makes the payload of the result.
            timeout: How long a group may wait for its next message; None: for ever.
            expired: Where the messages of a group go that waited too long, one by one; None drops them.
        """
        self._output = output
        self._correlate = correlate
        self._release = release
        self._combine = combine
        self._timeout = timeout
        self._expired = expired
        self._groups: dict[object, _Open] = {}
        self._discarding: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """How many groups are open."""
        return len(self._groups)

    async def handle_message(self, message: Message[object]) -> None:
        """Collect ``message``; send the result if that completes its group.

        A message that fails, because the result could not be sent for instance, is not in its group any more: it may
        come again.
        """
        key = self._correlate(message)
        group = self._groups.setdefault(key, _Open())
        group.messages.append(message)
        if group.expiry is not None:
            group.expiry.cancel()
        try:
            if self._release(group.messages):
                del self._groups[key]
                await self._output.asend(self._result(group.messages))
                return
        except BaseException:
            self._take_back(key, group, message)
            raise
        self._wait_for_more(key, group)

    def _result(self, group: Group) -> Message[object]:
        headers = group[0].headers.user_values()
        for name in (CORRELATION_ID, SEQUENCE_NUMBER, SEQUENCE_SIZE):
            headers.pop(name, None)
        return Message(self._combine(group), headers)

    def _take_back(self, key: object, group: _Open, message: Message[object]) -> None:
        """Leave a group as it was before ``message`` came; what came while its result was sent is added to it."""
        group.messages = [each for each in group.messages if each is not message]
        other = self._groups.get(key, group)
        if other is not group:
            if other.expiry is not None:
                other.expiry.cancel()
            group.messages += other.messages
        if group.messages:
            self._groups[key] = group
            self._wait_for_more(key, group)
        else:
            self._groups.pop(key, None)

    def _wait_for_more(self, key: object, group: _Open) -> None:
        if self._timeout is not None:
            loop = asyncio.get_running_loop()
            group.expiry = loop.call_later(self._timeout.total_seconds(), self._give_up, key)

    def _give_up(self, key: object) -> None:
        group = self._groups.pop(key)
        logger.warning("A group of %d message(s) never became complete: %r", len(group.messages), key)
        if self._expired is not None:
            task = asyncio.get_running_loop().create_task(self._discard(self._expired, group.messages))
            self._discarding.add(task)
            task.add_done_callback(self._discarding.discard)

    @staticmethod
    async def _discard(expired: MessageChannel, messages: Group) -> None:
        for message in messages:
            try:
                await expired.asend(message)
            except Exception:  # nobody waits for the outcome
                logger.exception("A message of an incomplete group could not be sent to %r", expired.name)


def _place(message: Message[object]) -> int:
    number = message.headers.get(SEQUENCE_NUMBER)
    return number if isinstance(number, int) else 0
