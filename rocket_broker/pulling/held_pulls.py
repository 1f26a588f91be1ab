"""Long polling: pulls that found nothing and wait for a message.

A held pull ends in one of four ways: a message it wants arrives, its time is up, its connection closes, or a
look every five seconds finds that something lies behind its offset after all. In the first, second and fourth
case it is run again, as a pull that may not be held any more, and that answers it.

Messages that arrive in one turn of the loop wake a pull once, after the last of them: one answer carries them
all. Pulls of a queue that let the same through are asked once for each message, however many they are; how
much a connection, an address, and all clients together may have a queue's every message compared is bounded.

There may be a quarter of a million pulls, all of one queue, or due at one moment. So whatever concerns many of them is
done in steps (`BackgroundSteps`), and one timer of the loop stands for all that are due::

    message ──► _arrived ──┐
    timer ─────────────────┼──► steps: forget a pull, run it again, and so on
    look, closed connection┘
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Protocol

from rocket_broker.filter.pull_filter import PullFilter
from rocket_broker.limits.refusal import Refusal
from rocket_broker.limits.shares import PARTS, Shares
from rocket_broker.loop.loop_steps import BackgroundSteps
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import PullMessageRequestHeader

__all__ = [
    "CHECK_SECONDS",
    "MAX_BYTES",
    "MAX_BYTES_PER_CONNECTION",
    "MAX_COST",
    "MAX_COST_OF_QUEUE",
    "PULL_SIZE",
    "HeldPull",
    "HeldPulls",
]

logger = logging.getLogger(__name__)

CHECK_SECONDS = 5.0
MAX_BYTES = 256 * 1024 * 1024
"""Bytes that the pulls of all connections take, as `HeldPull.size` reckons them: 250,000 of the usual ones."""
MAX_BYTES_PER_CONNECTION = 64 * 1024 * 1024
"""Bytes of one connection's pulls. Those of one address have a quarter of `MAX_BYTES`, which is as many."""
MAX_COST_OF_QUEUE = 16_384
"""Comparisons that a message costs at most because of the pulls that wait at its queue, under four milliseconds. Equal
filters count once: that is enough for 1,600 groups with ten comparisons each. One address has a quarter at most."""
MAX_COST = 4_096
"""Comparisons because of one connection's pulls at one queue. A client has one pull for each of its groups there."""
_MAX_SECONDS = 24 * 3600.0

_MOST_ARRIVALS = 10_000
"""Sends to one queue that have not been compared with what its pulls want. Beyond, all pulls are answered."""
_CODES_A_STEP = 256

QueueKey = tuple[str, int]
_Work = Generator[None, None, None]
_Arrival = tuple[int, Sequence[int]]
"""The first one's offset and the tags codes of messages that were stored together; without codes: any may be wanted."""


class Queues(Protocol):
    """What is needed of the store."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset the queue's next message will have."""

    def message_in_queue(self, topic: str, queue_id: int, offset: int) -> memoryview | None:
        """Return the record of a message."""


PULL_SIZE = 1024
"""About what one takes that brings no filter of its own."""
_CHARACTER_SIZE = 80
"""A filter on properties, compiled, takes so much for each of its characters; tags take less."""


class HeldPull:
    """One pull that waits: who asked, what for, at which queue, what it lets through, and how it is run again.

    Attributes:
        command: The request without its fields and body: what its answer needs.
        size: About how many bytes it takes.
        due: When its time is up, in seconds of the loop's time.
        is_held: Whether it waits.
    """

    __slots__ = ("command", "connection", "due", "filter", "header", "is_held", "key", "resume", "size")

    def __init__(
        self,
        connection: Connection,
        command: RemotingCommand,
        header: PullMessageRequestHeader,
        wanted: PullFilter,
        resume: "Callable[[HeldPull], None]",
    ) -> None:
        self.connection = connection
        self.command = RemotingCommand(command.code, command.opaque, command.flag, encoding=command.encoding)
        self.size = PULL_SIZE + _CHARACTER_SIZE * len(header.subscription or "")
        self.header = header
        self.key: QueueKey = (header.topic, header.queue_id)
        self.filter = wanted
        self.resume = resume
        self.due = 0.0
        self.is_held = False

    @property
    def place(self) -> str:
        """The queue where the pull waits, for people."""
        return f"{self.key[0]} queue {self.key[1]}"

    def __repr__(self) -> str:
        return f"HeldPull({self.header.consumer_group!r} at {self.key} from {self.header.queue_offset})"


class _OfConnection:
    """The pulls of one connection, their size, and what a message of each queue costs because of them."""

    __slots__ = ("costs", "pulls", "size")

    def __init__(self) -> None:
        self.pulls: dict[HeldPull, None] = {}
        self.costs: dict[QueueKey, int] = {}
        self.size = 0

    def remove(self, pull: HeldPull) -> None:
        del self.pulls[pull]
        self.size -= pull.size
        self.costs[pull.key] -= pull.filter.cost
        if not self.costs[pull.key]:
            del self.costs[pull.key]


class _Alike:
    """The pulls at one queue that let the same through, and how many of them are each address's."""

    __slots__ = ("addresses", "pulls")

    def __init__(self) -> None:
        # Dicts for sets: pulls are woken in the order they came, whatever their addresses in memory.
        self.pulls: dict[HeldPull, None] = {}
        self.addresses: Counter[str] = Counter()


class _AtQueue:
    """The pulls that wait at one queue.

    Attributes:
        alike: The pulls by what they let through.
        cost: How many comparisons a message takes.
        costs: How many a message takes because of each address; equal filters count once.
    """

    __slots__ = ("alike", "cost", "costs")

    def __init__(self) -> None:
        self.alike: dict[PullFilter, _Alike] = {}
        self.cost = 0
        self.costs: Counter[str] = Counter()

    def check_room(self, pull: HeldPull) -> None:
        """Return if a message may cost what it would with one more pull.

        Raises:
            Refusal: It may not.
        """
        alike, cost = self.alike.get(pull.filter), pull.filter.cost
        if alike is None and self.cost + cost > MAX_COST_OF_QUEUE:
            raise _busy(
                f"the filters of the pulls at {pull.place} take {self.cost} of {MAX_COST_OF_QUEUE} comparisons"
            )
        address, share = pull.connection.counted_as, MAX_COST_OF_QUEUE // PARTS
        if (
            address
            and (alike is None or address not in alike.addresses)
            and self.costs[address] + cost > share
        ):
            raise _busy(
                f"the filters of the pulls of address {address} at {pull.place} take {self.costs[address]} of {share} "
                "comparisons"
            )

    def add(self, pull: HeldPull) -> None:
        """Keep the pull."""
        alike = self.alike.get(pull.filter)
        if alike is None:
            alike = self.alike[pull.filter] = _Alike()
            self.cost += pull.filter.cost
        alike.pulls[pull] = None
        address = pull.connection.counted_as
        if address:
            alike.addresses[address] += 1
            if alike.addresses[address] == 1:
                self.costs[address] += pull.filter.cost

    def remove(self, pull: HeldPull) -> None:
        """Forget the pull."""
        alike = self.alike[pull.filter]
        del alike.pulls[pull]
        address = pull.connection.counted_as
        if address:
            alike.addresses[address] -= 1
            if not alike.addresses[address]:
                del alike.addresses[address]
                self.costs[address] -= pull.filter.cost
                if not self.costs[address]:
                    del self.costs[address]
        if not alike.pulls:
            del self.alike[pull.filter]
            self.cost -= pull.filter.cost


class HeldPulls:
    """All pulls that wait, by queue and by connection."""

    def __init__(self, store: Queues) -> None:
        self._store = store
        self._by_queue: dict[QueueKey, _AtQueue] = {}
        self._by_connection: dict[Connection, _OfConnection] = {}
        self._by_due: dict[float, dict[HeldPull, None]] = {}
        self._dues: list[float] = []  # a heap; of some that are in it no pull is left
        self._timer: asyncio.TimerHandle | None = None
        self._count = 0
        self._size = 0
        self._shares = Shares("bytes of pulls that wait", lambda: MAX_BYTES)
        self._arrived: dict[QueueKey, list[_Arrival]] = {}
        self._is_waking = False
        self._background = BackgroundSteps()
        self._check: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look every five seconds for pulls that an arrival failed to wake."""
        self._check = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._look)

    def stop(self) -> None:
        """Forget every held pull without an answer: their connections are closing."""
        for timer in (self._check, self._timer):
            if timer is not None:
                timer.cancel()
        self._check = self._timer = None
        self._background.stop()
        for connection in list(self._by_connection):
            for pull in list(self._by_connection[connection].pulls):
                self._forget(pull)
        self._arrived.clear()

    def hold(self, pull: HeldPull, seconds: float) -> None:
        """Hold the pull for up to ``seconds``.

        Raises:
            Refusal: The pulls of its connection, of its address, or of all clients leave no room for it.
        """
        mine = self._by_connection.get(pull.connection) or _OfConnection()
        at_queue = self._by_queue.get(pull.key) or _AtQueue()
        cost = mine.costs.get(pull.key, 0) + pull.filter.cost
        self._check_room(pull, mine, at_queue, cost)
        self._count += 1
        self._size += pull.size
        self._shares.count(pull.size, pull.connection.counted_as)
        mine.size += pull.size
        mine.costs[pull.key] = cost
        mine.pulls[pull] = None
        self._by_connection[pull.connection] = mine
        at_queue.add(pull)
        self._by_queue[pull.key] = at_queue
        self._set_due(pull, min(max(seconds, 0.0), _MAX_SECONDS))

    def _check_room(self, pull: HeldPull, mine: _OfConnection, at_queue: _AtQueue, cost: int) -> None:
        if self._size + pull.size > MAX_BYTES:
            raise _busy(f"the pulls of all clients take {self._size} of {MAX_BYTES} bytes")
        if mine.size + pull.size > MAX_BYTES_PER_CONNECTION:
            raise _busy(f"the pulls of this connection take {mine.size} of {MAX_BYTES_PER_CONNECTION} bytes")
        if cost > MAX_COST:
            raise _busy(
                f"the filters of this connection's pulls at {pull.place} take more than {MAX_COST} comparisons"
            )
        self._shares.check(pull.size, pull.connection.counted_as, code=ResponseCode.SYSTEM_BUSY)
        at_queue.check_room(pull)

    def messages_arrived(
        self, topic: str, queue_id: int, queue_offset: int, tags_codes: Sequence[int], store_timestamp: int
    ) -> None:
        """Wake the pulls that want one of these; the store calls this for all that it appends."""
        key = (topic, queue_id)
        if key not in self._by_queue:
            return
        arrivals = self._arrived.setdefault(key, [])
        if len(arrivals) < _MOST_ARRIVALS:
            arrivals.append((queue_offset, tags_codes))
        else:  # comparing cannot keep up: the last one stands for whatever anybody wants
            arrivals[-1] = (queue_offset, ())
        if not self._is_waking:
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._wake)

    def connection_closed(self, connection: Connection) -> None:
        """Forget the connection's pulls: nobody waits for their answers."""
        mine = self._by_connection.get(connection)
        if mine is not None:
            self._background.add("pulls of a closed connection are forgotten", self._forget_all(mine))

    def _wake(self) -> None:
        self._background.add("held pulls are answered", self._wake_steps())

    def _wake_steps(self) -> _Work:
        try:
            while self._arrived:
                yield from self._wake_queue(*self._arrived.popitem())
        finally:
            self._is_waking = False

    def _wake_queue(self, key: QueueKey, arrivals: list[_Arrival]) -> _Work:
        at_queue = self._by_queue.get(key)
        for wanted, alike in list(at_queue.alike.items()) if at_queue is not None else ():
            last = yield from self._last_wanted(key, wanted, arrivals)
            for pull in _one_by_one(alike.pulls):
                if pull.is_held and pull.header.queue_offset <= last:
                    self._forget(pull)
                    self._end(pull)
                    yield

    def _last_wanted(
        self, key: QueueKey, wanted: PullFilter, arrivals: list[_Arrival]
    ) -> Generator[None, None, int]:
        """Return the offset of the last message that arrived and is wanted, -1 if none is."""
        for first, tags_codes in reversed(arrivals):
            if not tags_codes:
                return first
            for index in range(len(tags_codes) - 1, -1, -1):
                if self._is_wanted(key, wanted, first + index, tags_codes[index]):
                    return first + index
                if wanted.properties is not None or not index % _CODES_A_STEP:
                    yield
        return -1

    def _is_wanted(self, key: QueueKey, wanted: PullFilter, offset: int, tags_code: int) -> bool:
        if wanted.codes is not None and tags_code not in wanted.codes:
            return False
        if wanted.properties is None:
            return True
        record = self._store.message_in_queue(*key, offset)
        return record is not None and wanted.wants_record(record)

    def _look(self) -> None:
        self.start()
        self._background.add("held pulls are looked at", self._look_steps())

    def _look_steps(self) -> _Work:
        for key in list(self._by_queue):
            end = self._store.max_offset(*key)
            at_queue = self._by_queue.get(key)
            for alike in list(at_queue.alike.values()) if at_queue is not None else ():
                for number, pull in enumerate(_one_by_one(alike.pulls)):
                    if pull.is_held and pull.header.queue_offset < end:
                        self._forget(pull)
                        self._end(pull)
                        yield
                    elif not number % _CODES_A_STEP:
                        yield

    def _set_due(self, pull: HeldPull, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        due = pull.due = loop.time() + seconds
        pull.is_held = True
        together = self._by_due.get(due)
        if together is None:
            self._by_due[due] = {pull: None}
            heappush(self._dues, due)
        else:
            together[pull] = None
        if self._timer is None or due < self._timer.when():
            self._arm(due)

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due, self._time_up)

    def _time_up(self) -> None:
        self._timer = None
        self._background.add("pulls whose time is up are answered", self._time_up_steps())

    def _time_up_steps(self) -> _Work:
        now = asyncio.get_running_loop().time()
        while self._dues and self._dues[0] <= now:
            for pull in _one_by_one(self._by_due.pop(heappop(self._dues), ())):
                if pull.is_held:
                    self._forget(pull)
                    self._end(pull)
                yield
        while self._dues and self._dues[0] not in self._by_due:
            heappop(self._dues)
            yield
        if self._dues and (self._timer is None or self._dues[0] < self._timer.when()):
            self._arm(self._dues[0])

    def _end(self, pull: HeldPull) -> None:
        if pull.connection.is_closed:
            return
        try:
            pull.resume(pull)
        except Exception as e:  # one pull's trouble must not keep the others waiting
            logger.exception("%r could not be answered", pull)
            remark = f"{type(e).__name__}: {e}"
            response = RemotingCommand.response(pull.command, ResponseCode.SYSTEM_ERROR, remark=remark)
            pull.connection.respond(response)

    def _forget_all(self, mine: _OfConnection) -> _Work:
        for pull in _one_by_one(mine.pulls):
            if pull.is_held:
                self._forget(pull)
            yield

    def _forget(self, pull: HeldPull) -> None:
        pull.is_held = False
        together = self._by_due.get(pull.due)
        if together is not None:  # else its time is up
            together.pop(pull, None)
            if not together:
                del self._by_due[pull.due]
        self._count -= 1
        self._size -= pull.size
        self._shares.count(-pull.size, pull.connection.counted_as)
        at_queue = self._by_queue[pull.key]
        at_queue.remove(pull)
        if not at_queue.alike:
            del self._by_queue[pull.key]
        mine = self._by_connection[pull.connection]
        mine.remove(pull)
        if not mine.pulls:
            del self._by_connection[pull.connection]

    def __len__(self) -> int:
        return self._count


def _one_by_one(pulls: Iterable[HeldPull]) -> Iterator[HeldPull]:
    """Yield the pulls of now; whichever is answered is given up then, not thousands of them at the end."""
    left = deque(pulls)
    del pulls
    while left:
        yield left.popleft()


def _busy(reason: str) -> Refusal:
    """Return how a pull is refused that there is no room for."""
    return Refusal(ResponseCode.SYSTEM_BUSY, f"too many pulls wait at this broker: {reason}")
