"""Transaction checks: the broker asks producers about transactions that they have not ended.

Every ``transactionCheckInterval`` milliseconds a round goes through the pending half messages, oldest first::

    checked transactionCheckMax times,           ─► moved to TRANS_CHECK_MAX_TIME_TOPIC, for people
      or older than fileReservedTime
    no producer of the group is online           ─► left where it is, without a check; moved to that topic when it
                                                    is older than transactionProducerWaitHours
    younger than transactionTimeOut              ─► the round ends: those behind it are younger still
    younger than its own limit                   ─► stored again without a check, so the round can pass it over
      (CHECK_IMMUNITY_TIME_IN_SECONDS)
    otherwise                                    ─► stored again with one check more, and a producer is asked

As in Apache's TransactionalMessageServiceImpl, a check stores the half message again at the end of the half queue, and
the producer's answer ends that new one. Storing again for a message's own limit counts as a check in Apache's brokers,
but not here; and so does a check without a producer, after 15 of which, a quarter of an hour, nobody has been asked and
the transaction is given up. The question goes to one live producer of the group, to another one at each check.

A half message that waits for a producer is stored again without a check once an hour, or when 100,000 later ones have
been stored. So its log file is not deleted, and the group CID_RMQ_SYS_TRANS makes progress.
"""

import asyncio
import enum
import logging
from collections import Counter
from collections.abc import Callable
from itertools import count

from rocket_broker.clients.client_channel import ClientChannel
from rocket_broker.clients.producer_table import ProducerTable
from rocket_broker.loop.loop_steps import LoopTurns
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.statistics import BrokerStatistics
from rocket_broker.store.messages import PutStatus
from rocket_broker.transaction.half_messages import HalfMessages
from rocket_remoting.clock import Clock
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.errors import RemotingError
from rocket_remoting.wire.headers import CheckTransactionStateRequestHeader
from rocket_remoting.wire.message import MessageExt
from rocket_remoting.wire.properties import (
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    encode_properties,
)
from rocket_remoting.wire.record import encode_record

__all__ = ["TransactionCheckService"]

logger = logging.getLogger(__name__)

LOOKED_AT_ONCE = 16
"""Half messages that are read in one step, which takes two milliseconds."""
BYTES_AT_ONCE = 1024 * 1024
HOUR_MS = 3_600_000
MOST_BEHIND = 100_000
"""Half messages that may follow one that waits for a producer before it is stored again. The next start reads them and
their op messages."""


class _Verdict(enum.Enum):
    DONE = "continue with the next"
    TOO_YOUNG = "this one and those behind it are too young"
    STORE_FAILED = "the store refused a message"


class TransactionCheckService:
    """The rounds of transaction checks.

    Args:
        settings: The broker's settings.
        clock: The time.
        halves: The half messages.
        producers: The live producers.
        statistics: Counts what is moved aside.
        may_know: Returns whether a producer may be sent half messages of a topic and group; it joins any group.
    """

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        clock: Clock,
        halves: HalfMessages,
        producers: ProducerTable,
        statistics: BrokerStatistics,
        may_know: Callable[[ClientChannel, str, str], bool] = lambda producer, topic, group: True,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._halves = halves
        self._producers = producers
        self._statistics = statistics
        self._may_know = may_know
        self._turn = count()
        self._without_producer: Counter[str] = Counter()
        self._reported: dict[str, int] = {}

    async def run(self) -> None:
        """Make a round every ``transactionCheckInterval`` milliseconds; runs until cancelled."""
        while True:
            await asyncio.sleep(self._settings.transaction_check_interval / 1000)
            try:
                await self.check()
            except Exception:  # one bad message, or the disk, must not end all later rounds
                logger.exception("a round of transaction checks failed")

    async def check(self) -> None:
        """Make one round: check, or move aside, each half message that is pending now and old enough."""
        try:
            await self._check()
            await self._halves.commit_progress()
        finally:
            self._report_waiting()
            self._without_producer.clear()

    def _report_waiting(self) -> None:
        """Log the groups whose half messages wait for a producer, each at most once an hour."""
        now = self._clock.now_ms()
        for group, number in self._without_producer.items():
            if now - self._reported.get(group, now - HOUR_MS) >= HOUR_MS:
                self._reported[group] = now
                logger.warning(
                    "no producer of group %s is online: %d half message(s) wait for one, for up to %d hour(s)",
                    group,
                    number,
                    self._settings.transaction_producer_wait_hours,
                )
        self._reported = {group: at for group, at in self._reported.items() if group in self._without_producer}

    async def _check(self) -> None:
        halves, began = self._halves, self._clock.now_ms()
        end = halves.end
        turns = LoopTurns("checking transactions")
        # `end` stays what it was at the beginning of the round: half messages that the round stores again lie
        # behind it, and are for the next round.
        halves.pending.advance(end)
        offset = 0
        # Half messages that wait for a producer stay pending behind `offset`.
        while (offset := halves.pending.next_pending(offset)) < end:
            with turns:
                verdict, offset = self._step(offset, end, began, turns)
            if verdict is not _Verdict.DONE:
                return
            await turns.pause()

    def _step(self, offset: int, end: int, began: int, turns: LoopTurns) -> tuple[_Verdict, int]:
        """Handle some half messages from a pending one on, until the slice of the loop's time is used up.

        Returns:
            The verdict on the last one, and the offset at which the round goes on.
        """
        pending = self._halves.pending
        reached = offset
        for number, half in self._halves.read(offset, min(LOOKED_AT_ONCE, end - offset)):
            reached = number + 1
            # A record that cannot be read would hold up all half messages behind it forever.
            if half is None:
                pending.end_without_op(number)
            elif pending.is_pending(number):
                half.queue_offset = number
                verdict = self._decide(half, end, began)
                if verdict is not _Verdict.DONE:
                    return verdict, reached
            if turns.is_over:
                break
        if reached == offset:  # deleted with its commit log file
            reached = min(end, max(offset + 1, self._halves.first_stored))
            pending.skip(reached) if reached > offset + 1 else pending.end_without_op(offset)
        return _Verdict.DONE, reached

    def _decide(self, half: MessageExt, end: int, began: int) -> _Verdict:
        settings, age = self._settings, began - half.born_timestamp
        checks = _checks(half)
        # As Apache's needDiscard and needSkip: a half message older than the retention is about to be
        # deleted with its file, so it is moved aside while it can still be read.
        if checks >= settings.transaction_check_max or age > settings.file_reserved_time * HOUR_MS:
            return self._put_aside(half, f"after {checks} checks, {age // HOUR_MS} hours after it was made")
        if not _is_whole(half):
            return self._put_aside(half, "and has no topic, queue or producer group to ask")
        asked = half.properties.get(PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS)
        if asked is not None:
            seconds = _number(asked, -1)
            # -1 means the broker's limit, as in Apache's getImmunityTime; a text that is not a number counts
            # as -1 here.
            if age < (settings.transaction_time_out if seconds == -1 else seconds * 1000):
                return self._pass_over(half)
        # A negative age stems from a producer whose clock is ahead. Such a half message is asked about at
        # once, as by Apache's broker, since it would look young for as long as that clock was ahead.
        elif 0 <= age < settings.transaction_time_out:
            return _Verdict.TOO_YOUNG
        return self._ask(half, end, began)

    def _ask(self, half: MessageExt, end: int, began: int) -> _Verdict:
        """Ask a producer of the group; if none is online, let the half message wait for one."""
        group, hours = half.properties[PROPERTY_PRODUCER_GROUP], self._settings.transaction_producer_wait_hours
        producer = self._producer(group, half.properties[PROPERTY_REAL_TOPIC])
        if producer is not None:
            return self._send_check(half, producer)
        if began - half.born_timestamp > hours * HOUR_MS:
            return self._put_aside(half, f"and no producer of its group {group} could be asked for {hours} hours")
        self._without_producer[group] += 1
        # Not too far behind the others, and not in a log file that is about to be deleted.
        if began - half.store_timestamp < HOUR_MS and end - half.queue_offset < MOST_BEHIND:
            return _Verdict.DONE
        return self._pass_over(half)

    def _put_aside(self, half: MessageExt, why: str) -> _Verdict:
        aside = self._halves.put_aside(half)
        if aside is None:
            return _Verdict.STORE_FAILED
        self._statistics.transactions_put_aside += 1
        logger.error(
            "%r was neither committed nor rolled back %s: moved to TRANS_CHECK_MAX_TIME_TOPIC. To have it checked "
            "again: streamkit transaction resume %s",
            half,
            why,
            aside,
        )
        return _Verdict.DONE

    def _pass_over(self, half: MessageExt) -> _Verdict:
        name = PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET
        status = self._halves.put_back(half, {name: half.properties.get(name, str(half.queue_offset))})
        return _Verdict.DONE if status is PutStatus.OK else self._not_put_back(half, status)

    def _not_put_back(self, half: MessageExt, status: PutStatus) -> _Verdict:
        """Move aside a half message that can never be stored again, so that it does not hold up those behind it."""
        if not status.is_permanent:
            return _Verdict.STORE_FAILED
        return self._put_aside(half, f"and cannot be stored with the count of its checks ({status.value})")

    def _send_check(self, half: MessageExt, producer: ClientChannel) -> _Verdict:
        # Stored before the question is sent: the question names the new record, and a check counts even if
        # the question is lost. Otherwise a hanging producer's half messages would be checked forever.
        status = self._halves.put_back(half, {PROPERTY_TRANSACTION_CHECK_TIMES: str(_checks(half) + 1)})
        if status is not PutStatus.OK:
            return self._not_put_back(half, status)
        try:
            header, body = _check_request(half)
            producer.connection.invoke_oneway(RequestCode.CHECK_TRANSACTION_STATE, header, body)
        except RemotingError as e:
            logger.warning("could not ask %r about half message %s: %s", producer, half.msg_id, e)
        return _Verdict.DONE

    def _producer(self, group: str, topic: str) -> ClientChannel | None:
        """Return one of the group's producers for the topic, another at each call, and none that has stopped reading.

        Return None if there is no such producer.
        """
        members = [
            member
            for member in self._producers.members(group)
            if not (member.connection.is_closed or member.connection.is_stalled)
            and self._may_know(member, topic, group)
        ]
        return members[next(self._turn) % len(members)] if members else None


def _check_request(half: MessageExt) -> tuple[CheckTransactionStateRequestHeader, bytes]:
    """Return the header and the body of a check: the half message as it is stored now, under its real topic."""
    topic = half.properties[PROPERTY_REAL_TOPIC]
    header = CheckTransactionStateRequestHeader(
        topic=topic,
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=half.commit_log_offset,
        msg_id=half.unique_key,
        transaction_id=half.unique_key,
        offset_msg_id=half.offset_message_id,
    )
    record = encode_record(
        topic,
        half.body,
        encode_properties(half.properties),
        queue_id=int(half.properties[PROPERTY_REAL_QUEUE_ID]),
        queue_offset=half.queue_offset,
        commit_log_offset=half.commit_log_offset,
        sys_flag=half.sys_flag,
        flag=half.flag,
        born_timestamp=half.born_timestamp,
        born_host=half.born_host,
        store_timestamp=half.store_timestamp,
        store_host=half.store_host,
        reconsume_times=half.reconsume_times,
        prepared_transaction_offset=half.prepared_transaction_offset,
    )
    return header, record


def _is_whole(half: MessageExt) -> bool:
    properties = half.properties
    return (
        bool(properties.get(PROPERTY_REAL_TOPIC))
        and _number(properties.get(PROPERTY_REAL_QUEUE_ID), -1) >= 0
        and PROPERTY_PRODUCER_GROUP in properties
    )


def _checks(half: MessageExt) -> int:
    return _number(half.properties.get(PROPERTY_TRANSACTION_CHECK_TIMES), 0)


def _number(text: str | None, otherwise: int) -> int:
    try:
        return otherwise if text is None else int(text)
    except ValueError:
        return otherwise
