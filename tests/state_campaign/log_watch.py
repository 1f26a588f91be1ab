"""Finds in the log what must not happen: unforeseen exceptions, long steps, answers that nobody asked for."""

import logging
import re
import traceback

from tests.state_campaign.broken import Broken

__all__ = ["LogWatch"]

LEVELS = {
    "rocket_broker": logging.WARNING,
    "rocket_remoting": logging.DEBUG,  # an answer without a request is a debug record
    "asyncio": logging.WARNING,
}
WATCHDOG = "rocket_broker.loop.watchdog"
SECOND_ANSWER = "dropped a response to an unknown or timed out request"
_STEP = re.compile(r"waited for (?P<milliseconds>\d+) ms while (?P<step>.*)")
_ADDRESS = re.compile(r" from [0-9.]+:[0-9]+, a request")


class LogWatch(logging.Handler):
    """Listens to the loggers of `LEVELS`, which write to nobody else meanwhile.

    Attributes:
        broken: The broken promises that the log told of.
        slow_steps: What kept all clients waiting for too long, and for how many milliseconds at most.
    """

    def __init__(self) -> None:
        super().__init__()
        self.broken: list[Broken] = []
        self.slow_steps: dict[str, int] = {}
        self._before: dict[str, tuple[int, bool]] = {}

    def open(self) -> None:
        """Listen from now on."""
        for name, level in LEVELS.items():
            logger = logging.getLogger(name)
            self._before[name] = logger.level, logger.propagate
            logger.setLevel(level)
            logger.propagate = False
            logger.addHandler(self)

    def close(self) -> None:
        """Leave the loggers as they were."""
        for name, (level, propagate) in self._before.items():
            logger = logging.getLogger(name)
            logger.setLevel(level)
            logger.propagate = propagate
            logger.removeHandler(self)
        self._before.clear()
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """Look at a record."""
        text = record.getMessage()
        if record.name == WATCHDOG:
            self._note_slow_step(text)
        elif record.exc_info is not None and record.exc_info[1] is not None:
            error = record.exc_info[1]
            places = traceback.extract_tb(error.__traceback__)
            kind = f"unforeseen {type(error).__name__}" + (f" in {places[-1].name}" if places else "")
            self.broken.append(Broken(kind, text + "\n" + "".join(traceback.format_exception(error))))
        elif record.name == "asyncio":
            self.broken.append(Broken("trouble in the loop", text))
        elif SECOND_ANSWER in text:
            self.broken.append(Broken("more than one answer", text))

    def _note_slow_step(self, text: str) -> None:
        """Note a step; how long one takes is never the same, so it is no reason to end a sequence."""
        match = _STEP.search(text)
        if match is not None:
            step = _ADDRESS.sub(", a request", match["step"])
            self.slow_steps[step] = max(int(match["milliseconds"]), self.slow_steps.get(step, 0))
