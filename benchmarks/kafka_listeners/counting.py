"""What a measured listener counts: from the first message to the last, the time and this process's CPU.

Imported by programs of several virtual environments, so it needs nothing but Python.
"""

import json
import sys
import time
from typing import NamedTuple


class Task(NamedTuple):
    """What a listener is asked to do, as its command line says.

    Attributes:
        brokers: Kafka's bootstrap servers.
        topic: Where the messages are.
        group: The consumer group, a new one.
        messages: How many there are.
        answers: Where an answer to each goes; empty: there is none.
        mode: What a program can do in several ways, and how many handlers it has.
    """

    brokers: str
    topic: str
    group: str
    messages: int
    answers: str
    mode: str

    @classmethod
    def of_command_line(cls) -> "Task":
        """Read it."""
        brokers, topic, group, messages, answers, mode = sys.argv[1:]
        return cls(brokers, topic, group, int(messages), answers, mode)


class Count:
    """Counts messages, and prints what they took when the last one is done."""

    def __init__(self, messages: int) -> None:
        """Expect so many."""
        self._expected = messages
        self._seen = 0
        self._started = self._cpu = 0.0

    def one(self) -> bool:
        """Note one message; True when it was the last."""
        if not self._seen:
            self._started, self._cpu = time.perf_counter(), time.process_time()
        self._seen += 1
        if self._seen != self._expected:
            return False
        seconds, cpu = time.perf_counter() - self._started, time.process_time() - self._cpu
        print(json.dumps({"seconds": seconds, "cpu_seconds": cpu}), flush=True)
        return True
