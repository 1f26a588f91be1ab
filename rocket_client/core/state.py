"""The lifecycle of a producer, a consumer or an admin.

::

    CREATE_JUST ──start()──> START_FAILED ──all went well──> RUNNING ──shutdown()──> SHUTDOWN_ALREADY

Each can be started once: a second `start`, also after a failure or a shutdown, raises a `ClientStateError`.
"""

from enum import Enum

from rocket_client.errors import ClientStateError


class ServiceState(Enum):
    """The state of a producer, consumer or admin, with the names of Java's ``ServiceState``."""

    CREATE_JUST = "not started"
    START_FAILED = "starting, or failed to start"
    RUNNING = "running"
    SHUTDOWN_ALREADY = "shut down"


class Lifecycle:
    """The state of one producer, consumer or admin; its errors say what to do."""

    __slots__ = ("_what", "running", "state")

    def __init__(self, what: str) -> None:
        self._what = what
        self.state = ServiceState.CREATE_JUST
        self.running = False
        """Whether `state` is RUNNING; an attribute of its own because every send reads it."""

    def begin(self) -> None:
        """Enter START_FAILED, the state during the start.

        Raises:
            ClientStateError: The object was started before.
        """
        if self.state is not ServiceState.CREATE_JUST:
            raise ClientStateError(self._what, self.state.value, "it can be started once; make a new one")
        self.state = ServiceState.START_FAILED

    def succeed(self) -> None:
        """Enter RUNNING."""
        self.state, self.running = ServiceState.RUNNING, True

    def end(self) -> bool:
        """Enter SHUTDOWN_ALREADY; return whether the object was running and must be stopped."""
        was_running = self.running
        if self.state is not ServiceState.CREATE_JUST:
            self.state, self.running = ServiceState.SHUTDOWN_ALREADY, False
        return was_running

    def require_running(self) -> None:
        """Check that the object is running.

        Raises:
            ClientStateError: The object is not running.
        """
        if not self.running:
            advice = (
                "await start() first, or use `async with`"
                if self.state is ServiceState.CREATE_JUST
                else "make a new one"
            )
            raise ClientStateError(self._what, self.state.value, advice)

    def require_not_started(self, action: str) -> None:
        """Check that the object was not started yet.

        Raises:
            ClientStateError: The object was started before.
        """
        if self.state is not ServiceState.CREATE_JUST:
            raise ClientStateError(self._what, self.state.value, f"{action} before start()")
