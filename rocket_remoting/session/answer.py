"""The delivery of a response to the task that awaits it.

A task that awaits a future goes on in the next turn of the loop after `set_result`, and the loop asks the kernel for
events before. With `deliver` it goes on within the step that reads the response. What the tasks send that were waiting
for the responses of one read then leaves in one write.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from rocket_remoting.wire.command import RemotingCommand

__all__ = ["deliver"]


def deliver(response: RemotingCommand, future: asyncio.Future[RemotingCommand]) -> None:
    """Set the result of a future that is not done, and let the task that awaits it go on at once.

    Several tasks go on in the next turn of the loop, and so does one if another task runs now, which has made the
    connection read on: no task can go on within the step of another one.
    """
    # asyncio does not document the attribute. None if nothing waits.
    waiting: Sequence[Any] = getattr(future, "_callbacks", None) or ()
    if len(waiting) != 1 or asyncio.current_task(future.get_loop()) is not None:
        future.set_result(response)
        return
    ((go_on, context),) = waiting
    future.remove_done_callback(go_on)
    future.set_result(response)
    try:
        context.run(go_on, future)
    except BaseException as error:  # SystemExit or KeyboardInterrupt of the task: they end the loop
        future.get_loop().call_soon(_raise, error)


def _raise(error: BaseException) -> None:
    raise error
