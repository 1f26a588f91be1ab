"""The tables of the pattern, as SQLAlchemy knows them.

::

    producer_msg    one row for each message, inserted in the transaction of the sender's own changes
    producer_lane   one row for each lane of a topic: who relays the rows of the lane, and until when
    consumer_msg    at the consumer: what became of each message

A *lane* is a number that follows from a row's key. The rows of one lane have one relay at a time, so the rows of one
key are sent in order. Names are lower case, so that `msgId` in a statement finds `msgid` in every database. Times are
milliseconds since 1970.
"""

import zlib
from typing import Final

from sqlalchemy import (
    BigInteger,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects.mysql import LONGBLOB, LONGTEXT
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from streamkit.patterns.outbox.status import MessageStatus

__all__ = ["CONSUMER_TABLES", "LANES", "PRODUCER_TABLES", "ConsumerMessage", "Lane", "ProducerMessage", "lane_of"]

LANES: Final = 64
"""The number of lanes. A relay takes a part of them at a time, so that several relays share the work."""

_NAME: Final = 255
_Id = BigInteger().with_variant(Integer, "sqlite")  # only INTEGER counts up by itself there
_Bytes = LargeBinary().with_variant(LONGBLOB, "mysql", "mariadb")
_LongText = Text().with_variant(LONGTEXT, "mysql", "mariadb")
_OPTIONS: Final = {
    # MariaDB compares text without case otherwise: two ids could be one.
    f"{dialect}_{name}": value
    for dialect in ("mysql", "mariadb")
    for name, value in (("charset", "utf8mb4"), ("collate", "utf8mb4_bin"), ("engine", "InnoDB"))
}
"""The options of the tables on MySQL and MariaDB, which have a dialect each."""


class _Table(DeclarativeBase):
    metadata = MetaData()


class ProducerMessage(_Table):
    """A message that the sender's transaction has decided to send."""

    __tablename__ = "producer_msg"
    __table_args__ = (
        UniqueConstraint("topic", "msgid", name="uq_producer_msg"),
        Index("ix_producer_msg_pending", "topic", "pending", "id"),
        Index("ix_producer_msg_due", "topic", "pending", "due_time"),
        Index("ix_producer_msg_status", "topic", "message_status", "create_time"),
        _OPTIONS,
    )

    id: Mapped[int] = mapped_column(_Id, primary_key=True, autoincrement=True)
    """The order in which the rows were inserted."""
    msgid: Mapped[str] = mapped_column(String(_NAME))
    """The business id, such as the number of the order; unique within the topic."""
    topic: Mapped[str] = mapped_column(String(_NAME))
    """The output binding that sends the message."""
    body: Mapped[bytes | None] = mapped_column(_Bytes)
    """The payload as it is sent; NULL for a message without a payload."""
    headers: Mapped[str] = mapped_column(_LongText)
    """The headers, as a JSON object."""
    message_key: Mapped[str | None] = mapped_column(String(_NAME))
    """Rows with one key are sent in the order of `id`; NULL for a row that may be sent at any time."""
    lane: Mapped[int] = mapped_column(SmallInteger)
    """The lane of the key."""
    message_status: Mapped[str] = mapped_column(String(40))
    """The name of a `MessageStatus`."""
    create_time: Mapped[int] = mapped_column(BigInteger)
    """When the row was inserted."""
    update_time: Mapped[int] = mapped_column(BigInteger)
    """When the row was last changed."""
    send_times: Mapped[int] = mapped_column(Integer, default=0)
    """How often the message had to be sent again."""
    pending: Mapped[int | None] = mapped_column(SmallInteger)
    """1 as long as the message has to be sent, else NULL."""
    due_time: Mapped[int] = mapped_column(BigInteger)
    """The time from which a pending row is sent: later than now after a failure."""
    sent_time: Mapped[int | None] = mapped_column(BigInteger)
    """When the broker last confirmed the message."""
    check_time: Mapped[int] = mapped_column(BigInteger, default=0)
    """When the consumer was last asked about the message."""
    compensated_time: Mapped[int | None] = mapped_column(BigInteger)
    """When the sender's roll-back was run for a row that is rolled back."""
    last_error: Mapped[str | None] = mapped_column(_LongText)
    """Why the message could not be sent the last time."""

    @property
    def status(self) -> MessageStatus:
        """The row's status."""
        return MessageStatus(self.message_status)

    def __repr__(self) -> str:
        return f"<ProducerMessage {self.msgid!r} to {self.topic!r} {self.message_status}>"


class Lane(_Table):
    """The claim on a lane of a topic."""

    __tablename__ = "producer_lane"
    __table_args__ = (
        Index("ix_producer_lane_claim", "claim"),
        _OPTIONS,
    )

    topic: Mapped[str] = mapped_column(String(_NAME), primary_key=True)
    lane: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    claim: Mapped[str | None] = mapped_column(String(36))
    """The token of the round in which a relay sends the lane's rows; NULL if none does."""
    claimed_until: Mapped[int] = mapped_column(BigInteger)
    """From this time on another relay may take the lane over."""


class ConsumerMessage(_Table):
    """What became of a message at the consumer."""

    __tablename__ = "consumer_msg"
    __table_args__ = (
        Index("ix_consumer_msg_created", "topic", "create_time"),
        _OPTIONS,
    )

    msgid: Mapped[str] = mapped_column(String(_NAME), primary_key=True)
    topic: Mapped[str] = mapped_column(String(_NAME), primary_key=True)
    create_time: Mapped[int] = mapped_column(BigInteger)
    message_status: Mapped[str] = mapped_column(String(40))


_BY_NAME: Final = _Table.metadata.tables
PRODUCER_TABLES: Final[tuple[Table, ...]] = (_BY_NAME["producer_msg"], _BY_NAME["producer_lane"])
"""The tables in the sender's database."""
CONSUMER_TABLES: Final[tuple[Table, ...]] = (_BY_NAME["consumer_msg"],)
"""The tables in the consumer's database."""


def lane_of(key: str) -> int:
    """Return the lane of a key: the same one in every process."""
    return zlib.crc32(key.encode()) % LANES
