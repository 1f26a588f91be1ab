"""The bounded log limits the lines that clients can cause."""

import asyncio
import logging
from collections.abc import Iterator

import pytest

from rocket_broker.process.bounded_log import MINUTE, MOST_CHARACTERS, MOST_OF_A_PEER, BoundedLog, OneLine
from streamkit.testing.virtual_time import VirtualTime


class Lines(logging.Handler):
    """Keeps each formatted log record."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(OneLine("%(levelname)s %(message)s"))
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def written() -> Lines:
    return Lines()


@pytest.fixture
def bounded(written: Lines) -> BoundedLog:
    return BoundedLog(written)


@pytest.fixture
def log(bounded: BoundedLog) -> Iterator[logging.Logger]:
    """A logger whose records pass the bounded log."""
    logger = logging.getLogger("server")
    logger.addHandler(bounded)
    yield logger
    logger.removeHandler(bounded)


def refuse(log: logging.Logger, number: int, peer: str | None = None) -> None:
    log.warning("refused %d", number, extra={"peer": peer} if peer else None)


def test_log_lines_per_address_are_limited_and_the_rest_is_counted(
    log: logging.Logger, bounded: BoundedLog, written: Lines
) -> None:
    """Each address gets ten lines per minute and call site; a summary line counts the suppressed ones."""
    for number in range(1_000):
        refuse(log, number, "10.0.0.7")
    refuse(log, 7, "10.0.0.8")
    bounded.end_minute()
    assert written.lines[:10] == [f"WARNING refused {number}" for number in range(10)]
    assert written.lines[10:] == [
        "WARNING refused 7",
        "WARNING 990 further line(s) of this kind left out (990 about 10.0.0.7), the first: refused 10",
    ]


def test_log_lines_per_call_site_are_limited_across_addresses(
    log: logging.Logger, bounded: BoundedLog, written: Lines
) -> None:
    """At most a hundred lines per minute; suppressed addresses use no memory."""
    for number in range(10_000):
        refuse(log, number, f"2001:db8::{number:x}")
    bounded.end_minute()
    assert len(written.lines) == 101
    assert written.lines[-1] == ("WARNING 9900 further line(s) of this kind left out, the first: refused 100")


def test_log_lines_without_an_address_are_limited_per_call_site(
    log: logging.Logger, bounded: BoundedLog, written: Lines
) -> None:
    """A hundred per minute; the lines of another call site are not affected."""
    for number in range(150):
        refuse(log, number)
    log.error("the disk is full")
    bounded.end_minute()
    assert len(written.lines) == 102
    assert written.lines[100:] == [
        "ERROR the disk is full",
        "WARNING 50 further line(s) of this kind left out, the first: refused 100",
    ]


def test_record_that_cannot_be_formatted_does_not_raise(
    log: logging.Logger, bounded: BoundedLog, written: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suppressed record that cannot be formatted is counted like any other."""
    monkeypatch.setattr(log, "propagate", False)  # pytest's handler raises

    class Unprintable:
        def __repr__(self) -> str:
            raise RuntimeError("gone")

    for number in range(MOST_OF_A_PEER + 3):
        what = number if number < MOST_OF_A_PEER else Unprintable()
        log.warning("refused %r", what, extra={"peer": "10.0.0.7"})
    log.warning("others go on")
    bounded.end_minute()
    assert written.lines[MOST_OF_A_PEER:] == [
        "WARNING others go on",
        "WARNING 3 further line(s) of this kind left out (3 about 10.0.0.7), the first: refused %r",
    ]


def test_log_limits_are_reset_every_minute(log: logging.Logger, bounded: BoundedLog, written: Lines) -> None:
    """A timer writes the summary each minute, and leaving the context writes the last one."""

    async def main() -> None:
        async with bounded.minutes():
            for _ in range(2):
                for number in range(12):
                    refuse(log, number, "10.0.0.7")
                assert len(written.lines) == 10
                await asyncio.sleep(MINUTE + 1)
                assert "2 further line(s)" in written.lines.pop()
                written.lines.clear()
            for number in range(11):
                refuse(log, number, "10.0.0.7")

    with VirtualTime() as time:
        time.run(main())
    assert "1 further line(s)" in written.lines[-1]
    assert len(written.lines) == 11


def test_traceback_is_logged_or_suppressed_with_its_record(
    log: logging.Logger, bounded: BoundedLog, written: Lines
) -> None:
    """Each line of a traceback gets its own record; a suppressed one keeps no reference to the exception."""
    for _ in range(11):
        try:
            raise ValueError("no\nnumber")
        except ValueError:
            log.exception("a handler failed", extra={"peer": "10.0.0.7"})
    bounded.end_minute()
    assert written.lines[9].splitlines()[:2] == [
        "ERROR a handler failed",
        "Traceback (most recent call last):",
    ]
    assert written.lines[10] == (
        "ERROR 1 further line(s) of this kind left out (1 about 10.0.0.7), the first: a handler failed"
    )


def test_logged_text_is_one_line_of_bounded_length(log: logging.Logger, bounded: BoundedLog, written: Lines) -> None:
    """Whatever text the client sent."""
    log.warning("topic %s", "a\r\nERROR b\x1b[2J\u2028c\x85")
    log.warning("topic %s", "x" * 1_000_000)
    assert written.lines[0] == r"WARNING topic a\r\nERROR b\x1b[2J\u2028c\x85"
    assert len(written.lines[1]) < MOST_CHARACTERS + 50
    assert written.lines[1].endswith("x… (1000014 characters)")
