"""What happened so far in one send; the asyncio client and the blocking one share it."""

from rocket_client.core.send_result import SendResult
from rocket_client.errors import SendError, SendRejectedError, SendTimeoutError
from rocket_remoting.wire.errors import RemotingError, RequestTimeout, ResponseError


class SendAttempts:
    """What happened so far in one send."""

    __slots__ = ("_limit", "_topic", "brokers", "causes", "rejection", "stored")

    def __init__(self, topic: str, limit: float) -> None:
        self._topic = topic
        self._limit = limit
        self.brokers: list[str] = []
        self.causes: list[RemotingError] = []
        self.rejection: ResponseError | None = None
        self.stored: SendResult | None = None

    @property
    def last_broker(self) -> str | None:
        return self.brokers[-1] if self.brokers else None

    def is_final(self, error: RemotingError, retry_codes: frozenset[int]) -> bool:
        """Note a failure; whether it ends the send."""
        self.causes.append(error)
        if isinstance(error, ResponseError) and error.code not in retry_codes:
            self.rejection = error
            return True
        return False

    def keep(self, result: SendResult) -> None:
        """Note that it is stored, though not as safely as it should be."""
        self.stored = result
        self.causes.append(RemotingError(f"stored, with status {result.status.value}"))

    def conclude(self, time_is_over: bool) -> SendResult:
        """The result, or the error that tells all attempts."""
        if self.stored is not None:
            return self.stored
        if self.rejection is not None:
            raise SendRejectedError(
                self._topic, self.brokers, self.causes, self.rejection
            ) from self.rejection
        cause = self.causes[-1] if self.causes else None
        if time_is_over or isinstance(cause, RequestTimeout):
            raise SendTimeoutError(self._topic, self.brokers, self.causes, self._limit) from cause
        raise SendError(self._topic, self.brokers, self.causes) from cause
