"""What all rules have in common: the stage, the model, requests and their answers, and which steps were made."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, ClassVar, TypeVar

from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.ext_fields import Header
from tests.state_campaign.broken import Broken
from tests.state_campaign.model import Model
from tests.state_campaign.stage import CLIENTS, RESERVED_SECONDS, ClientLeft, Stage

__all__ = [
    "BROKER",
    "OK",
    "PRODUCERS",
    "Conversation",
    "Held",
    "Step",
    "clients",
    "groups",
    "queue_ids",
    "step",
    "subscriptions",
    "topics",
]

T = TypeVar("T")
Step = tuple[str, dict[str, Any]]
"""The name of a rule, and the arguments it was called with."""

OK = ResponseCode.SUCCESS
BROKER = "broker-a"
PRODUCERS = "producers"
GONE_SECONDS = 200
"""All that clients leave behind has ended by then: locks after 60 s, and silent clients after 120 s."""
CLEANING_SECONDS = 2.0
"""Ten files of the log are deleted in a second; until then queues begin with messages that are gone."""
KEPT = (
    "broker._dispatcher._handlers", "broker._handlers", "broker._known_pulls._known",
    "broker._send_runs._destinations._plain",
    "broker.filter_compiler", "broker.delays", "broker.filters",
    "broker.groups", "broker.halves", "broker.offsets", "broker.requests", "broker.settings", "broker.statistics",
    "broker.store", "broker.timers", "broker.topics", "name_server.kv_config", "name_server.routes._topics",
    "name_server.routes._routes",
)  # fmt: skip
"""Where tables are that keep entries when no client is there: each has a limit of its own."""

clients = st.integers(0, CLIENTS - 1)
topics = st.sampled_from(["orders", "orders", "orders", "bills", "bills", "wide", "%RETRY%g0"])
groups = st.sampled_from(["g0", "g1", "g2"])
queue_ids = st.sampled_from([0, 0, 0, 0, 0, 1, 2, 7, 999])
subscriptions = st.sampled_from(["*", "A", "A || B", "sql: TAGS = 'A'", "sql: TAGS IS NULL OR number > 5"])


def step(**arguments: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Any]:
    """Declare a rule whose calls are kept in `Conversation.steps`."""

    def decorate(function: Callable[..., None]) -> Any:
        @wraps(function)
        def kept(self: "Conversation", **values: Any) -> None:
            self.steps.append((function.__name__, values))
            function(self, **values)

        declared: Any = rule
        return declared(**arguments)(kept)

    return decorate


@dataclass
class Held:
    """A pull that may be held.

    Attributes:
        future: Its answer.
        queue: Topic and queue id.
        offset: Where the pull begins.
        deadline: When it has to be answered, in virtual seconds.
        takes_all: Whether it wants every message.
    """

    future: asyncio.Future[RemotingCommand]
    queue: tuple[str, int]
    offset: int
    deadline: float
    takes_all: bool


class Conversation(RuleBasedStateMachine):
    """Clients that talk to one broker and one name server.

    Attributes:
        tolerated: Kinds of broken promises that end the sequence and are counted, for they are known.
        counts: What was done in all sequences: requests, answers, and broken promises that are tolerated.
        slow_steps: What kept all clients waiting for too long in any sequence, and for how many milliseconds.
        steps: The rules that were called.
        stage: The servers and the clients.
        model: What must be true of the broker.
        held: The pulls without an answer.
    """

    tolerated: ClassVar[set[str]] = set()
    counts: ClassVar[Counter[str]] = Counter()
    slow_steps: ClassVar[dict[str, int]] = {}

    stage: Stage
    model: Model
    held: list[Held]

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self._is_open = False

    def open(self, flush: str) -> None:
        """Start the servers."""
        self.stage = Stage(flush)
        self.model = Model()
        self.held = []
        self._flush = flush
        self._under_way: list[asyncio.Future[RemotingCommand]] = []
        self._number = 0
        self._is_broken = False
        self._is_open = True
        self._base = self.stage.table_sizes()

    def teardown(self) -> None:
        """End the sequence: if all promises were kept, the last look is at tables, queues and files."""
        if not self._is_open:
            return
        try:
            if not self._is_broken:
                self.look_at_tables()
                self.guarded(self.stage.stop)
        finally:
            self._count()
            self.stage.close()

    # Requests

    def new_body(self, size: int) -> bytes:
        """Return a body that no other message has."""
        self._number += 1
        body = (b"%d " % self._number).ljust(size, b".")
        self.model.sent.add(body)
        return body

    @property
    def unique_key(self) -> str:
        """A key for the message of the latest `new_body`."""
        return f"U{self._number}"

    def ask(
        self,
        client: int,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        at_broker: bool = True,
    ) -> RemotingCommand:
        """Return the answer to a request."""
        answer = self.run(self.stage.ask(client, code, header, body, at_broker=at_broker))
        self.look_at_held_pulls()
        return answer

    def ask_ok(
        self,
        client: int,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        at_broker: bool = True,
    ) -> RemotingCommand:
        """Return the answer to a request, which must be success."""
        answer = self.ask(client, code, header, body, at_broker=at_broker)
        reported = f"{ResponseCode(answer.code).name}: {answer.remark}"
        self.require(answer.code == OK, f"refused {Code(code).name}", reported)
        return answer

    def begin(self, client: int, code: int, header: Header | None) -> None:
        """Send a request, and look at its answer in `finish`: other requests may come before that."""

        async def ask() -> None:
            self._under_way.append(asyncio.ensure_future(self.stage.ask(client, code, header)))
            await asyncio.sleep(0)

        self.run(ask())

    def finish(self) -> None:
        """Return when all requests are answered."""
        under_way, self._under_way = self._under_way, []
        for future in under_way:
            self.run(_end(future))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the loop, and return its result."""
        return self.guarded(partial(self.stage.run, work))

    # Promises

    def require(self, is_so: bool, kind: str, text: str) -> None:
        """Return if a promise was kept."""
        if not is_so:
            self.guarded(partial(_break, kind, text))

    def guarded(self, work: Callable[[], T]) -> T:
        """Return what the work returns; end the sequence quietly where a promise is broken that is tolerated."""
        try:
            return work()
        except Broken as broken:
            self._is_broken = True
            broken.flush, broken.steps = self._flush, list(self.steps)
            if broken.kind not in self.tolerated:
                raise
            self.counts[f"tolerated: {broken.kind}"] += 1
            reject()
        except BaseException:
            self._is_broken = True
            raise

    def look_at_held_pulls(self) -> None:
        """See that a pull is answered when a message has come that it wants, and when its time is up."""
        if not self.held:
            return
        self.run(asyncio.sleep(0.01))
        waiting = [pull for pull in self.held if not pull.future.done()]
        for pull in waiting:
            end = self.stage.store.max_offset(*pull.queue)
            self.require(self.stage.now < pull.deadline + 1, "held pull without an end", f"{pull}")
            is_due = pull.takes_all and end > pull.offset
            self.require(not is_due, "held pull not woken", f"{pull}, the queue ends at {end}")
        for pull in self.held:
            if pull.future.done() and pull.future.exception() is None:
                self.guarded(partial(self.stage.check, Code.PULL_MESSAGE, pull.future.result()))
        self.held = waiting

    def look_at_queues(self) -> None:
        """See that all queues hold what was acknowledged, when old files that are being deleted are gone."""
        self.run(asyncio.sleep(CLEANING_SECONDS))
        self.guarded(partial(self.model.audit, self.stage.store, self.stage.now, RESERVED_SECONDS, self.stage.kills))

    def look_at_tables(self) -> None:
        """See that nothing of the clients stays in the tables when all of them have left."""
        self.finish()
        for client in range(CLIENTS):
            self.run(self.stage.disconnect(client))
        self.run(asyncio.sleep(GONE_SECONDS))
        self.look_at_held_pulls()
        self.require(not self.held, "held pull without an end", f"{self.held[:1]}")
        sizes = self.stage.table_sizes()
        for path, size in sizes.items():
            before = self._base.get(path, 0)
            if path.endswith("._turns._used"):  # a round may have begun just before, which forgets all parties
                before = sizes[path.replace("._turns._used", "._connections")]
            is_kept = path.startswith(KEPT) or size <= before
            self.require(is_kept, f"leak in {path}", f"{size} entries, {before} at the start")
        self.look_at_queues()

    def _count(self) -> None:
        self.counts["sequences"] += 1
        self.counts["requests"] += sum(self.stage.requests.values())
        self.counts["kills"] += self.stage.kills
        for step, milliseconds in self.stage.watch.slow_steps.items():
            self.slow_steps[step] = max(milliseconds, self.slow_steps.get(step, 0))
        for name, number in (self.stage.requests + self.stage.answers).items():
            self.counts[name] += number


def _break(kind: str, text: str) -> None:
    raise Broken(kind, text)


async def _end(future: "asyncio.Future[RemotingCommand]") -> None:
    with suppress(ClientLeft):
        await future
