"""Lets the application's loop do what a producer's thread does, as long as there are only records and acknowledgments.

No defect, but dear: a send wakes kafka-python's thread, which makes three rounds for it, and wakes the loop in turn.
With one message on its way at a time, as in a listener that awaits what it sends, that is most of what a send costs
(3.0.10 to 3.0.12). Here the thread lends its work to the loop::

    thread   connects, asks for metadata and a producer id, tries again, transactions, timers, closing
      │ ▲
      │ │   anything but the rule: the thread takes its work back, and lends it again afterwards
      ▼ │
    loop     records of one turn ─▶ one request;  a readable connection ─▶ acknowledgments

Only the one that has the work touches the connections. The thread looks twice a second whether timers are due, or the
loop is busy with something else while messages wait: then the thread takes the work back.
"""

import asyncio
import logging
import threading
import time
from typing import Any, Final

from binders.kafka.repairs.network import Network
from kafka.producer.transaction_manager import TransactionState

__all__ = ["SendingTurns"]

logger = logging.getLogger(__name__)

_LOOK: Final = 0.5
"""The seconds between two looks of the thread after what it has lent."""
_IS_FULL: Final = {"max_in_flight"}
"""What a connection says that has as many requests on their way as it may."""
_LONG_MS: Final = 3_600_000.0
"""How long the thread waits if nothing is due, in milliseconds: whatever comes wakes it."""


class SendingTurns:
    """The work of one producer's thread, done by the thread or by a loop."""

    def __init__(self, producer: Any) -> None:
        """Take over the rounds of a producer's thread; the loop does nothing before `lend`.

        Args:
            producer: A `KafkaProducer`.
        """
        config, state = producer.config, producer._transaction_manager
        self._sender = producer._sender
        self._client = self._sender._client
        self._network = self._client._net
        self._batches = producer._accumulator._batches
        self._muted = producer._accumulator.muted
        self._expires_after = config["delivery_timeout_ms"] / 1000
        self._state = state
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._descriptor = -1
        self._is_watched = False
        # Held while the loop works, and while it changes who does.
        self._guard = threading.Lock()
        self._is_lent = False
        self._is_flushing = False
        self._given_back = threading.Event()
        self._turns = 0
        # A transaction makes requests of its own, a batch that waits for more records needs timers, and compressing one
        # would hold the loop up.
        is_plain = state is None or not state.is_transactional()
        is_quick = not config["linger_ms"] and config["compression_type"] is None
        self._lends = is_plain and is_quick and isinstance(self._network, Network)
        if is_plain:
            self._sender.run_once = self._round
            self._sender.wakeup = self._wake

    # Called by the loop

    def lend(self) -> None:
        """Move the work to the running loop, if that can watch descriptors."""
        descriptor = getattr(self._network._selector, "fileno", None)
        if self._lends and descriptor is not None:
            self._descriptor = descriptor()
            self._loop_thread = threading.get_ident()
            self._loop = asyncio.get_running_loop()
            self._network.wakeup()

    def take_back(self) -> None:
        """Move the work back to the thread; call this before the producer is closed."""
        loop, self._loop = self._loop, None
        if loop is not None:
            self._give_back(loop)

    def _give_back(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._guard:
            self._is_lent = False
            if self._is_watched:
                self._is_watched = False
                loop.remove_reader(self._descriptor)
            self._given_back.set()
        self._network.wakeup()

    def _borrow(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._is_lent and self._loop is not None:
            try:
                loop.add_reader(self._descriptor, self._receive)
                self._is_watched = True
            except (NotImplementedError, OSError):  # the loop cannot watch it
                self._loop = None
                self._given_back.set()

    def _receive(self) -> None:
        """Read acknowledgments, and send what waited for them."""
        self._work(receives=True)

    def _flush(self) -> None:
        """Send the records of one turn of the loop."""
        self._is_flushing = False
        self._work(receives=False)

    def _work(self, *, receives: bool) -> None:
        loop = self._loop
        with self._guard:
            # Tasks of kafka-python's are left to the thread, since they may block: one may look up a name.
            if self._is_lent and not self._network._ready:
                self._turns += 1
                try:
                    if receives:
                        self._network.poll_without_timers()
                    if any(self._batches.values()):
                        self._sender._send_producer_data()
                except Exception:  # as in the thread, whose next round may succeed
                    logger.exception("A round of kafka-python's producer failed")
                if self._is_plain():
                    return
        if loop is None:
            self._network.wakeup()
        else:
            self._give_back(loop)

    # Called by the thread

    def _round(self) -> None:
        """Do one round of the thread's work, in the place of `Sender.run_once`."""
        loop = self._loop
        if loop is not None and self._is_plain():
            self._wait_for(loop)
        elif self._is_ready():
            self._client.poll(timeout_ms=self._sent())
        else:
            type(self._sender).run_once(self._sender)

    def _sent(self) -> float:
        """Send what may be sent, and return how long the next poll may wait, in milliseconds."""
        if any(self._batches.values()):
            timeout: float = self._sender._send_producer_data()
            if timeout > 0 or any(self._batches.values()):
                return timeout
        oldest = min((queue[0][0] for queue in self._sender._in_flight_batches.values() if queue), default=None)
        if oldest is None:
            return _LONG_MS
        left: float = oldest + self._expires_after - time.monotonic()
        return left * 1000 if left > 0 else self._sender._send_producer_data()

    def _wait_for(self, loop: asyncio.AbstractEventLoop) -> None:
        """Lend the work, and return when the loop has given it back or neglects it."""
        with self._guard:
            self._given_back.clear()
            self._is_lent = True
        try:
            loop.call_soon_threadsafe(self._borrow, loop)
        except RuntimeError:  # the loop is closed
            self._loop = None
        turns = -1
        while self._loop is not None and not self._given_back.wait(_LOOK):
            is_neglected = turns == self._turns and self._is_waiting()
            if is_neglected or self._is_due() or not self._sender._running:
                break
            turns = self._turns
        with self._guard:
            self._is_lent = False
        self._client.poll(timeout_ms=0)
        if self._is_ready():
            self._sent()

    def _is_due(self) -> bool:
        first = self._network._scheduled[:1]
        return bool(first) and bool(first[0][0] <= time.monotonic())

    def _is_waiting(self) -> bool:
        return any(self._batches.values()) or self._client.in_flight_request_count() > 0

    # Called by both

    def _wake(self) -> None:
        """Have records sent, in the place of `Sender.wakeup`."""
        loop = self._loop
        if not self._is_lent or loop is None or threading.get_ident() != self._loop_thread:
            self._network.wakeup()
        elif loop.is_closed():
            self._loop = None
            self._given_back.set()
        elif not self._is_flushing:
            self._is_flushing = True
            loop.call_soon(self._flush)

    def _is_ready(self) -> bool:
        """Return whether the producer may send, and has no other requests to make."""
        state, sender = self._state, self._sender
        if sender._topics_to_add:
            return False
        return state is None or (
            state._current_state is TransactionState.READY
            and not state._pending_requests
            and not state.has_in_flight_transactional_request()
            and state.has_producer_id()
        )

    def _is_plain(self) -> bool:
        """Return whether there are only acknowledgments to wait for, and records that wait for those."""
        if not self._sender._running or self._network._ready or not self._is_ready():
            return False
        # A thread that sends may add a partition meanwhile.
        return all(self._waits_for_others(key) for key, batches in list(self._batches.items()) if batches)

    def _waits_for_others(self, key: Any) -> bool:
        """Return whether a partition's next batch is sent after an acknowledgment: its own last one's or any one's."""
        if key in self._muted:
            return True
        connection = self._client._manager._conns.get(self._client.cluster.leader_for_partition(key))
        return connection is not None and connection.connected and connection.paused == _IS_FULL
