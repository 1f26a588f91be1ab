"""A log that nobody fills."""

import asyncio
import logging
from collections.abc import Iterator

import pytest

from rocket_broker.process.bounded_log import MINUTE, MOST_CHARACTERS, MOST_OF_A_PEER, BoundedLog, OneLine
from streamkit.testing.virtual_time import VirtualTime


class Lines(logging.Handler):
    """Keeps what it is given, as it would be written."""

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


def test_one_peer_has_few_lines_of_a_kind_and_the_rest_is_counted(
    log: logging.Logger, bounded: BoundedLog, written: Lines
) -> None:
    """Ten of a minute, and then one that tells how many more there were, and what."""
    for number in range(1_000):
        refuse(log, number, "10.0.0.7")
    refuse(log, 7, "10.0.0.8")
    bounded.end_minute()
    assert written.lines[:10] == [f"WARNING refused {number}" for number in range(10)]
    assert written.lines[10:] == [
        "WARNING refused 7",
        "WARNING 990 further lines of this kind were left out (990 about 10.0.0.7), the first: refused 10",
    ]


def test_many_peers_have_a_hundred_lines_of_a_kind(log: logging.Logger, bounded: BoundedLog, written: Lines) -> None:
    """However many addresses there are, and nothing is kept of those that are not shown."""
    for number in range(10_000):
        refuse(log, number, f"2001:db8::{number:x}")
    bounded.end_minute()
    assert len(written.lines) == 101
    assert written.lines[-1] == ("WARNING 9900 further lines of this kind were left out, the first: refused 100")


def test_what_tells_of_no_peer_has_a_hundred_lines_of_a_kind(
    log: logging.Logger, bounded: BoundedLog, written: Lines
) -> None:
    """Another kind is another line of the source: it is not left out beside it."""
    for number in range(150):
        refuse(log, number)
    log.error("the disk is full")
    bounded.end_minute()
    assert len(written.lines) == 102
    assert written.lines[100:] == [
        "ERROR the disk is full",
        "WARNING 50 further lines of this kind were left out, the first: refused 100",
    ]


def test_a_line_that_cannot_be_made_does_not_stop_who_logs_it(
    log: logging.Logger, bounded: BoundedLog, written: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where it is left out either, and is counted there."""
    monkeypatch.setattr(log, "propagate", False)  # pytest's handler raises

    class Unspeakable:
        def __repr__(self) -> str:
            raise RuntimeError("gone")

    for number in range(MOST_OF_A_PEER + 3):
        what = number if number < MOST_OF_A_PEER else Unspeakable()
        log.warning("refused %r", what, extra={"peer": "10.0.0.7"})
    log.warning("others go on")
    bounded.end_minute()
    assert written.lines[MOST_OF_A_PEER:] == [
        "WARNING others go on",
        "WARNING 3 further lines of this kind were left out (3 about 10.0.0.7), the first: refused %r",
    ]


def test_a_new_minute_begins_anew(log: logging.Logger, bounded: BoundedLog, written: Lines) -> None:
    """The count of the last one is told when it ends, though nothing else is logged; the last ends with the server."""

    async def main() -> None:
        async with bounded.minutes():
            for _ in range(2):
                for number in range(12):
                    refuse(log, number, "10.0.0.7")
                assert len(written.lines) == 10
                await asyncio.sleep(MINUTE + 1)
                assert "2 further lines" in written.lines.pop()
                written.lines.clear()
            for number in range(11):
                refuse(log, number, "10.0.0.7")

    with VirtualTime() as time:
        time.run(main())
    assert "1 further lines" in written.lines[-1]
    assert len(written.lines) == 11


def test_a_failed_handler_s_traceback_is_written_where_its_line_is(
    log: logging.Logger, bounded: BoundedLog, written: Lines
) -> None:
    """Line by line; where the line is left out, it is too, and nothing holds on to what failed."""
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
        "ERROR 1 further lines of this kind were left out (1 about 10.0.0.7), the first: a handler failed"
    )


def test_a_line_is_one_line_and_not_too_long(log: logging.Logger, bounded: BoundedLog, written: Lines) -> None:
    """Whatever a client has put into it."""
    log.warning("topic %s", "a\r\nERROR b\x1b[2J\u2028c\x85")
    log.warning("topic %s", "x" * 1_000_000)
    assert written.lines[0] == r"WARNING topic a\r\nERROR b\x1b[2J\u2028c\x85"
    assert len(written.lines[1]) < MOST_CHARACTERS + 50
    assert written.lines[1].endswith("x… (1000014 characters)")
