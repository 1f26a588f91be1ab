"""What a round of a relay records in the database after its sends."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, bindparam, update

from streamkit.patterns.outbox.claims import ClaimedRow, held_lanes, release
from streamkit.patterns.outbox.status import MessageStatus
from streamkit.patterns.outbox.tables import PRODUCER_TABLES, ProducerMessage
from streamkit.patterns.storable_text import storable

__all__ = ["Results", "Retries"]

_MOST_OF_ERROR = 2000

_ROW = PRODUCER_TABLES[0].c
_VALUES: dict[str, object] = {
    "pending": None,
    "sent_time": bindparam("now_"),
    "update_time": bindparam("now_"),
    "last_error": None,
}
_STORED = update(PRODUCER_TABLES[0]).where(_ROW.id.in_(bindparam("ids_", expanding=True)), _ROW.pending == 1)
_STORED = _STORED.values(_VALUES)


@dataclass(frozen=True, slots=True)
class Retries:
    """How refused messages are sent again; times in milliseconds."""

    backoff: int
    max_backoff: int
    max_send_times: int

    def pause(self, failures: int) -> int:
        """Return the milliseconds to wait after ``failures`` failures in a row, at least one."""
        return min(self.max_backoff, self.backoff << min(failures - 1, 30))


@dataclass(slots=True)
class Results:
    """The results of the sends of one claim.

    Attributes:
        sent: The rows that the broker has stored.
        refused: The rows that the broker or the binder has refused, and why.
    """

    sent: list[ClaimedRow] = field(default_factory=list)
    refused: list[tuple[ClaimedRow, str]] = field(default_factory=list)

    def record(
        self, connection: Connection, topic: str, token: str, now: int, retries: Retries
    ) -> Sequence[ClaimedRow]:
        """Record the results of the lanes that still have the claim's token, and give the lanes up.

        Returns:
            The rows that were sent and are not recorded: another relay has taken their lanes over and sends them again.
        """
        held = held_lanes(connection, topic, token)
        sent = [row.id for row in self.sent if row.lane in held]
        if sent:
            connection.execute(_STORED, {"ids_": sent, "now_": now})
        for row, reason in self.refused:
            if row.lane in held:
                self._refuse(connection, row, reason, now, retries)
        release(connection, topic, token)
        return [row for row in self.sent if row.lane not in held]

    @staticmethod
    def _refuse(connection: Connection, row: ClaimedRow, reason: str, now: int, retries: Retries) -> None:
        times = row.send_times + 1
        values: dict[str, object] = {
            "send_times": times,
            "last_error": storable(reason, _MOST_OF_ERROR),
            "update_time": now,
        }
        if times >= retries.max_send_times:
            values |= {"pending": None, "message_status": str(MessageStatus.CONFIRMATION_RETRIES_EXCEEDED)}
        else:
            values["due_time"] = now + retries.pause(times)
        pending = update(ProducerMessage).where(ProducerMessage.id == row.id, ProducerMessage.pending == 1)
        connection.execute(pending.values(values))
