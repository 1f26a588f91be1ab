"""The location of the application's own code in a stack, for warnings about that code."""

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
_STREAMKIT: Final = str(Path(__file__).parents[1])


def line_of(frames: Sequence[FrameType]) -> str:
    """Return the file, line and function of the application's code, such as ``shop.py:12 in take``.

    The location is that of the innermost frame outside Python, installed packages and streamkit. If there is no such
    frame, the location is that of the innermost frame outside Python, or else of the innermost frame.

    Args:
        frames: A stack, the outermost frame first.
    """
    if not frames:
        return "no line of Python"
    innermost_first = frames[::-1]
    for foreign in (_is_of_libraries, _is_of_python):
        for frame in innermost_first:
            if not foreign(frame.f_code.co_filename):
                return _described(frame)
    return _described(innermost_first[0])


def line_of_task(task: "asyncio.Task[object]") -> str:
    """Return the line at which a task waits, in the form of :func:`line_of`."""
    frames: list[FrameType] = []
    coroutine: object = task.get_coro()
    while inspect.iscoroutine(coroutine) and coroutine.cr_frame is not None:
        frames.append(coroutine.cr_frame)
        coroutine = coroutine.cr_await
    return line_of(frames)


def _is_of_python(filename: str) -> bool:
    return (filename.startswith(_STANDARD_LIBRARY) and not filename.startswith(_INSTALLED)) or filename[0] == "<"


def _is_of_libraries(filename: str) -> bool:
    return _is_of_python(filename) or filename.startswith((*_INSTALLED, _STREAMKIT))


def _described(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}"
