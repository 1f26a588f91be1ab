"""Whether what comes out of a call of the user's code is a failure of that call, or meant for who makes it.

A CancelledError is both: somebody cancels the task that makes the call, or the call awaited something that was
cancelled. What is derived from BaseException alone, such as what `pytest.fail` raises, is a failure; only what ends a
coroutine or the process is not.
"""

import asyncio
from typing import Final

from streamkit.errors import MessagingError
from streamkit.messaging.message import Message

__all__ = ["ends_more_than_the_call", "failure_of"]

_ENDS: Final = (KeyboardInterrupt, SystemExit, GeneratorExit)


def ends_more_than_the_call(error: BaseException) -> bool:
    """Return whether what was raised in the running task is to be raised on."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, _ENDS)


def failure_of(error: BaseException, who: str, message: Message[object] | None = None) -> Exception:
    """Return a failure as an exception: itself, or one whose cause it is.

    Args:
        error: What was raised.
        who: Who raised it, such as ``the listener``.
        message: The message it is about, if there is one.
    """
    if isinstance(error, Exception):
        return error
    if isinstance(error, asyncio.CancelledError):
        failure = MessagingError(f"{who} awaited something that was cancelled", message)
    else:
        failure = MessagingError(f"{who} raised {type(error).__qualname__}, which is no Exception", message)
    failure.__cause__ = error
    return failure
