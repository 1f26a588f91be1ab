"""The life of a producer, a consumer or an admin.

::

    CREATE_JUST ──start()──> START_FAILED ──all went well──> RUNNING ──shutdown()──> SHUTDOWN_ALREADY

It happens once: a second `start`, also after a failure or a shutdown, is an error.
"""

from enum import Enum

from rocket_client.errors import ClientStateError


class ServiceState(Enum):
    """Where in its life it is; Java's names."""

    CREATE_JUST = "not started"
    START_FAILED = "starting, or failed to start"
    RUNNING = "running"
    SHUTDOWN_ALREADY = "shut down"


class Lifecycle:
    """The state of one service, with errors that say what to do."""

    __slots__ = ("_what", "running", "state")

    def __init__(self, what: str) -> None:
        self._what = what
        self.state = ServiceState.CREATE_JUST
        self.running = False
        """`state` is RUNNING; read on every send."""

    def begin(self) -> None:
        """Enter START_FAILED, the state while starting.

        Raises:
            ClientStateError: It was started before.
        """
        if self.state is not ServiceState.CREATE_JUST:
            raise ClientStateError(self._what, self.state.value, "it can be started once; make a new one")
        self.state = ServiceState.START_FAILED

    def succeed(self) -> None:
        """Enter RUNNING."""
        self.state, self.running = ServiceState.RUNNING, True

    def end(self) -> bool:
        """Enter SHUTDOWN_ALREADY; False when it was not running, so that there is nothing to stop."""
        was_running = self.running
        if self.state is not ServiceState.CREATE_JUST:
            self.state, self.running = ServiceState.SHUTDOWN_ALREADY, False
        return was_running

    def require_running(self) -> None:
        """Return when it runs.

        Raises:
            ClientStateError: It does not.
        """
        if not self.running:
            advice = (
                "await start() first, or use `async with`"
                if self.state is ServiceState.CREATE_JUST
                else "make a new one"
            )
            raise ClientStateError(self._what, self.state.value, advice)

    def require_not_started(self, action: str) -> None:
        """Return when it was not started yet.

        Raises:
            ClientStateError: It was.
        """
        if self.state is not ServiceState.CREATE_JUST:
            raise ClientStateError(self._what, self.state.value, f"{action} before start()")
