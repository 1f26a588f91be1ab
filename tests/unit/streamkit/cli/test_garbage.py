"""Garbage collections of commands, and of `streamkit run`."""

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from streamkit import StreamApplication, cli
from streamkit.cli.garbage import COLLECTED_AFTER, collect_less_often
from streamkit.events import application_started


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[tuple[int, int, int]]:
    """The thresholds of this process, which the test may change."""
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def test_objects_of_the_start_are_not_examined_again(thresholds: tuple[int, int, int]) -> None:
    """Nothing changes before the start, nor when another application starts."""
    app = StreamApplication()
    collect_less_often(app, thresholds)
    kept: list[object] = [[] for _ in range(1_000)]
    frozen = gc.get_freeze_count()
    application_started.send(StreamApplication())
    assert (gc.get_threshold(), gc.get_freeze_count()) == (thresholds, frozen)
    application_started.send(app)
    assert gc.get_threshold() == COLLECTED_AFTER
    assert gc.get_freeze_count() >= frozen + len(kept)


def test_thresholds_of_the_application_stay(thresholds: tuple[int, int, int]) -> None:
    """Its own code knows better."""
    app = StreamApplication()
    gc.set_threshold(12_345)
    collect_less_often(app, thresholds)
    application_started.send(app)
    assert gc.get_threshold()[0] == 12_345


def test_command_collects_rarely() -> None:
    """Its imports make many objects and little garbage; a caller of `main` has its own thresholds afterwards."""
    before = gc.get_threshold()
    during: list[tuple[int, int, int]] = []
    group = cli.LazyGroup("group")
    group.command("look")(lambda: during.append(gc.get_threshold()))
    group.main(["look"], standalone_mode=False)
    assert during == [cli.COLLECTED_AFTER]
    assert gc.get_threshold() == before


def test_objects_of_a_command_are_not_searched_at_its_end() -> None:
    """Tens of thousands are young by then."""
    script = """
import gc
import subprocess
import sys
from streamkit.cli import main
sizes = []
def look(phase, details):
    if phase == "start":
        sizes.append(sum(len(gc.get_objects(each)) for each in range(details["generation"] + 1)))
main.command("make")(lambda: globals().update(kept=[[number] for number in range(50_000)]))
gc.callbacks.append(look)
main(["make"], standalone_mode=False)
more = [[number] for number in range(10_000)]
print(len(sizes), max(sizes))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    collections, largest = map(int, done.stdout.split())
    assert collections > 0
    assert largest < 50_000
