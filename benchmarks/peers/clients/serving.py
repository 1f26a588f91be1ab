"""The child's side of `benchmarks.peers.worker`: read a command from a line, do it, print a line.

Imported by programs of several virtual environments, so it needs nothing but Python, and uvloop where a loop runs.
"""

import asyncio
import contextlib
import json
import re
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

BODY = b"x" * 128
TOPIC = "sent"
BACKLOG = "backlog"
BATCH = 32
AT_ONCE = 8
_RECEIPT_SECONDS = 10.0
NUMBER = re.compile(rb'"number":\s*(\d+)')

Result = dict[str, float]
Command = dict[str, Any]


class Count:
    """Counts messages, with the time and this process's CPU from the first to the last."""

    def __init__(self, expected: int, on_last: Callable[[], object]) -> None:
        """Expect this number of messages; call a function after the last one."""
        self._expected, self._on_last = expected, on_last
        self._seen, self._first, self._cpu = 0, 0.0, 0.0
        self.result: Result = {}
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Begin to measure, if the first message comes later than the work for it."""
        self._first, self._cpu = time.perf_counter(), time.process_time()

    def add(self, messages: int = 1) -> None:
        """Count messages."""
        if not self._first:
            self.begin()
        self._seen += messages
        if self._seen >= self._expected and not self.result:
            seconds, cpu = time.perf_counter() - self._first, time.process_time() - self._cpu
            self.result = {"messages": self._seen, "seconds": seconds, "cpu": cpu}
            self._on_last()

    def add_from_a_thread(self) -> None:
        """Count a message where several threads do."""
        with self._lock:
            self.add()


def measured(work: Callable[[], int]) -> Result:
    """Do the work, which returns a number of messages; return it with its time and CPU."""
    begun, cpu = time.perf_counter(), time.process_time()
    messages = work()
    return {"messages": messages, "seconds": time.perf_counter() - begun, "cpu": time.process_time() - cpu}


def serve(tasks: Mapping[str, Callable[[Command], Result]]) -> None:
    """Do what is read from standard input, until it ends."""
    _answer({})
    for line in sys.stdin:
        command = json.loads(line)
        _answer(tasks[command["do"]](command))


def _answer(result: Result) -> None:
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


class AsyncClient:
    """A client on an event loop; subclasses connect, send and receive as their package does it best."""

    async def connect(self, address: str) -> None:
        """Connect to a server."""
        raise NotImplementedError

    async def send(self) -> None:
        """Send `BODY` to `TOPIC`, and wait until the server has it."""
        raise NotImplementedError

    async def send_batch(self) -> None:
        """Send `BATCH` times `BODY` to `TOPIC` in the cheapest way, and wait until the server has them."""
        raise NotImplementedError

    async def fill(self, topic: str, bodies: list[bytes]) -> None:
        """Put messages into a topic, which is made if need be."""
        raise NotImplementedError

    async def receive(
        self, topic: str, group: str, on_message: Callable[[bytes], object]
    ) -> Callable[[], Awaitable[object]]:
        """Start to receive a topic from its first message on, as a new group; return what ends it."""
        raise NotImplementedError

    async def make_group(self, topic: str, group: str) -> None:
        """Make a group that begins with the first message, where the application itself would begin with the next."""

    async def publish(self, topic: str, body: bytes) -> object:
        """Send one JSON document, and wait until the server has it."""
        raise NotImplementedError

    async def _until(
        self, seconds: float, step: Callable[[], Awaitable[object]], each: int, at_once: int = 1
    ) -> Result:
        done = 0
        end = time.perf_counter() + seconds

        async def sender() -> None:
            nonlocal done
            while time.perf_counter() < end:
                await step()
                done += each

        begun, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(sender() for _ in range(at_once)))
        return {"messages": done, "seconds": time.perf_counter() - begun, "cpu": time.process_time() - cpu}

    async def do(self, command: Command) -> Result:
        """Do what a command says."""
        result: Result = {}
        match command["do"]:
            case "one":
                result = await self._until(command["seconds"], self.send, 1)
            case "eight":
                result = await self._until(command["seconds"], self.send, 1, AT_ONCE)
            case "batch":
                result = await self._until(command["seconds"], self.send_batch, BATCH)
            case "fill":
                numbers = range(command["messages"])
                await self.fill(
                    command["topic"], [order(number) if command.get("orders") else BODY for number in numbers]
                )
            case "make_group":
                await self.make_group(command["topic"], command["group"])
            case "consume":
                result = await self._consume(command)
            case "exchange":
                result = await self._exchange(command)
            case unknown:
                raise ValueError(f"unknown command {unknown!r}")
        return result

    async def _consume(self, command: Command) -> Result:
        done = asyncio.Event()
        count = Count(command["messages"], done.set)
        stop = await self.receive(command["topic"], command["group"], lambda body: count.add())
        await done.wait()
        await stop()
        return count.result

    async def _exchange(self, command: Command) -> Result:
        """Send orders at a rate, each when it is due; return percentiles of the times to their receipts, in ms."""
        rate, number = command["rate"], int(command["rate"] * command["seconds"])
        base = command["first"]
        due: dict[int, float] = {}
        taken: list[float] = []
        all_here, caught_up = asyncio.Event(), asyncio.Event()
        waiting = command["waiting"]

        def on_receipt(body: bytes) -> None:
            nonlocal waiting
            waiting -= 1
            if waiting <= 0:
                caught_up.set()
            found = NUMBER.search(body)
            begun = due.pop(int(found[1]), None) if found else None
            if begun is not None:
                taken.append(time.perf_counter() - begun)
                if len(taken) == number:
                    all_here.set()

        stop = await self.receive(command["receipts"], command["group"], on_receipt)
        await asyncio.wait_for(caught_up.wait(), 30)  # with the receipts from before, so it receives all partitions
        sent: list[asyncio.Task[object]] = []
        first = time.perf_counter()
        for index in range(number):
            at = first + index / rate
            if (wait := at - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            due[base + index] = max(at, time.perf_counter())
            sent.append(asyncio.create_task(self.publish(command["orders"], order(base + index))))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(all_here.wait(), _RECEIPT_SECONDS)
        # An order whose send failed, or that has no receipt yet, counts as one that takes forever.
        await asyncio.gather(*sent, return_exceptions=True)
        taken += [float("inf")] * len(due)
        await stop()
        taken.sort()
        return {"p50": taken[len(taken) // 2] * 1e3, "p99": taken[len(taken) * 99 // 100] * 1e3, "messages": number}


def order(number: int) -> bytes:
    """Return an order as JSON."""
    return b'{"number":%d,"customer":"Ann","price":3.5}' % number


def run(client: AsyncClient) -> None:
    """Connect a client to the server that the command line names, and do what is read, on one loop."""
    import uvloop

    async def obey() -> None:
        loop = asyncio.get_running_loop()
        await client.connect(sys.argv[1])
        _answer({})
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            _answer(await client.do(json.loads(line)))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(obey())
