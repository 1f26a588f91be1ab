"""The descendants of a process, and the end of a process."""

import asyncio
import os
import signal


async def descendants(process: int) -> dict[int, str]:
    """Return the processes that a process has started, directly and indirectly, with their command lines."""
    listing = await asyncio.create_subprocess_exec(
        *("ps", "-A", "-ww", "-o", "pid=", "-o", "ppid=", "-o", "args="), stdout=asyncio.subprocess.PIPE
    )
    listed, _ = await listing.communicate()
    children: dict[int, dict[int, str]] = {}
    for line in listed.decode(errors="replace").splitlines():
        pid, parent, *command = line.split(maxsplit=2)
        children.setdefault(int(parent), {})[int(pid)] = "".join(command)
    found: dict[int, str] = {}
    waiting = [process]
    while waiting:
        started = children.get(waiting.pop(), {})
        found |= started
        waiting += started
    return found


def kill(process: int) -> None:
    """Kill a process, as `kill -9` does, unless it has ended."""
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        pass
