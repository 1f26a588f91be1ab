"""Garbage collections of a process that runs one application."""

import gc
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # `streamkit --help` imports no application
    from streamkit.application import StreamApplication

__all__ = ["collect_less_often"]

COLLECTED_AFTER: Final = (2_000, 10, 100)
"""Thresholds of `gc.set_threshold`: new objects until a collection of the youngest, and collections of a generation
until one of the next."""


def collect_less_often(application: "StreamApplication", thresholds: tuple[int, int, int]) -> None:
    """Make collections rarer, and cheaper, from the application's start on.

    Python collects after 700 new objects, which is every few messages. A full collection examines all objects of all
    imported modules and stops the loop for tens of milliseconds. So objects from before the start are never examined
    again, and new ones less often. Garbage without cycles, as messages are, is freed at once in any case.

    Args:
        application: The application that this process runs.
        thresholds: The thresholds before the application was imported. If its own code has set others, they stay.
    """
    from streamkit.events import application_started

    gc.collect()  # here, because the loop does not run yet

    def on_start(sender: object) -> None:
        gc.freeze()
        if gc.get_threshold() == thresholds:
            gc.set_threshold(*COLLECTED_AFTER)

    application_started.connect(on_start, sender=application, weak=False)
