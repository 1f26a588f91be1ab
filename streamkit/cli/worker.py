"""One process of several that run the same application, and its line to the supervisor.

The line is a socket: the worker writes to it when its application has started, and stops its application when the
supervisor's end closes, so that no worker outlives a supervisor that was killed.
"""

import os
import signal
import socket
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # `streamkit --help` imports no application
    from streamkit.application import StreamApplication

__all__ = ["LINE", "STARTED", "Worker"]

LINE: Final = "STREAMKIT_WORKER_LINE"
"""The environment variable with the number of the worker's end of the socket."""
STARTED: Final = b"started\n"


class Worker:
    """This process, as its supervisor's worker."""

    def __init__(self, application: "StreamApplication", line: int) -> None:
        """Tell and hear the supervisor by the socket with that file descriptor."""
        self._application = application
        self._socket = socket.socket(fileno=line)
        self._socket.set_inheritable(False)

    def attach(self) -> None:
        """Tell the supervisor when the application has started; stop it when the supervisor is gone."""
        from streamkit.events import application_started

        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # whoever sends it to all processes means the supervisor
        application_started.connect(self._tell, sender=self._application)
        threading.Thread(target=self._listen, name="streamkit supervisor", daemon=True).start()

    def _tell(self, sender: object) -> None:
        try:
            self._socket.sendall(STARTED)
        except OSError:
            pass  # the supervisor is gone, which `_listen` sees too

    def _listen(self) -> None:
        try:
            while self._socket.recv(1024):
                pass
        except OSError:
            pass  # it was killed
        # A signal, not `request_stop`: it is heard also while the application is still starting.
        os.kill(os.getpid(), signal.SIGTERM)
