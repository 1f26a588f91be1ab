"""What an application has sent and received, and whether that keeps the promises.

::

    plain       received at least once, each message that was acknowledged
    ordered     the same; of a key, no message before all that were acknowledged before it. What is delivered again may
                begin anew at an earlier message
    delayed     the same as plain, and not before the delay is over
    payments    those whose transaction has committed, as plain; the others never
"""

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

Kind = Literal["plain", "ordered", "delayed", "payments"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
DELAY: Final = 2.0
"""Seconds by which messages are delayed."""
SHOWN: Final = 10
"""Most names in one report of a broken promise."""


@dataclass
class Tally:
    """The messages of one kind.

    Attributes:
        begun: When the send of a message began, by its name.
        acknowledged: When it was acknowledged, or its transaction has committed.
        received: How often it was received.
        failed: Attempts to send that failed.
        longest_send: Seconds from the beginning of a send to its acknowledgment, with all attempts.
        longest_wait: Seconds from the acknowledgment of a message, and the end of its delay, until it was received.
    """

    begun: dict[str, float] = field(default_factory=dict)
    acknowledged: dict[str, float] = field(default_factory=dict)
    received: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    longest_send: float = 0.0
    longest_wait: float = 0.0

    @property
    def missing(self) -> list[str]:
        """The messages that were acknowledged and not received."""
        return [name for name in self.acknowledged if name not in self.received]

    @property
    def repeated(self) -> int:
        """How many messages were received more than once."""
        return sum(times > 1 for times in self.received.values())


class Ledger:
    """Everything sent and received.

    Attributes:
        tallies: What was sent and received, of each kind.
        decided: Whether the transaction of a payment has committed, by its name; what is not there is still open.
        latest: When the send began of the latest message that was received: of each kind, and of each key in order.
        problems: Broken promises.
    """

    def __init__(self) -> None:
        self.tallies: dict[Kind, Tally] = {kind: Tally() for kind in KINDS}
        self.decided: dict[str, bool] = {}
        self.latest: dict[str, float] = {}
        self.problems: list[str] = []
        self._last: defaultdict[str, int] = defaultdict(lambda: -1)

    def begin(self, kind: Kind, name: str) -> None:
        """Note that the first attempt to send a message begins."""
        self.tallies[kind].begun[name] = time.monotonic()

    def acknowledge(self, kind: Kind, name: str) -> None:
        """Note that a message was acknowledged."""
        tally, now = self.tallies[kind], time.monotonic()
        tally.acknowledged[name] = now
        tally.longest_send = max(tally.longest_send, now - tally.begun[name])

    def receive(self, kind: Kind, name: str) -> int:
        """Note that a message was received; return how often it was."""
        tally, now = self.tallies[kind], time.monotonic()
        tally.received[name] += 1
        delay = DELAY if kind == "delayed" else 0.0
        if tally.received[name] == 1:
            due = tally.acknowledged.get(name, now) + delay
            tally.longest_wait = max(tally.longest_wait, now - due)
            if now < tally.begun[name] + delay - 0.01:
                self.problems.append(f"{name} was received {tally.begun[name] + delay - now:.2f} s before its delay")
        lane: str = kind
        if kind == "ordered":
            self._check_order(name)
            lane = f"key {name.partition(':')[0]}"
        self.latest[lane] = max(self.latest.get(lane, 0.0), tally.begun[name])
        if kind == "payments" and self.decided.get(name) is False:
            self.problems.append(f"{name} was received, and its transaction was rolled back")
        return tally.received[name]

    def _check_order(self, name: str) -> None:
        key, _, number = name.partition(":")
        if int(number) > self._last[key] + 1:
            self.problems.append(f"{name} was received when the last one of its key was {self._last[key]}")
        self._last[key] = max(self._last[key], int(number))

    def audit(self) -> None:
        """Report what was acknowledged and never received."""
        for kind, tally in self.tallies.items():
            if missing := tally.missing:
                named = ", ".join(missing[:SHOWN])
                self.problems.append(f"{len(missing)} messages in {kind} were acknowledged and not received: {named}")
