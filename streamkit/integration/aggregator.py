"""The aggregator, which makes one message of several that belong together."""

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
class _OpenGroup:
    """An incomplete group."""

    messages: list[Message[object]] = field(default_factory=list)
    expiry: asyncio.TimerHandle | None = None


def by_correlation_id(message: Message[object]) -> object:
    """Return the correlation id that a splitter wrote."""
    return message.headers.get(CORRELATION_ID)


def is_complete(group: Group) -> bool:
    """Return whether all parts of a split message are there."""
    return len(group) == group[0].headers.get(SEQUENCE_SIZE)


def payloads(group: Group) -> object:
    """Return the list of the payloads, in the order a splitter numbered them."""
    return [message.payload for message in sorted(group, key=_place)]


class Aggregator:
    """Collects messages into groups and sends one message for each group that is complete.

    Groups are kept in memory. A message counts as handled when it is collected, so messages of an incomplete group are
    lost with the process.
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
        """Make an aggregator; by default it joins the parts that a splitter has made.

        Args:
            output: The channel of the result, which has the headers of the group's first message.
            correlate: Returns the key of a message's group.
            release: Returns whether a group is complete.
            combine: Returns the payload of the result.
            timeout: The longest time that a group waits for its next message; None: no limit.
            expired: The channel for the messages of a group that waited too long; None drops them.
        """
        self._output = output
        self._correlate = correlate
        self._release = release
        self._combine = combine
        self._timeout = timeout
        self._expired = expired
        self._groups: dict[object, _OpenGroup] = {}
        self._discarding: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Return the number of incomplete groups."""
        return len(self._groups)

    async def handle_message(self, message: Message[object]) -> None:
        """Collect ``message``; send the result if that completes its group.

        A message that fails, for instance because the result could not be sent, is removed from its group, because it
        may be delivered again.
        """
        key = self._correlate(message)
        group = self._groups.setdefault(key, _OpenGroup())
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

    def _take_back(self, key: object, group: _OpenGroup, message: Message[object]) -> None:
        """Restore a group without ``message``, and add the messages that came while its result was sent."""
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

    def _wait_for_more(self, key: object, group: _OpenGroup) -> None:
        if self._timeout is not None:
            loop = asyncio.get_running_loop()
            group.expiry = loop.call_later(self._timeout.total_seconds(), self._give_up, key)

    def _give_up(self, key: object) -> None:
        group = self._groups.pop(key)
        logger.warning("An incomplete group of %d message(s) was given up: %r", len(group.messages), key)
        if self._expired is not None:
            task = asyncio.get_running_loop().create_task(self._discard(self._expired, group.messages))
            self._discarding.add(task)
            task.add_done_callback(self._discarding.discard)

    @staticmethod
    async def _discard(expired: MessageChannel, messages: Group) -> None:
        for message in messages:
            try:
                await expired.asend(message)
            except Exception:  # no caller waits for the outcome
                logger.exception("A message of an incomplete group could not be sent to %r", expired.name)


def _place(message: Message[object]) -> int:
    number = message.headers.get(SEQUENCE_NUMBER)
    return number if isinstance(number, int) else 0
