"""The attempts of one send: the rules for another attempt, and the result or error at the end.

::

    an attempt failed because                    send           send_async     broker isolated (faults)
    no connection, connection lost, no answer    next broker    next broker    yes
    too many requests                            next broker    next broker    no
    answer in `retry_response_codes`             next broker    given up       yes
    any other answer (SYSTEM_BUSY, …)            given up       given up       yes

If the queue is fixed, by the `queue` argument or by a selector, `send` makes one attempt, and `send_async` tries the
same queue again: another queue would break the order. The time limit is for all attempts together. The blocking client
has the rules of `send`.

This module does no I/O and has no clock: times are seconds of any clock that the caller chooses.
"""

from typing import NamedTuple

from rocket_client.core.send_result import SendResult, SendStatus
from rocket_client.errors import SendError, SendRejectedError, SendTimeoutError
from rocket_client.settings import ProducerSettings
from rocket_remoting.wire.errors import RemotingError, RequestTimeout, ResponseError


class SendRules(NamedTuple):
    """The rules for the attempts of a send.

    Attributes:
        most_attempts: Maximum number of attempts.
        retry_codes: Response codes after which another attempt is made.
        retries_unsafe_store: Whether to try again if the message was stored with a status other than SEND_OK.
    """

    most_attempts: int
    retry_codes: frozenset[int]
    retries_unsafe_store: bool

    @classmethod
    def of(cls, settings: ProducerSettings, *, is_fixed: bool, sync: bool = True) -> "SendRules":
        """Return the rules of a send.

        Args:
            settings: The producer's settings.
            is_fixed: Whether the queue is fixed.
            sync: True for the rules of `send`, False for those of `send_async`.
        """
        if not sync:
            return cls(1 + settings.retry_times_when_send_async_failed, frozenset(), False)
        return cls(
            1 if is_fixed else 1 + settings.retry_times_when_send_failed,
            settings.retry_response_codes,
            settings.retry_another_broker_when_not_store_ok,
        )


class SendAttempts:
    """The attempts of one send so far.

    Args:
        topic: The message's topic.
        rules: The rules for attempts.
        begun: When the send began, in seconds.
        limit: Seconds for all attempts together.

    Attributes:
        deadline: The time at which the send ends at the latest, in seconds.
        brokers: The brokers that were tried, in order.
        causes: Why attempts failed, in order.
    """

    __slots__ = ("_limit", "_rejection", "_rules", "_stored", "_topic", "brokers", "causes", "deadline")

    def __init__(self, topic: str, rules: SendRules, begun: float, limit: float) -> None:
        self.deadline = begun + limit
        self.brokers: list[str] = []
        self.causes: list[RemotingError] = []
        self._topic = topic
        self._rules = rules
        self._limit = limit
        self._rejection: ResponseError | None = None
        self._stored: SendResult | None = None

    @property
    def last_broker(self) -> str | None:
        """The broker of the last attempt; None before the first."""
        return self.brokers[-1] if self.brokers else None

    def may_begin(self, now: float) -> bool:
        """Return whether another attempt may begin."""
        return now < self.deadline and len(self.brokers) < self._rules.most_attempts and self._rejection is None

    def begin(self, broker_name: str) -> None:
        """Note that an attempt at the broker begins."""
        self.brokers.append(broker_name)

    def failed(self, error: RemotingError) -> None:
        """Note that the last attempt failed."""
        self.causes.append(error)
        if isinstance(error, ResponseError) and error.code not in self._rules.retry_codes:
            self._rejection = error

    def is_final(self, result: SendResult) -> bool:
        """Note that the last attempt stored the message; return whether the send ends with it."""
        if result.status is SendStatus.SEND_OK or not self._rules.retries_unsafe_store:
            return True
        self._stored = result
        self.causes.append(RemotingError(f"stored, with status {result.status.value}"))
        return False

    def conclude(self, now: float) -> SendResult:
        """Return the result of a send that makes no further attempt.

        Raises:
            SendRejectedError: A broker refused the message.
            SendTimeoutError: The deadline has passed, or the last broker did not answer.
            SendError: All attempts failed.
        """
        # A broker has stored the message, whatever came later: after an error the caller would send it once more.
        if self._stored is not None:
            return self._stored
        if self._rejection is not None:
            raise SendRejectedError(self._topic, self.brokers, self.causes, self._rejection) from self._rejection
        cause = self.causes[-1] if self.causes else None
        if now >= self.deadline or isinstance(cause, RequestTimeout):
            raise SendTimeoutError(self._topic, self.brokers, self.causes, self._limit) from cause
        raise SendError(self._topic, self.brokers, self.causes) from cause

    def __repr__(self) -> str:
        return f"<SendAttempts to {self._topic}: {', '.join(self.brokers) or 'none yet'}>"
