"""Counting of a listener's messages, with the time and this process's CPU from the first message to the last.

Imported by programs of several virtual environments, so it needs nothing but Python.
"""

import json
import sys
import time
from typing import NamedTuple


class Task(NamedTuple):
    """The arguments of a listener's command line.

    Attributes:
        brokers: Kafka's bootstrap servers.
        topic: The topic of the messages.
        group: The name of a new consumer group.
        messages: The number of messages.
        answers: The topic of the answers; empty for a listener without answers.
        mode: The program's variant and its number of handlers, as ``variant/number``.
    """

    brokers: str
    topic: str
    group: str
    messages: int
    answers: str
    mode: str

    @classmethod
    def of_command_line(cls) -> "Task":
        """Return the arguments of this process."""
        brokers, topic, group, messages, answers, mode = sys.argv[1:]
        return cls(brokers, topic, group, int(messages), answers, mode)


class Count:
    """Counts messages; prints seconds and CPU when the last one is handled."""

    def __init__(self, messages: int) -> None:
        """Expect this number of messages."""
        self._expected = messages
        self._seen = 0
        self._started = self._cpu = 0.0

    def add_one(self) -> bool:
        """Count one message; return whether it is the last."""
        if not self._seen:
            self._started, self._cpu = time.perf_counter(), time.process_time()
        self._seen += 1
        if self._seen != self._expected:
            return False
        seconds, cpu = time.perf_counter() - self._started, time.process_time() - self._cpu
        print(json.dumps({"seconds": seconds, "cpu_seconds": cpu}), flush=True)
        return True
