"""Which line of the application's own code is at work, for warnings about it."""

import asyncio
import inspect
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

__all__ = ["line_of", "line_of_task"]

_STANDARD_LIBRARY: Final = sysconfig.get_path("stdlib")
_INSTALLED: Final = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
_STREAMKIT: Final = str(Path(__file__).parent)


def line_of(frames: Sequence[FrameType]) -> str:
    """Return a line such as ``shop.py:12 in take``.

    Args:
        frames: A stack, the outermost frame first. The innermost one that belongs to neither Python, an installed
            package nor streamkit is told; where there is none, the innermost one outside Python, or of all.
    """
    if not frames:
        return "no line of Python"
    innermost_first = frames[::-1]
    for foreign in (_is_not_the_application_s, _is_python_s):
        for frame in innermost_first:
            if not foreign(frame.f_code.co_filename):
                return _told(frame)
    return _told(innermost_first[0])


def line_of_task(task: "asyncio.Task[object]") -> str:
    """Return the line at which a task waits, as :func:`line_of`."""
    frames: list[FrameType] = []
    coroutine: object = task.get_coro()
    while inspect.iscoroutine(coroutine) and coroutine.cr_frame is not None:
        frames.append(coroutine.cr_frame)
        coroutine = coroutine.cr_await
    return line_of(frames)


def _is_python_s(filename: str) -> bool:
    return (filename.startswith(_STANDARD_LIBRARY) and not filename.startswith(_INSTALLED)) or filename[
        0
    ] == "<"


def _is_not_the_application_s(filename: str) -> bool:
    return _is_python_s(filename) or filename.startswith((*_INSTALLED, _STREAMKIT))


def _told(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
