"""Asks producers about transactions that they have not ended.

Every ``transactionCheckInterval`` it goes through the pending half messages, oldest first. One that is old
enough is stored anew, with one check more in its properties, and a live producer of its group is asked: the
new one is what the answer ends. After ``transactionCheckMax`` checks it is put aside for people to look at.
A message that has an age of its own at which to be asked about (``CHECK_IMMUNITY_TIME_IN_SECONDS``) is passed
over until then, by storing it anew without a question; Apache's brokers count that as a check.
"""

import asyncio
import enum
import logging
from collections import Counter
from itertools import count

from rocket_broker.clients.client_channel import ClientChannel
from rocket_broker.clients.producer_table import ProducerTable
from rocket_broker.loop.loop_steps import LoopTurns
from rocket_broker.settings.broker_settings import BrokerSettings
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
"""So many half messages in one step, which takes two milliseconds; then others have their turn."""
BYTES_AT_ONCE = 1024 * 1024
HOUR_MS = 3_600_000

_NEVER = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)
"""What is refused so is refused again."""


class _Verdict(enum.Enum):
    DONE = "go on with the next"
    YOUNG = "this one and those behind it are too young"
    TROUBLE = "the store took nothing"


class TransactionCheckService:
    """The rounds of questions."""

    def __init__(
        self, *, settings: BrokerSettings, clock: Clock, halves: HalfMessages, producers: ProducerTable
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._halves = halves
        self._producers = producers
        self._turn = count()
        self._nobody: Counter[str] = Counter()

    async def run(self) -> None:
        """Make a round every ``transactionCheckInterval``; runs until cancelled."""
        while True:
            await asyncio.sleep(self._settings.transaction_check_interval / 1000)
            try:
                await self.check()
            except Exception:  # whatever is wrong with one message or the disk: the rounds go on
                logger.exception("a round of transaction checks failed")

    async def check(self) -> None:
        """Make one round: what is pending now and old enough is asked about, or put aside."""
        try:
            await self._check()
            await self._halves.commit_progress()
        finally:
            for group, number in self._nobody.items():
                logger.warning(
                    "no producer of group %s is there to be asked about %d messages", group, number
                )
            self._nobody.clear()

    async def _check(self) -> None:
        halves, began = self._halves, self._clock.now_ms()
        end = halves.end
        turns = LoopTurns("transactions are asked about")
        while (offset := halves.pending.advance(end)) < end:
            with turns:
                verdict = self._step(offset, end, began, turns)
            if verdict is not _Verdict.DONE:
                return
            await turns.pause()

    def _step(self, offset: int, end: int, began: int, turns: LoopTurns) -> _Verdict:
        """Look at some half messages from a pending one on, until the turn is over."""
        pending = self._halves.pending
        found = False
        for number, half in self._halves.read(offset, min(LOOKED_AT_ONCE, end - offset)):
            found = True
            if half is None:
                pending.end_without_op(number)
            elif pending.is_pending(number):
                half.queue_offset = number
                verdict = self._decide(half, began)
                if verdict is not _Verdict.DONE:
                    return verdict
            if turns.is_over:
                break
        if not found:  # deleted with its file
            pending.skip(min(end, max(offset + 1, self._halves.first_stored)))
        return _Verdict.DONE

    def _decide(self, half: MessageExt, began: int) -> _Verdict:
        settings, age = self._settings, began - half.born_timestamp
        checks = _number(half.properties.get(PROPERTY_TRANSACTION_CHECK_TIMES), 0)
        if checks >= settings.transaction_check_max or age > settings.file_reserved_time * HOUR_MS:
            return self._put_aside(half, checks)
        if not _is_whole(half):
            logger.error("half message %r does not say where it belongs: put aside", half)
            return self._put_aside(half, checks)
        if half.store_timestamp >= began:
            return _Verdict.YOUNG
        asked = half.properties.get(PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS)
        if asked is not None:
            seconds = _number(asked, -1)
            if age < (settings.transaction_time_out if seconds == -1 else seconds * 1000):
                return self._pass_over(half)
        elif 0 <= age < settings.transaction_time_out:
            return _Verdict.YOUNG
        return self._ask(half, checks)

    def _put_aside(self, half: MessageExt, checks: int) -> _Verdict:
        if self._halves.put_aside(half) is not PutStatus.OK:
            return _Verdict.TROUBLE
        logger.error("%r was not ended by its producer after %d checks and is put aside", half, checks)
        return _Verdict.DONE

    def _pass_over(self, half: MessageExt) -> _Verdict:
        name = PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET
        status = self._halves.put_back(half, {name: half.properties.get(name, str(half.queue_offset))})
        return _Verdict.DONE if status is PutStatus.OK else self._not_put_back(half, 0, status)

    def _not_put_back(self, half: MessageExt, checks: int, status: PutStatus) -> _Verdict:
        """Put aside what can never be stored anew: it must not hold up those behind it."""
        return self._put_aside(half, checks) if status in _NEVER else _Verdict.TROUBLE

    def _ask(self, half: MessageExt, checks: int) -> _Verdict:
        status = self._halves.put_back(half, {PROPERTY_TRANSACTION_CHECK_TIMES: str(checks + 1)})
        if status is not PutStatus.OK:
            return self._not_put_back(half, checks, status)
        group = half.properties[PROPERTY_PRODUCER_GROUP]
        producer = self._producer(group)
        if producer is None:
            self._nobody[group] += 1
            return _Verdict.DONE
        try:
            header, body = _question(half)
            producer.connection.invoke_oneway(RequestCode.CHECK_TRANSACTION_STATE, header, body)
        except RemotingError as e:
            logger.warning("%r could not be asked about %s: %s", producer, half.msg_id, e)
        return _Verdict.DONE

    def _producer(self, group: str) -> ClientChannel | None:
        """Return one of the group's producers, another each time; none that does not read what it is sent."""
        members = [
            member
            for member in self._producers.members(group)
            if not (member.connection.is_closed or member.connection.is_stalled)
        ]
        return members[next(self._turn) % len(members)] if members else None


def _question(half: MessageExt) -> tuple[CheckTransactionStateRequestHeader, bytes]:
    """Return what a producer is asked: about the half message as it is stored now, under its own topic."""
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


def _number(text: str | None, otherwise: int) -> int:
    try:
        return otherwise if text is None else int(text)
    except ValueError:
        return otherwise
