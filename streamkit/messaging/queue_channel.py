"""The channel that keeps its messages until somebody receives them."""

import asyncio
import concurrent.futures
from collections import deque
from concurrent.futures import Future
from threading import Lock
from typing import TypeAlias, TypeVar

from streamkit.errors import BlockingSendError, MessagingError
from streamkit.messaging.channel import InterceptableChannel, none_if_indefinite, running_loop
from streamkit.messaging.handler import drive
from streamkit.messaging.message import Message
from streamkit.messaging.portal import Portal

R = TypeVar("R")
Receiver: TypeAlias = Future[Message[object]]
Sender: TypeAlias = tuple[Future[bool], Message[object]]


class QueueChannel(InterceptableChannel):
    """Keeps up to `capacity` messages; sending to a full one waits, as receiving from an empty one does.

    Threads and loops may share it: both wait on the same futures.
    """

    def __init__(self, name: str, *, capacity: int | None = None, portal: Portal | None = None) -> None:
        """Makes an empty channel.

        Args:
            name: The name errors know it by.
            capacity: How many messages it keeps; None: any number.
            portal: The way onto the application's loop, for `async def` interceptors.
        """
        super().__init__(name, portal=portal)
        if capacity is not None and capacity < 1:
            raise ValueError(f"capacity {capacity} of channel {name!r}: at least 1, or None for any number")
        self._capacity = capacity
        # Invariants, under the lock: somebody waits to receive only while nothing is queued, and waits
        # to send only while the queue is full.
        self._lock = Lock()
        self._queued: deque[Message[object]] = deque()
        self._receivers: deque[Receiver] = deque()
        self._senders: deque[Sender] = deque()

    def __len__(self) -> int:
        return len(self._queued)

    def __bool__(self) -> bool:
        return True

    def send(self, message: Message[object], timeout: float | None = None) -> bool:
        """True when queued; False when stopped, or when it stayed full for `timeout` seconds.

        Raises:
            BlockingSendError: It is full and this thread runs a loop, or an interceptor is `async def`
                and no other thread runs the application's loop.
        """
        if not self.is_synchronous:
            return super().send(message, timeout)
        return drive(self._chain.send(message, self, self._put_in_thread, timeout))

    def receive(self, timeout: float | None = None) -> Message[object] | None:
        """The oldest message; None when there was none within `timeout` seconds (None: wait for one).

        Raises:
            MessagingError: There is none, and waiting would block the loop this thread runs.
        """
        if not self._chain.before_receive(self):
            return None
        message = self._take_queued()
        if message is None and timeout != 0:
            if running_loop() is not None:
                raise MessagingError(
                    f"receive on the empty channel {self.name!r} would block this thread's loop: "
                    "use `await channel.areceive()` here."
                )
            message = self._wait_in_thread(self._take(), timeout)
        return None if message is None else self._chain.after_receive(message, self)

    async def areceive(self, timeout: float | None = None) -> Message[object] | None:
        """The oldest message; None when there was none within `timeout` seconds (None: wait for one)."""
        if not self._chain.before_receive(self):
            return None
        message = self._take_queued()
        if message is None and timeout != 0:
            waiting = self._take()
            try:
                async with asyncio.timeout(none_if_indefinite(timeout)):
                    message = await asyncio.wrap_future(waiting)
            except TimeoutError:
                message = None if self._given_up(waiting) else waiting.result()
            except asyncio.CancelledError:
                if not self._given_up(waiting):
                    self._put_back(waiting.result())
                raise
        return None if message is None else self._chain.after_receive(message, self)

    def clear(self) -> list[Message[object]]:
        """Empties the channel; what was in it."""
        cleared: list[Message[object]] = []
        while (message := self._take_queued()) is not None:
            cleared.append(message)
        return cleared

    async def _do_send(self, message: Message[object], timeout: float | None) -> bool:
        waiting = self._put(message)
        if waiting is None:
            return True
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.wrap_future(waiting)
        except TimeoutError:
            return not self._given_up(waiting)
        except asyncio.CancelledError:
            self._given_up(waiting)
            raise

    async def _put_in_thread(self, message: Message[object], timeout: float | None) -> bool:
        """As `_do_send`, for a thread without a loop: it blocks instead of waiting."""
        waiting = self._put(message)
        if waiting is None:
            return True
        if running_loop() is not None and timeout != 0:
            self._given_up(waiting)
            raise BlockingSendError(
                f"channel.send on the full channel {self.name!r} would block this thread's loop: "
                "use `await channel.asend(message)` here.",
                message,
            )
        return self._wait_in_thread(waiting, timeout) is True

    def _put(self, message: Message[object]) -> "Future[bool] | None":
        """Queues or hands over `message`; when the queue is full, the future that says when that happened."""
        with self._lock:
            if self._hand_over(message):
                return None
            if self._capacity is None or len(self._queued) < self._capacity:
                self._queued.append(message)
                return None
            waiting: Future[bool] = Future()
            self._senders.append((waiting, message))
            return waiting

    def _take_queued(self) -> Message[object] | None:
        """The oldest message, or None."""
        with self._lock:
            return self._pop() if self._queued else None

    def _take(self) -> Receiver:
        """The future that has the oldest message, or will have the next one."""
        with self._lock:
            receiver: Receiver = Future()
            if self._queued:
                receiver.set_result(self._pop())
            else:
                self._receivers.append(receiver)
            return receiver

    def _pop(self) -> Message[object]:
        """The oldest message; the sender that waited longest gets its place. The lock is held."""
        message = self._queued.popleft()
        while self._senders:
            sender, sent = self._senders.popleft()
            if sender.set_running_or_notify_cancel():
                self._queued.append(sent)
                sender.set_result(True)
                break
        return message

    def _put_back(self, message: Message[object]) -> None:
        with self._lock:
            if not self._hand_over(message):
                self._queued.appendleft(message)

    def _hand_over(self, message: Message[object]) -> bool:
        """True when somebody was waiting for `message` and has it now; the lock is held."""
        while self._receivers:
            receiver = self._receivers.popleft()
            if receiver.set_running_or_notify_cancel():
                receiver.set_result(message)
                return True
        return False

    def _given_up(self, waiting: "Future[R]") -> bool:
        """True when nobody waits on the future any more; False when it has its result already."""
        if not waiting.cancel():
            return False
        with self._lock:
            self._receivers = deque(each for each in self._receivers if each is not waiting)
            self._senders = deque(each for each in self._senders if each[0] is not waiting)
        return True

    def _wait_in_thread(self, waiting: "Future[R]", timeout: float | None) -> R | None:
        """The future's result; None when it did not come in time, and then it never will."""
        try:
            return waiting.result(none_if_indefinite(timeout))
        except concurrent.futures.TimeoutError:
            return None if self._given_up(waiting) else waiting.result()
