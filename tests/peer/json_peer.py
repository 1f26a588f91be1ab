"""A foreign client as a child process: JSON objects in and out, one a line, and what its listeners received.

A command {"id": 7, "do": "send", ...} is answered by {"id": 7, "result": ...} or {"id": 7, "error": text,
"type": class, "code": response code}. Objects with "event" come whenever a listener was called.
"""

import itertools
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Generic, TypeVar

from tests.peer.child_process import ChildProcess

Json = dict[str, Any]
M = TypeVar("M")

START_TIMEOUT = 90.0
ANSWER_TIMEOUT = 60.0
DELIVERY_TIMEOUT = 60.0


class PeerError(Exception):
    """The foreign client raised: the text is its error's, `type` the class and `code` the response code."""

    def __init__(self, text: str, type_: str, code: int) -> None:
        """Keep what it told."""
        super().__init__(f"{type_}: {text}")
        self.type = type_
        self.code = code


class JsonPeer:
    """A running foreign client; `on_event` sees its events in a reader thread."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        on_event: Callable[[Json], None],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it and return when it said READY.

        Args:
            log: The file that its standard error goes to.
            environment: Variables beside this process's own.
        """
        self._answers: dict[int, Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._on_event = on_event
        self._process = ChildProcess(
            command, log=log, environment=environment, on_line=self._on_line, on_end=self._on_end
        )
        try:
            self._process.await_line("READY", timeout=START_TIMEOUT)
        except BaseException:
            self._process.kill()
            raise

    def begin(self, do: str, **arguments: object) -> Future[Any]:
        """Begin one command."""
        number = next(self._numbers)
        answer = self._answers[number] = Future()
        self._process.write(json.dumps({"id": number, "do": do, **arguments}))
        return answer

    def call(self, do: str, **arguments: object) -> Any:
        """Run one command and return its result.

        Raises:
            PeerError: The foreign client raised.
        """
        try:
            return self.begin(do, **arguments).result(ANSWER_TIMEOUT)
        except TimeoutError:
            raise TimeoutError(f"no answer to {do}:\n{self.tail()}") from None

    def tail(self) -> str:
        """Return the last lines of what it printed and logged."""
        return self._process.tail()

    def stop(self) -> None:
        """End it."""
        self._process.stop(timeout=10)

    def _on_line(self, line: str) -> None:
        if not line.startswith("{"):
            return
        reported: Json = json.loads(line)
        if "event" in reported:
            self._on_event(reported)
            return
        answer = self._answers.pop(reported["id"])
        if "error" in reported:
            answer.set_exception(PeerError(reported["error"], reported["type"], reported["code"]))
        else:
            answer.set_result(reported.get("result"))

    def _on_end(self) -> None:
        """Fail what waits: mqadmin, for one, ends its process when it is given wrong options."""
        for answer in list(self._answers.values()):
            answer.set_exception(PeerError("the process ended", "SystemExit", -1))
        self._answers.clear()


class Inbox(Generic[M]):
    """All that one listener of a foreign client received; `log` tells more when something did not come."""

    def __init__(self, log: Callable[[], str]) -> None:
        """Begin empty."""
        self._log = log
        self._received: list[M] = []
        self._changed = threading.Condition()

    @property
    def received(self) -> list[M]:
        """All deliveries so far, in the order the listener saw them."""
        with self._changed:
            return list(self._received)

    def take(self, count: int, timeout: float = DELIVERY_TIMEOUT) -> list[M]:
        """Wait for `count` deliveries in all and return them.

        Raises:
            TimeoutError: Fewer came in time; the text tells which.
        """
        self.wait_for(lambda: len(self._received) >= count, timeout, f"{count} deliveries")
        return self.received

    def wait_for(self, true: Callable[[], bool], timeout: float = DELIVERY_TIMEOUT, what: str = "it") -> None:
        """Wait until `true()`, looked at on each delivery."""
        with self._changed:
            if self._changed.wait_for(true, timeout):
                return
            came = "\n".join(str(message)[:200] for message in self._received[:20])
            count = len(self._received)
        raise TimeoutError(f"waited {timeout} s for {what}; came {count}:\n{came}\n{self._log()}")

    def add(self, message: M) -> None:
        """Note one delivery."""
        with self._changed:
            self._received.append(message)
            self._changed.notify_all()
