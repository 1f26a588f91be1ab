"""A worker process of several that run the same application, and its socket to the supervisor.

The worker writes to the socket when its application has started. It stops its application when the supervisor's end
closes, so that no worker outlives a supervisor that was killed.
"""

import os
import signal
import socket
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # `streamkit --help` imports no application
    from streamkit.application import StreamApplication

__all__ = ["SOCKET_VARIABLE", "STARTED", "Worker"]

SOCKET_VARIABLE: Final = "STREAMKIT_WORKER_LINE"
"""The environment variable with the file descriptor of the worker's end of the socket."""
STARTED: Final = b"started\n"


class Worker:
    """This process, as a worker of its supervisor."""

    def __init__(self, application: "StreamApplication", line: int) -> None:
        """Create the worker.

        Args:
            application: The application that this process runs.
            line: The file descriptor of the socket to the supervisor.
        """
        self._application = application
        self._socket = socket.socket(fileno=line)
        self._socket.set_inheritable(False)

    def attach(self) -> None:
        """Notify the supervisor when the application has started; stop the application when the supervisor is gone."""
        from streamkit.events import application_started

        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a SIGHUP to all processes is meant for the supervisor
        application_started.connect(self._tell, sender=self._application)
        threading.Thread(target=self._listen, name="streamkit supervisor", daemon=True).start()

    def _tell(self, sender: object) -> None:
        try:
            self._socket.sendall(STARTED)
        except OSError:
            pass  # the supervisor is gone, which `_listen` notices too

    def _listen(self) -> None:
        try:
            while self._socket.recv(1024):
                pass
        except OSError:
            pass  # the supervisor was killed
        # SIGTERM, because `request_stop` has no effect while the application is still starting.
        os.kill(os.getpid(), signal.SIGTERM)
