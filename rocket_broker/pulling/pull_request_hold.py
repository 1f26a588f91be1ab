"""Long polling: pull requests that found no message are held until one arrives, as by Apache's PullRequestHoldService.

A held pull request ends in one of four ways::

    a matching message arrives                          ─► read the queue again, answer
    its suspend timeout is over                         ─► read the queue again, answer, if need be without messages
    the check every five seconds finds that the queue   ─► read the queue again, answer
      has a message at its offset after all
    its connection closes                               ─► drop it

The second reading never holds the request again, so each request gets at most one answer.

Messages that arrive in one turn of the loop wake a pull request once, after the last of them, so one answer carries
them all. Pull requests of a queue with equal filters share one comparison for each message. The number of comparisons
that a message causes is bounded, for each connection, each address and each queue.

There may be 250,000 held pull requests, all of one queue or due at one moment. So work on many of them runs in steps
(`BackgroundSteps`), and a single timer of the loop serves all suspend timeouts::

    message ─────────────────┐
    timer ───────────────────┼──► BackgroundSteps: remove a pull request, read and answer it, take the next
    check, closed connection ┘

If a queue has a single held pull request without a filter, and no steps are under way, a message that arrives is
answered at once, without `BackgroundSteps`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from heapq import heappop, heappush
from typing import Protocol

import msgspec

from rocket_broker.filter.pull_filter import EVERYTHING, PullFilter
from rocket_broker.limits.owner_quota import PARTS, OwnerQuota
from rocket_broker.limits.refusal import Refusal
from rocket_broker.loop.loop_steps import BackgroundSteps
from rocket_broker.loop.watchdog import LIMIT_SECONDS, Watchdog
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
    "HeldPullRequest",
    "PullRequestHold",
    "PullTerms",
]

logger = logging.getLogger(__name__)

CHECK_SECONDS = 5.0
MAX_BYTES = 256 * 1024 * 1024
"""Bytes of the held pull requests of all connections, as `HeldPullRequest.size` estimates them: 250,000 usual ones."""
MAX_BYTES_PER_CONNECTION = 64 * 1024 * 1024
"""Bytes of one connection's held pull requests. One address has a quarter of `MAX_BYTES`, which is the same."""
MAX_COST_OF_QUEUE = 16_384
"""Maximum number of comparisons that one message of a queue may cause, in under four milliseconds. Equal filters count
once, so that suffices for 1,600 groups with ten comparisons each. One address has a quarter at most."""
MAX_COST = 4_096
"""Maximum comparisons of one queue's message for one connection, which has one pull request for each group there."""
_MAX_SECONDS = 24 * 3600.0

_MOST_ARRIVALS = 10_000
"""Maximum number of stored runs of a queue that wait for comparison. Beyond, the queue's pull requests are answered
without a comparison."""
_CODES_A_STEP = 256
_ANSWERED_WITHOUT_STEPS = 8
"""Pull requests that are answered one after the other, each in some 50 µs, before answering goes on in steps."""

QueueKey = tuple[str, int]
_Work = Generator[None, None, None]
_Arrival = tuple[int, Sequence[int]]
"""Queue offset of the first, and tags codes of all messages that were stored together. Without codes any filter may
match."""


class Queues(Protocol):
    """The part of the message store that long polling needs."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset that the queue's next message will have."""

    def message_in_queue(self, topic: str, queue_id: int, offset: int) -> memoryview | None:
        """Return the record of the message at a queue offset; None if there is none."""


PULL_SIZE = 1024
"""Bytes that a held pull request without a filter of its own takes, roughly."""
_CHARACTER_SIZE = 80
"""Bytes that a compiled SQL92 filter takes for each of its characters; tags take fewer."""


class PullTerms:
    """What a pull request asks for, apart from its offsets and its number. Pull requests may share terms.

    Attributes:
        basis: What the filter and the permission to pull were decided by, to see whether that has changed; None if they
            must be decided again.
        code: The request's code.
        cost: Comparisons that a message causes.
        encoding: The encoding of the request's header, and so of the answer's.
        filter: The consumer's filter.
        header: The header of one of the requests; the offsets of the others differ.
        key: Topic and queue.
        size: Bytes that a request takes, roughly.
    """

    __slots__ = ("basis", "code", "cost", "encoding", "filter", "header", "key", "size")

    def __init__(
        self, command: RemotingCommand, header: PullMessageRequestHeader, wanted: PullFilter, basis: object = None
    ) -> None:
        self.code = command.code
        self.encoding = command.encoding
        self.size = PULL_SIZE + _CHARACTER_SIZE * len(header.subscription or "")
        self.header = header
        self.key: QueueKey = (header.topic, header.queue_id)
        self.filter = wanted
        self.cost = wanted.cost
        self.basis = basis


class HeldPullRequest(msgspec.Struct, eq=False):
    """A pull request that waits for a message.

    Attributes:
        connection: The consumer's connection.
        opaque: The number of the request on its connection.
        offset: The queue offset from which on messages are wanted.
        terms: What else the request asks for.
        resume: Reads the queue again and answers the request.
        is_held: Whether the request waits.
        answers_at_once: Whether the answer is written at once, and not at the end of this turn of the loop, when others
            of its connection could leave with it.
        due: When the suspend timeout is over, in seconds of the loop's time.
    """

    connection: Connection
    opaque: int
    offset: int
    terms: PullTerms
    resume: "Callable[[HeldPullRequest], None]"
    is_held: bool = False
    answers_at_once: bool = False
    due: float = 0.0

    @property
    def command(self) -> RemotingCommand:
        """The request without its fields and body, as far as an answer needs it."""
        return RemotingCommand(self.terms.code, self.opaque, encoding=self.terms.encoding)

    @property
    def place(self) -> str:
        """The queue of the pull request, for error messages."""
        topic, queue_id = self.terms.key
        return f"{topic} queue {queue_id}"

    def __repr__(self) -> str:
        return f"HeldPullRequest({self.terms.header.consumer_group!r} at {self.terms.key} from {self.offset})"


class _OfConnection(msgspec.Struct, eq=False):
    """One connection's held pull requests, their size, and the comparisons that they add to a message of each queue."""

    pulls: dict[HeldPullRequest, None] = msgspec.field(default_factory=dict)
    costs: dict[QueueKey, int] = msgspec.field(default_factory=dict)
    size: int = 0


class _Alike(msgspec.Struct, eq=False):
    """The held pull requests of one queue with equal filters, and their number for each address."""

    # Dicts and not sets: pull requests are answered in the order in which they came.
    pulls: dict[HeldPullRequest, None] = msgspec.field(default_factory=dict)
    addresses: dict[str, int] = msgspec.field(default_factory=dict)


class _AtQueue(msgspec.Struct, eq=False):
    """The held pull requests of one queue.

    Attributes:
        alike: The pull requests by their filter.
        costs: Comparisons that a message causes for each address; equal filters count once.
        cost: Comparisons that a message causes.
    """

    alike: dict[PullFilter, _Alike] = msgspec.field(default_factory=dict)
    costs: dict[str, int] = msgspec.field(default_factory=dict)
    cost: int = 0

    def add(self, pull: HeldPullRequest) -> None:
        """Add the pull request.

        Raises:
            Refusal: A message would cause too many comparisons.
        """
        terms = pull.terms
        alike, cost, address = self.alike.get(terms.filter), terms.cost, pull.connection.counted_as
        if alike is None and self.cost + cost > MAX_COST_OF_QUEUE:
            raise _busy(f"the filters of the pulls at {pull.place} take {self.cost} of {MAX_COST_OF_QUEUE} comparisons")
        quota = MAX_COST_OF_QUEUE // PARTS
        if address and (alike is None or address not in alike.addresses) and self.costs.get(address, 0) + cost > quota:
            raise _busy(
                f"the filters of the pulls of address {address} at {pull.place} take {self.costs.get(address, 0)} of "
                f"{quota} comparisons"
            )
        if alike is None:
            alike = self.alike[terms.filter] = _Alike()
            self.cost += cost
        alike.pulls[pull] = None
        if address:
            alike.addresses[address] = pulls = alike.addresses.get(address, 0) + 1
            if pulls == 1:
                self.costs[address] = self.costs.get(address, 0) + cost

    def remove(self, pull: HeldPullRequest) -> None:
        """Remove the pull request."""
        terms = pull.terms
        alike = self.alike[terms.filter]
        del alike.pulls[pull]
        address = pull.connection.counted_as
        if address:
            alike.addresses[address] -= 1
            if not alike.addresses[address]:
                del alike.addresses[address]
                self.costs[address] -= terms.cost
                if not self.costs[address]:
                    del self.costs[address]
        if not alike.pulls:
            del self.alike[terms.filter]
            self.cost -= terms.cost


class PullRequestHold:
    """The held pull requests, by queue and by connection.

    Attributes:
        queues: Topic and queue id of the queues that have held pull requests, at any time.
    """

    def __init__(self, store: Queues) -> None:
        self._store = store
        self._by_queue: dict[QueueKey, _AtQueue] = {}
        self.queues: AbstractSet[QueueKey] = self._by_queue.keys()
        self._by_connection: dict[Connection, _OfConnection] = {}
        self._by_due: dict[float, dict[HeldPullRequest, None]] = {}
        self._dues: list[float] = []  # a heap; it may have times without pull requests, which are skipped
        self._timer: asyncio.TimerHandle | None = None
        self._count = 0
        self._size = 0
        self._quota = OwnerQuota("bytes of pulls that wait", lambda: MAX_BYTES)
        self._arrived: dict[QueueKey, list[_Arrival]] = {}
        self._is_waking = False
        self._background = BackgroundSteps()
        self._check: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Check every five seconds for pull requests that an arrival failed to wake."""
        self._check = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._look)

    def stop(self) -> None:
        """Drop all held pull requests without an answer, since their connections are closing."""
        for timer in (self._check, self._timer):
            if timer is not None:
                timer.cancel()
        self._check = self._timer = None
        self._background.stop()
        for connection in list(self._by_connection):
            for pull in list(self._by_connection[connection].pulls):
                self._forget(pull)
        self._arrived.clear()

    def hold(self, pull: HeldPullRequest, seconds: float) -> None:
        """Hold the pull request for up to ``seconds``.

        Raises:
            Refusal: The limits of the connection, the address, the queue or the whole broker are reached.
        """
        connection, terms = pull.connection, pull.terms
        key, size, address = terms.key, terms.size, connection.counted_as
        # New objects enter the tables only after the checks: a refused pull request leaves nothing behind.
        mine = self._by_connection.get(connection) or _OfConnection()
        at_queue = self._by_queue.get(key) or _AtQueue()
        cost = mine.costs.get(key, 0) + terms.cost
        if self._size + size > MAX_BYTES:
            raise _busy(f"the pulls of all clients take {self._size} of {MAX_BYTES} bytes")
        if mine.size + size > MAX_BYTES_PER_CONNECTION:
            raise _busy(f"the pulls of this connection take {mine.size} of {MAX_BYTES_PER_CONNECTION} bytes")
        if cost > MAX_COST:
            raise _busy(f"the filters of this connection's pulls at {pull.place} take more than {MAX_COST} comparisons")
        if address:
            self._quota.check(size, address, code=ResponseCode.SYSTEM_BUSY)
        at_queue.add(pull)
        self._by_queue[key] = at_queue
        if address:
            self._quota.count(size, address)
        self._count += 1
        self._size += size
        mine.size += size
        mine.costs[key] = cost
        mine.pulls[pull] = None
        self._by_connection[connection] = mine
        loop = asyncio.get_running_loop()
        # Apache's service looks at timeouts only when a message arrives and every five seconds, so its
        # answers come up to five seconds late. Here the timer makes them exact.
        due = pull.due = loop.time() + min(max(seconds, 0.0), _MAX_SECONDS)
        pull.is_held = True
        together = self._by_due.get(due)
        if together is None:
            self._by_due[due] = {pull: None}
            heappush(self._dues, due)
        else:
            together[pull] = None
        if self._timer is None or due < self._timer.when():
            self._arm(due)

    def messages_arrived(
        self, topic: str, queue_id: int, queue_offset: int, tags_codes: Sequence[int], store_timestamp: int
    ) -> None:
        """Answer the held pull requests of one of `queues` whose filters match one of the messages that the store has
        appended.

        Args:
            topic: Topic of the messages.
            queue_id: Queue of the topic.
            queue_offset: Queue offset of the first message.
            tags_codes: The tags code of each message.
            store_timestamp: Store time, in milliseconds since 1970.
        """
        # Comparing in this call would make the producer's answer wait for the filters of all consumers.
        arrivals = self._arrived.setdefault((topic, queue_id), [])
        if len(arrivals) < _MOST_ARRIVALS:
            arrivals.append((queue_offset, tags_codes))
        else:  # comparing cannot keep up: an entry without codes wakes the queue's pull requests in any case
            arrivals[-1] = (queue_offset, ())
        if not self._is_waking:
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._wake)

    def connection_closed(self, connection: Connection) -> None:
        """Drop the connection's held pull requests; they need no answer."""
        mine = self._by_connection.get(connection)
        if mine is not None:
            self._background.add("removing the pull requests of a closed connection", self._forget_all(mine))

    def _wake(self) -> None:
        try:
            # At a low rate, pull requests that are alone at their queues are answered without steps.
            for _ in range(_ANSWERED_WITHOUT_STEPS):
                pull = self._pull_alone() if self._arrived else None
                if pull is None:
                    break
                began = Watchdog.clock()
                del self._arrived[pull.terms.key]
                self._forget(pull)
                pull.answers_at_once = not self._arrived
                self._end(pull)
                if Watchdog.clock() - began > LIMIT_SECONDS:
                    Watchdog.check(began, "answering a pull request whose message has arrived")
        finally:
            self._is_waking = bool(self._arrived)
            if self._is_waking:
                self._background.add("answering pull requests whose messages have arrived", self._wake_steps())

    def _pull_alone(self) -> HeldPullRequest | None:
        """Return the pull request to answer for one of the queues at which messages have arrived.

        Returns:
            None unless it is the only one at its queue and has no filter, and no steps are under way.
        """
        if self._background.waiting:
            return None
        key, arrivals = next(iter(self._arrived.items()))
        at_queue = self._by_queue.get(key)
        alike = at_queue.alike.get(EVERYTHING) if at_queue is not None and len(at_queue.alike) == 1 else None
        if alike is None or len(alike.pulls) != 1:
            return None
        (pull,) = alike.pulls
        first, tags_codes = arrivals[-1]
        return pull if pull.offset < first + (len(tags_codes) or 1) else None

    def _wake_steps(self) -> _Work:
        try:
            # Messages that arrive while this runs join `_arrived`, and this loop takes them too.
            while self._arrived:
                yield from self._wake_queue(*self._arrived.popitem())
        finally:
            self._is_waking = False

    def _wake_queue(self, key: QueueKey, arrivals: list[_Arrival]) -> _Work:
        at_queue = self._by_queue.get(key)
        # A pull request that is held from now on has read the queue after these messages were stored, so it
        # need not be compared with them.
        if at_queue is None:
            return
        for wanted, alike in list(at_queue.alike.items()):
            last = yield from self._last_wanted(key, wanted, arrivals)
            is_only = len(alike.pulls) == len(at_queue.alike) == 1 and not self._arrived
            for pull in _one_by_one(alike.pulls):
                # Offsets matter too: an arrival before the offset that the consumer asks for, such as after
                # a jump forward, is not for this consumer.
                if pull.is_held and pull.offset <= last:
                    self._forget(pull)
                    pull.answers_at_once = is_only
                    self._end(pull)
                    yield

    def _last_wanted(self, key: QueueKey, wanted: PullFilter, arrivals: list[_Arrival]) -> Generator[None, None, int]:
        """Return the offset of the last arrived message that the filter matches; -1 if it matches none."""
        # Backwards, because the last match decides: pull requests at or before its offset are woken, and
        # those behind it match nothing.
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
        self._background.add("checking held pull requests", self._look_steps())

    def _look_steps(self) -> _Work:
        # The filter is not asked here, as in Apache's checkHoldRequest. So a consumer whose filter matches
        # nothing still gets an answer with a later offset every five seconds.
        for key in list(self._by_queue):
            end = self._store.max_offset(*key)
            at_queue = self._by_queue.get(key)
            for alike in list(at_queue.alike.values()) if at_queue is not None else ():
                for number, pull in enumerate(_one_by_one(alike.pulls)):
                    if pull.is_held and pull.offset < end:
                        self._forget(pull)
                        self._end(pull)
                        yield
                    elif not number % _CODES_A_STEP:
                        yield

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due, self._time_up)

    def _time_up(self) -> None:
        self._timer = None
        self._background.add("answering pull requests whose timeout has ended", self._time_up_steps())

    def _time_up_steps(self) -> _Work:
        now = asyncio.get_running_loop().time()
        while self._dues and self._dues[0] <= now:
            # Taken out first: a pull request that is held meanwhile for the same moment gets an entry of
            # its own in the heap.
            for pull in _one_by_one(self._by_due.pop(heappop(self._dues), ())):
                if pull.is_held:
                    self._forget(pull)
                    self._end(pull)
                yield
        # Times whose pull requests were all answered before: the timer need not be armed for them.
        while self._dues and self._dues[0] not in self._by_due:
            heappop(self._dues)
            yield
        if self._dues and (self._timer is None or self._dues[0] < self._timer.when()):
            self._arm(self._dues[0])

    def _end(self, pull: HeldPullRequest) -> None:
        if pull.connection.is_closed:
            return
        try:
            pull.resume(pull)
        except Exception as e:  # the failure of one pull request must not keep the others waiting
            logger.exception("%r could not be answered", pull)
            remark = f"{type(e).__name__}: {e}"
            response = RemotingCommand.response(pull.command, ResponseCode.SYSTEM_ERROR, remark=remark)
            pull.connection.respond(response)

    def _forget_all(self, mine: _OfConnection) -> _Work:
        for pull in _one_by_one(mine.pulls):
            if pull.is_held:
                self._forget(pull)
            yield

    def _forget(self, pull: HeldPullRequest) -> None:
        # Callers forget a pull request before they answer it, so that no other work in steps answers it a
        # second time.
        pull.is_held = False
        together = self._by_due.get(pull.due)
        if together is not None:  # None: its timeout is over, and `_time_up_steps` has taken it
            together.pop(pull, None)
            if not together:
                del self._by_due[pull.due]
        self._count -= 1
        terms = pull.terms
        self._size -= terms.size
        if pull.connection.counted_as:
            self._quota.count(-terms.size, pull.connection.counted_as)
        at_queue = self._by_queue[terms.key]
        at_queue.remove(pull)
        if not at_queue.alike:
            del self._by_queue[terms.key]
        mine = self._by_connection[pull.connection]
        del mine.pulls[pull]
        mine.size -= terms.size
        cost = mine.costs[terms.key] - terms.cost
        if cost:
            mine.costs[terms.key] = cost
        else:
            del mine.costs[terms.key]
        if not mine.pulls:
            del self._by_connection[pull.connection]

    def __len__(self) -> int:
        return self._count


def _one_by_one(pulls: Iterable[HeldPullRequest]) -> Iterator[HeldPullRequest]:
    """Yield the pull requests of now one by one, and free each after its turn instead of thousands at the end."""
    left = deque(pulls)
    del pulls
    while left:
        yield left.popleft()


def _busy(reason: str) -> Refusal:
    """Return the refusal of a pull request that exceeds a limit."""
    return Refusal(ResponseCode.SYSTEM_BUSY, f"too many pulls wait at this broker: {reason}")
