"""The channel that keeps its messages until they are received."""

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
    """A channel that keeps up to `capacity` messages. A send to a full channel waits, as does a receive from an empty
    one.

    Threads and loops may share a channel: both wait on the same futures.
    """

    def __init__(self, name: str, *, capacity: int | None = None, portal: Portal | None = None) -> None:
        """Make an empty channel.

        Args:
            name: The name in errors.
            capacity: The number of messages that it keeps; None: any number.
            portal: The way onto the application's loop, for `async def` interceptors.
        """
        super().__init__(name, portal=portal)
        if capacity is not None and capacity < 1:
            raise ValueError(f"capacity {capacity} of channel {name!r}: at least 1, or None for any number")
        self._capacity = capacity
        # Invariants, under the lock: a receiver waits only while nothing is queued, and a sender waits
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
        """Return True if the message was queued; False if it was stopped, or the channel stayed full for `timeout`
        seconds.

        Raises:
            BlockingSendError: The channel is full and this thread runs a loop, or an interceptor is `async def`
                and no other thread runs the application's loop.
        """
        if not self.is_synchronous:
            return super().send(message, timeout)
        return drive(self._chain.send(message, self, self._put_in_thread, timeout))

    def receive(self, timeout: float | None = None) -> Message[object] | None:
        """Remove and return the oldest message; None if there was none within `timeout` seconds (None: wait for one).

        Raises:
            MessagingError: The channel is empty, and waiting would block the loop of this thread.
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
        """Remove and return the oldest message; None if there was none within `timeout` seconds (None: wait for
        one)."""
        if not self._chain.before_receive(self):
            return None
        message = self._take_queued()
        if message is None and timeout != 0:
            import asyncio

            waiting = self._take()
            try:
                async with asyncio.timeout(none_if_indefinite(timeout)):
                    message = await asyncio.wrap_future(waiting)
            except TimeoutError:
                # The message may have come when the time ended: a wait that cannot be cancelled has its message.
                message = None if self._cancel_wait(waiting) else waiting.result()
            except asyncio.CancelledError:
                if not self._cancel_wait(waiting):
                    # The message came at the moment of the cancellation. It returns to the front, because it is the
                    # oldest.
                    self._put_back(waiting.result())
                raise
        return None if message is None else self._chain.after_receive(message, self)

    def clear(self) -> list[Message[object]]:
        """Remove and return all messages."""
        cleared: list[Message[object]] = []
        while (message := self._take_queued()) is not None:
            cleared.append(message)
        return cleared

    async def _do_send(self, message: Message[object], timeout: float | None) -> bool:
        waiting = self._put(message)
        if waiting is None:
            return True
        import asyncio

        try:
            async with asyncio.timeout(timeout):
                return await asyncio.wrap_future(waiting)
        except TimeoutError:
            return not self._cancel_wait(waiting)
        except asyncio.CancelledError:
            self._cancel_wait(waiting)
            raise

    async def _put_in_thread(self, message: Message[object], timeout: float | None) -> bool:
        """Do the work of `_do_send` in a thread without a loop: block instead of awaiting."""
        waiting = self._put(message)
        if waiting is None:
            return True
        if running_loop() is not None and timeout != 0:
            self._cancel_wait(waiting)
            raise BlockingSendError(
                f"channel.send on the full channel {self.name!r} would block this thread's loop: "
                "use `await channel.asend(message)` here.",
                message,
            )
        return self._wait_in_thread(waiting, timeout) is True

    def _put(self, message: Message[object]) -> "Future[bool] | None":
        """Queue `message` or pass it to a receiver; if the queue is full, return a future that is done when that has
        happened."""
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
        """Remove and return the oldest message, or None."""
        with self._lock:
            return self._pop() if self._queued else None

    def _take(self) -> Receiver:
        """Return a future of the oldest message, or of the next one."""
        with self._lock:
            receiver: Receiver = Future()
            if self._queued:
                receiver.set_result(self._pop())
            else:
                self._receivers.append(receiver)
            return receiver

    def _pop(self) -> Message[object]:
        """Remove and return the oldest message; its place goes to the sender that has waited longest. The lock is
        held."""
        message = self._queued.popleft()
        while self._senders:
            sender, sent = self._senders.popleft()
            # As in `_hand_over`: a sender that has given up must not find its message queued.
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
        """Pass `message` to a waiting receiver; return False if there is none. The lock is held."""
        while self._receivers:
            receiver = self._receivers.popleft()
            # True: from here on `cancel` fails, so the receiver cannot give up a message that it was given. False:
            # the receiver has given up before.
            if receiver.set_running_or_notify_cancel():
                receiver.set_result(message)
                return True
        return False

    def _cancel_wait(self, waiting: "Future[R]") -> bool:
        """Cancel a wait; return False if the future has its result already."""
        if not waiting.cancel():
            return False
        with self._lock:
            self._receivers = deque(each for each in self._receivers if each is not waiting)
            self._senders = deque(each for each in self._senders if each[0] is not waiting)
        return True

    def _wait_in_thread(self, waiting: "Future[R]", timeout: float | None) -> R | None:
        """Return the future's result; if it is not done within `timeout` seconds, cancel it and return None."""
        try:
            return waiting.result(none_if_indefinite(timeout))
        except concurrent.futures.TimeoutError:
            return None if self._cancel_wait(waiting) else waiting.result()
