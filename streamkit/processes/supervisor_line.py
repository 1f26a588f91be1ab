"""The socket between a supervised process and its supervisor, on the side of the supervised process.

The process writes lines: PROGRESS while a long start makes progress, and STARTED, perhaps followed by a text, when it
has started. It stops when the supervisor's end closes, so that no process outlives a supervisor that was killed.
"""

import os
import signal
import socket
import threading
from typing import Final, Self

__all__ = ["PROGRESS", "SOCKET_VARIABLE", "STARTED", "SupervisorLine"]

SOCKET_VARIABLE: Final = "STREAMKIT_SUPERVISOR_LINE"
"""The environment variable with the file descriptor of the supervised process's end of the socket."""
STARTED: Final = "started"
PROGRESS: Final = "progress"


class SupervisorLine:
    """This process's end of the socket to its supervisor."""

    def __init__(self, line: int) -> None:
        """Create the end of a socket.

        Args:
            line: Its file descriptor.
        """
        self._socket = socket.socket(fileno=line)
        self._socket.set_inheritable(False)

    @classmethod
    def from_environment(cls) -> Self | None:
        """Return the end that the environment names, and remove the name; None if this process has no supervisor."""
        line = os.environ.pop(SOCKET_VARIABLE, None)
        return None if line is None else cls(int(line))

    def stop_with_supervisor(self) -> None:
        """Send this process SIGTERM when the supervisor is gone; ignore SIGHUP, which is meant for the supervisor."""
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        threading.Thread(target=self._listen, name="streamkit supervisor", daemon=True).start()

    def report_started(self, text: str = "") -> None:
        """Notify the supervisor that this process has started.

        Args:
            text: What the supervisor is to know about the process, in one line.
        """
        self._write(f"{STARTED} {text}".rstrip())

    def report_progress(self) -> None:
        """Notify the supervisor that the start of this process takes long and makes progress."""
        self._write(PROGRESS)

    def _write(self, line: str) -> None:
        try:
            self._socket.sendall(f"{line}\n".encode())
        except OSError:
            pass  # the supervisor is gone, which `_listen` notices too

    def _listen(self) -> None:
        try:
            while self._socket.recv(1024):
                pass
        except OSError:
            pass  # the supervisor was killed
        # SIGTERM, because a process that is still starting handles nothing else.
        os.kill(os.getpid(), signal.SIGTERM)
