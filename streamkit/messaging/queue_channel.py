"""The channel that keeps its messages until somebody receives them."""

import asyncio
import concurrent.futures
from collections import deque
from concurrent.futures import Future
from threading import Lock
from typing import TypeAlias, TypeVar

from streamkit.errors import BlockingSendError, MessagingError
from streamkit.messaging.channel import InterceptableChannel, running_loop
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
        """The oldest message; None when there was none within `timeout` seconds (None: wait for one)."""
        if not self._chain.before_receive(self):
            return None
        message, waiting = self._take()
        if waiting is not None and timeout == 0:
            message = None if waiting.cancel() else waiting.result()
        elif waiting is not None:
            if running_loop() is not None:
                waiting.cancel()
                raise MessagingError(
                    f"receive on the empty channel {self.name!r} would block this thread's loop: "
                    "use `await channel.areceive()` here."
                )
            message = _result_in_thread(waiting, timeout)
        return None if message is None else self._chain.after_receive(message, self)

    async def areceive(self, timeout: float | None = None) -> Message[object] | None:
        """The oldest message; None when there was none within `timeout` seconds (None: wait for one)."""
        if not self._chain.before_receive(self):
            return None
        message, waiting = self._take()
        if waiting is not None:
            try:
                async with asyncio.timeout(timeout):
                    message = await asyncio.wrap_future(waiting)
            except TimeoutError:
                message = None if waiting.cancel() else waiting.result()
            except asyncio.CancelledError:
                if not waiting.cancel():
                    self._put_back(waiting.result())
                raise
        return None if message is None else self._chain.after_receive(message, self)

    def clear(self) -> list[Message[object]]:
        """Empties the channel; what was in it."""
        cleared: list[Message[object]] = []
        while True:
            message, waiting = self._take()
            if waiting is not None:
                waiting.cancel()
                return cleared
            if message is not None:
                cleared.append(message)

    async def _do_send(self, message: Message[object], timeout: float | None) -> bool:
        waiting = self._put(message)
        if waiting is None:
            return True
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.wrap_future(waiting)
        except TimeoutError:
            return not waiting.cancel()
        except asyncio.CancelledError:
            waiting.cancel()
            raise

    async def _put_in_thread(self, message: Message[object], timeout: float | None) -> bool:
        """As `_do_send`, for a thread without a loop: it blocks instead of waiting."""
        waiting = self._put(message)
        if waiting is None:
            return True
        if running_loop() is not None and timeout != 0:
            waiting.cancel()
            raise BlockingSendError(
                f"channel.send on the full channel {self.name!r} would block this thread's loop: "
                "use `await channel.asend(message)` here.",
                message,
            )
        return _result_in_thread(waiting, timeout) is True

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

    def _take(self) -> tuple[Message[object] | None, Receiver | None]:
        """The oldest message, or the future that will have the next one."""
        with self._lock:
            if not self._queued:
                receiver: Receiver = Future()
                self._receivers.append(receiver)
                return None, receiver
            message = self._queued.popleft()
            while self._senders:
                sender, sent = self._senders.popleft()
                if sender.set_running_or_notify_cancel():
                    self._queued.append(sent)
                    sender.set_result(True)
                    break
            return message, None

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


def _result_in_thread(waiting: "Future[R]", timeout: float | None) -> R | None:
    """The future's result; None when it did not come in time, and then it never will."""
    try:
        return waiting.result(None if timeout is None or timeout < 0 else timeout)
    except concurrent.futures.TimeoutError:
        return None if waiting.cancel() else waiting.result()
