"""Distinguish failures of a call of the user's code from exceptions that end the caller's task or the process.

A CancelledError may be either: the task that makes the call is cancelled, or the call awaited something that was
cancelled. An exception that derives from BaseException alone, such as that of `pytest.fail`, is a failure. Only
exceptions that end a coroutine or the process are not.
"""

import asyncio
from typing import Final

from streamkit.errors import MessagingError
from streamkit.messaging.message import Message

__all__ = ["failure_of", "must_be_raised_again"]

_ENDS: Final = (KeyboardInterrupt, SystemExit, GeneratorExit)


def must_be_raised_again(error: BaseException) -> bool:
    """Return whether an exception of a call in the running task must be raised again."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, _ENDS)


def failure_of(error: BaseException, who: str, message: Message[object] | None = None) -> Exception:
    """Return `error` if it is an `Exception`, else a `MessagingError` with `error` as its cause.

    Args:
        error: The exception of the call.
        who: What raised it, such as ``the listener``.
        message: The message that was handled, if any.
    """
    if isinstance(error, Exception):
        return error
    if isinstance(error, asyncio.CancelledError):
        failure = MessagingError(f"{who} awaited something that was cancelled", message)
    else:
        failure = MessagingError(
            f"{who} raised {type(error).__qualname__}, which is not a subclass of Exception", message
        )
    failure.__cause__ = error
    return failure
