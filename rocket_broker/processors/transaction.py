"""Requests 37 and 323: end a transaction, and have an abandoned transaction checked again."""

import logging

from rocket_broker.limits.refusal import Refusal
from rocket_broker.loop.loop_time import loop_time
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.processors.send import put_refusal
from rocket_broker.store.messages import PutStatus
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.headers import EndTransactionRequestHeader, ResumeCheckHalfMessageRequestHeader
from rocket_remoting.wire.message import MessageExt
from rocket_remoting.wire.message_id import parse_offset_id
from rocket_remoting.wire.properties import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TRANSACTION_CHECK_TIMES,
)
from rocket_remoting.wire.record import decode_record
from rocket_remoting.wire.sys_flag import TRANSACTION_COMMIT, TRANSACTION_NOT, TRANSACTION_ROLLBACK
from rocket_remoting.wire.topics import TRANS_CHECK_MAX_TIME_TOPIC

__all__ = ["TransactionProcessor"]

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_WARNINGS = 1.0


class TransactionProcessor:
    """Ends transactions. Clients send END_TRANSACTION one-way, so a refusal is logged, at most one a second."""

    def __init__(self, context: BrokerContext) -> None:
        self._settings = context.settings
        self._store = context.store
        self._halves = context.halves
        self._statistics = context.statistics
        self._silent_until = 0.0

    def end(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """END_TRANSACTION (37): commit or roll back a transaction; "unknown" leaves it to the next check."""
        header = command.header(EndTransactionRequestHeader)
        try:
            self._end(header)
        except Refusal as refusal:
            if command.is_oneway and loop_time() >= self._silent_until:
                self._silent_until = loop_time() + SECONDS_BETWEEN_WARNINGS
                logger.warning(
                    "end of a transaction by %s refused: %s",
                    connection.remote_address, refusal, extra=connection.log_peer,
                )  # fmt: skip
            raise
        return RemotingCommand.response(command)

    def resume(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """RESUME_CHECK_HALF_MESSAGE (323): make an abandoned half message pending again, with no checks counted."""
        header = command.header(ResumeCheckHalfMessageRequestHeader)
        message = self._put_aside(header.msg_id or "")
        message.properties[PROPERTY_TRANSACTION_CHECK_TIMES] = "0"
        status = self._halves.resume(message)
        if status is not PutStatus.OK:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed: {status.value}",
            )
        logger.info("%r was restored as a half message", message)
        return RemotingCommand.response(command)

    def _end(self, header: EndTransactionRequestHeader) -> None:
        outcome = header.commit_or_rollback
        if outcome not in (TRANSACTION_NOT, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"commitOrRollback field wrong: {outcome} is not one of {TRANSACTION_NOT} (unknown), "
                f"{TRANSACTION_COMMIT} (commit), {TRANSACTION_ROLLBACK} (rollback)",
            )
        if outcome == TRANSACTION_NOT:
            return
        half = self._live(self._named(header))
        committing = outcome == TRANSACTION_COMMIT
        status = self._halves.commit(half) if committing else self._halves.roll_back(half)
        if status is not PutStatus.OK:
            raise put_refusal(status, self._settings)
        if committing:
            self._statistics.puts[half.properties[PROPERTY_REAL_TOPIC]].count(1, half.store_size)

    def _named(self, header: EndTransactionRequestHeader) -> MessageExt:
        """Return the half message that the request names.

        Raises:
            Refusal: There is no such half message, or other fields of the request belong to another half message.
        """
        half = self._halves.find(header.commit_log_offset)
        if half is None:
            raise _wrong("Find prepared transaction message failed", f"no half message at {header.commit_log_offset}")
        group = half.properties.get(PROPERTY_PRODUCER_GROUP)
        if group != header.producer_group:
            raise _wrong("The producer group wrong", f"{header.producer_group} instead of {group}")
        if half.queue_offset != header.tran_state_table_offset:
            raise _wrong(
                "The transaction state table offset wrong",
                f"{header.tran_state_table_offset} instead of {half.queue_offset}",
            )
        asked = header.transaction_id
        if asked and half.unique_key and asked not in (half.unique_key, half.offset_message_id):
            raise _wrong("The transaction id wrong", f"{asked} instead of {half.unique_key}")
        return half

    def _live(self, half: MessageExt) -> MessageExt:
        """Return the half message where it is pending now: each check stores it again at another offset.

        Raises:
            Refusal: The transaction has ended, or the half message of the latest check cannot be read.
        """
        offset = self._halves.pending.live(half.queue_offset)
        if offset == half.queue_offset:
            return half
        found = None if offset is None else next((m for _, m in self._halves.read(offset, 1)), None)
        if found is None:
            raise _wrong(
                "Find prepared transaction message failed",
                f"the transaction of {half.msg_id} has ended, or the end is to answer its latest check",
            )
        return found

    def _put_aside(self, message_id: str) -> MessageExt:
        try:
            offset = parse_offset_id(message_id)[2]
            record = self._store.message_at(offset)
            message = decode_record(record, decompress=False) if record is not None else None
        except RemoteProtocolError as e:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"{message_id!r} is not a message id: {e}") from None
        wanted = (PROPERTY_REAL_TOPIC, PROPERTY_REAL_QUEUE_ID, PROPERTY_PRODUCER_GROUP)
        if (
            message is None
            or message.topic != TRANS_CHECK_MAX_TIME_TOPIC
            or not self._store.leads_to(message.topic, message.queue_id, message.queue_offset, offset)
            or not {*wanted} <= {*message.properties}
        ):
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"{message_id} is not a half message in {TRANS_CHECK_MAX_TIME_TOPIC}",
            )
        return message


def _wrong(remark: str, detail: str) -> Refusal:
    """Return a refusal with Apache's code and remark, followed by the detail."""
    return Refusal(ResponseCode.SYSTEM_ERROR, f"{remark}: {detail}")
