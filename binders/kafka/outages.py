"""Brokers that are away: one line in the log when a broker goes away, and one when it is back.

kafka-python logs several errors for each attempt to connect, of each client, for as long as a broker is away. A filter
leaves these out, unless the level is DEBUG. What goes beyond connections, such as a refused user, is still logged.
"""

import logging
import re
from threading import Lock
from time import monotonic
from typing import Final

__all__ = ["note_answer", "note_failure", "without_repetitions"]

logger = logging.getLogger(__name__)

FORGOTTEN_AFTER: Final = 600.0
"""Seconds without an attempt after which an outage is forgotten, because no client wants the broker any more."""

_LOGGERS: Final = (
    "kafka.cluster",
    "kafka.consumer.fetcher",
    "kafka.coordinator",
    "kafka.coordinator.consumer",
    "kafka.coordinator.heartbeat",
    "kafka.net.connection",
    "kafka.net.inet",
    "kafka.net.manager",
    "kafka.net.selector",
    "kafka.net.transport",
    "kafka.producer.sender",
)
_OF_CONNECTIONS: Final = re.compile(
    "KafkaConnectionError|NodeNotReadyError|Unable to bootstrap|Cancelled|socket disconnected|ECONN|EPIPE"
    "|No node available|Bootstrap .* not ready"
    # A request without an answer ends its connection; the line about the request stays.
    r"|(?:Abort|Connection lost|Bootstrap connection)\b.*RequestTimedOutError"
)

_lock = Lock()
_away: dict[str, float] = {}
"""When the last attempt to reach each broker that is away failed, by its address, in seconds of `monotonic`."""


def note_failure(address: str, error: BaseException) -> None:
    """Note that a broker cannot be reached; the first failure of an outage is logged.

    Args:
        address: The broker's host and port.
        error: The cause.
    """
    now = monotonic()
    with _lock:
        last, _away[address] = _away.get(address), now
    if last is None or now - last > FORGOTTEN_AFTER:
        logger.warning("Kafka broker %s cannot be reached: %s; trying until it answers", address, error)


def note_answer(address: str) -> None:
    """Note that a broker answers; the end of an outage is logged."""
    if address in _away:
        with _lock:
            was_away = _away.pop(address, None) is not None
        if was_away:
            # A warning, as the failure was: logs that show only warnings need the end of the outage too.
            logger.warning("Kafka broker %s answers again", address)


def without_repetitions() -> None:
    """Leave kafka-python's lines about failed connections out of the log, unless its level is DEBUG."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_is_worth_logging)  # a filter that is there already is not added again


def _is_worth_logging(record: logging.LogRecord) -> bool:
    if logging.getLogger(record.name).isEnabledFor(logging.DEBUG):
        return True
    error = record.exc_info[1] if record.exc_info else None
    text = record.getMessage() if error is None else f"{record.getMessage()} {type(error).__name__}: {error}"
    return _OF_CONNECTIONS.search(text) is None
